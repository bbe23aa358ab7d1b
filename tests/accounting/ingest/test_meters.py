"""What measured an attempt stays with it, whatever Slurm was upgraded to before the attempt is read again."""

from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine

from accounting.ingest.ingesting import fetched_answer, ingest
from accounting.ingest.run import IngestSettings
from accounting.slurm import sacct_groups
from accounting.slurm.sacct_records import Metering
from accounting.slurm.windows import Fetched
from accounting.store.records import read_attempts
from slurm_plugin.cli.ingest.settings import not_remembered
from tests.builders import DAY_S, T0, answer_of, job_line, step_line

BEFORE = Metering(release="22.05", gather="jobacct_gather/cgroup cgroup/v2")
AFTER = Metering(release="24.11", gather="jobacct_gather/cgroup cgroup/v2")
# On 22.05, the memory of tasks on the second node is lost.
ROWS = [job_line(1, T0, NNodes="2"), step_line(1, "0", T0, NNodes="2", NTasks="2")]
SETTINGS = IngestSettings(sacct="", overlap_s=3600, first_days=1, gpu_spool=Path(), journal=Path())


def read(store: Engine, metering: Metering, *, is_guess: bool = False) -> tuple[str, str, str]:
    """Read the job; return what measured it, and the quality of its memory."""
    settings = msgspec.structs.replace(SETTINGS, metering=metering)

    def source(_begin_s: int, end_s: int) -> Fetched:
        return fetched_answer(answer_of(ROWS), end_s, metering)

    ingest(store, settings, T0 + DAY_S, T0, source=not_remembered(source) if is_guess else source)
    [attempt] = read_attempts(store)
    return attempt.slurm_release, attempt.gather, attempt.use.memory_quality


@pytest.mark.parametrize(
    "now", [AFTER, msgspec.structs.replace(BEFORE, gather="jobacct_gather/linux"), Metering(release="24.11")]
)
def test_an_attempt_keeps_what_measured_it(
    store: Engine, now: Metering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after upgrades of Slurm and of rightsizer, with `ingest --since`."""
    before = ("22.05", BEFORE.gather, "censored")
    assert read(store, BEFORE) == before
    monkeypatch.setattr(sacct_groups, "LABELS", "labels-next")
    assert read(store, now) == before


def test_a_guess_stands_until_a_run_knows_better(store: Engine) -> None:
    assert read(store, BEFORE, is_guess=True)[0] == "22.05"
    assert read(store, AFTER, is_guess=True)[0] == "22.05"
    assert read(store, AFTER) == ("24.11", AFTER.gather, "exact")
    assert read(store, BEFORE, is_guess=True)[0] == "24.11"


def test_a_plugin_that_is_not_known_yet_is_completed_by_the_next_guess(store: Engine) -> None:
    assert read(store, Metering(release="22.05"), is_guess=True)[:2] == ("22.05", "")
    assert read(store, BEFORE, is_guess=True)[:2] == ("22.05", BEFORE.gather)
