"""If Slurm itself kills for memory (OverMemoryKill, no cgroups), it calls the job FAILED: accounting knows better."""

from collections.abc import Callable
from pathlib import Path

import pytest

from accounting.store.database import open_store
from accounting.store.records import read_attempts
from slurm_plugin.config.file import load_config
from slurm_plugin.sandbox.shape import Shape
from tests.cluster.conftest import Shell, unhooked_site

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

LIMIT_MIB, HELD_MIB = 100, 300
# Longer than Slurm takes to look twice.
HOLD = f"python3 -c 'import time; held = b\"1\" * ({HELD_MIB} << 20); time.sleep(60)'"
LINES = (
    "ProctrackType=proctrack/linuxproc",
    "TaskPlugin=task/affinity",
    "JobAcctGatherType=jobacct_gather/linux",
    "JobAcctGatherParams=OverMemoryKill",
)


def test_a_job_that_slurmd_killed_for_memory_needs_more_than_was_measured(
    make_folder: Callable[[], Path],
) -> None:
    with unhooked_site(make_folder() / "site", Shape(lines=LINES)) as sandbox:
        shell = Shell(sandbox)
        job = shell.submit(f"--mem={LIMIT_MIB}", script=HOLD)
        assert shell.wait_ended(job) == "FAILED"
        shell.run("rightsizer", "ingest")
        engine = open_store(load_config(str(sandbox.layout.rightsizer_toml)).store.url)
        [attempt] = read_attempts(engine, job)
        engine.dispose()
    use = attempt.use
    assert (use.outcome, use.memory_quality) == ("out_of_memory", "censored")
    assert (use.peak_mem_mib or 0) > LIMIT_MIB
