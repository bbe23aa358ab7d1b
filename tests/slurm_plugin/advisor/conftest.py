"""An advisor on a fake queue, and a queue that is worth reordering."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from models.demand.prediction import ChainSettings
from slurm_plugin.advisor.cycle import Advisor, Means
from slurm_plugin.advisor.lending import Lending
from slurm_plugin.config.settings import Advisor as Settings
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.slurm.gateway import Gateway, WriteTerms
from slurm_plugin.slurm.snapshot import Snapshot
from tests.slurm_plugin.slurm.fake_queue import FakeQueue
from tests.slurm_plugin.slurm.queued import running, snapshot, waiting

MakeAdvisor = Callable[..., Advisor]


def mixed() -> Snapshot:
    """Return two full nodes; long wide jobs are ahead of short narrow ones."""
    held = [running(1, cpus=8, limit_s=1200), running(2, cpus=8, limit_s=1200, nodes=("n2",))]
    long = [waiting(number, cpus=8, limit_s=18_000) for number in range(3, 7)]
    short = [waiting(number, cpus=2, limit_s=300) for number in range(7, 13)]
    return snapshot(
        *held, *long, *short, waiting(13, held=True, priority=0), waiting(14, dependency="afterok:1")
    )


@pytest.fixture
def queue() -> FakeQueue:
    return FakeQueue(mixed())


@pytest.fixture
def make(tmp_path: Path, queue: FakeQueue) -> MakeAdvisor:
    """Return a function that makes an advisor on the fixture's queue; its arguments are the advisor's settings."""

    def make(
        *, apply: bool = True, keeps: bool = True, lending: Lending | None = None, **settings: object
    ) -> Advisor:
        wanted = {"directory": str(tmp_path / "advisor"), "control_share": 0.0, "period_s": 1, **settings}
        known = msgspec.convert(wanted, Settings)
        terms = WriteTerms(most_changes=known.most_changes, writes_per_s=1e6, lease_s=known.lease_s)
        return Advisor(
            Means(
                settings=known,
                cluster="alpha",
                gateway=Gateway(queue, Path(known.directory), terms, apply=apply, cluster="alpha"),
                model=CurrentModel(tmp_path / "models", ChainSettings()),
                apply=apply,
                keeps=keeps,
                lending=lending,
            )
        )

    return make
