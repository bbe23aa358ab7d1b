"""Single cycles of sizing what waits, as the advisor runs them, on a sandbox."""

import contextlib
from collections.abc import Callable, Iterator

import msgspec
import pytest

from slurm_plugin.advisor.sizing import LateSizing
from slurm_plugin.config.settings import Config
from slurm_plugin.sandbox.cluster import Sandbox
from slurm_plugin.slurm.gateway import Gateway, open_gateway
from slurm_plugin.slurm.queue import Written


@contextlib.contextmanager
def sizing(
    sandbox: Sandbox, config: Config, patch: pytest.MonkeyPatch
) -> Iterator[Callable[[], list[Written]]]:
    """Yield what runs one cycle of sizing what waits."""
    for name, value in sandbox.environment().items():
        patch.setenv(name, value)
    late = LateSizing(config)
    # Not by pyslurm where it imports: a process has one cluster by it, and other tests of this one have theirs.
    advisor = msgspec.structs.replace(config.advisor, queue="scontrol")
    gateway: Gateway
    with open_gateway(msgspec.structs.replace(config, advisor=advisor), apply=True) as gateway:

        def cycle() -> list[Written]:
            late.refresh()
            return late.run(gateway.read(), gateway, frozenset())

        yield cycle
