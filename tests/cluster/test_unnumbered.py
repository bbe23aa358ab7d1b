"""The gateway at a real slurmctld that has no number from slurmdbd for a job."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import daemons, teardown
from slurm_plugin.sandbox.cluster import Sandbox
from slurm_plugin.sandbox.shape import Shape
from slurm_plugin.slurm.gateway import Gateway
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue
from slurm_plugin.slurm.unnumbered import FIRST_S, LEFT
from tests.cluster.advised_site import is_numbered
from tests.cluster.conftest import Shell, unhooked_site
from tests.cluster.gate_queue import TERMS, change, shown, waiting
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

# slurmctld asks slurmdbd every five seconds for the numbers of all jobs that have none.
DBD_ASKED_S = 6.0


@pytest.fixture
def site(make_folder: Callable[[], Path]) -> Iterator[Sandbox]:
    """Yield a sandbox of one node, on which this process's commands work; its clients wait longer than slurmctld."""
    with unhooked_site(make_folder() / "site", Shape(lines=("MessageTimeout=60",))) as sandbox:
        yield sandbox


def test_a_job_without_a_number_from_slurmdbd_holds_up_no_other(site: Sandbox, tmp_path: Path) -> None:
    """Before 24.11 slurmctld refuses to change such a job, after five seconds."""
    full, clock_s = Shell(site), [0.0]
    full.wait_state(full.submit("--cpus-per-task=8", "--time=60", script="sleep 600"), "RUNNING")
    gateway = Gateway(ScontrolQueue(), tmp_path, TERMS, apply=True, clock_s=lambda: clock_s[0])
    known = full.submit("--cpus-per-task=16", "--time=5")
    wait_until(lambda: is_numbered(full, known) and known in shown(full))
    slurmdbd = teardown.running_record(site.layout, daemons.SLURMDBD)
    assert slurmdbd is not None
    os.kill(slurmdbd.pid, signal.SIGSTOP)
    try:
        new = full.submit("--cpus-per-task=16", "--time=5")
        wait_until(lambda: new in shown(full))
        time.sleep(DBD_ASKED_S)
        jobs = waiting(gateway.read(), new, known)
        said = {one.job_id: one.problem for one in gateway.reorder([change(job, 9) for job in jobs])}
        assert said.pop(known) == ""
        refuses = "DB index is being set" in said[new]
        assert refuses or not said[new]
        again = [change(job, 8) for job in waiting(gateway.read(), new, known)]
        said = {one.job_id: one.problem for one in gateway.reorder(again)}
        assert said == {known: "", new: LEFT if refuses else ""}
        assert shown(full)[known] == 8
    finally:
        os.kill(slurmdbd.pid, signal.SIGCONT)
    wait_until(lambda: is_numbered(full, new))
    clock_s[0] += FIRST_S
    again = [change(job, 7) for job in waiting(gateway.read(), new, known)]
    assert {one.problem for one in gateway.reorder(again)} == {""}
    assert {job: shown(full)[job] for job in (new, known)} == {new: 7, known: 7}
    gateway.undo()
    assert {job: shown(full)[job] for job in (new, known)} == {new: 0, known: 0}
