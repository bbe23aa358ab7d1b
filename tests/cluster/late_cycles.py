"""Single cycles of sizing pending jobs again, as the advisor runs them, in a sandbox."""

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
    """Yield a function that runs one cycle of sizing pending jobs."""
    for name, value in sandbox.environment().items():
        patch.setenv(name, value)
    late = LateSizing(config)
    # Not pyslurm, even if it imports: with it a process has one cluster, and other tests here have their own.
    advisor = msgspec.structs.replace(config.advisor, queue="scontrol")
    gateway: Gateway
    with open_gateway(msgspec.structs.replace(config, advisor=advisor), apply=True) as gateway:

        def cycle() -> list[Written]:
            late.refresh()
            return late.run(gateway.read(), gateway, frozenset())

        yield cycle
