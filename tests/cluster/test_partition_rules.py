"""Rules of partitions, and reservations, on a real Slurm: a plan foresees the starts that Slurm then makes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox.shape import Shape
from tests.cluster.conftest import PATIENCE_S, Shell, unhooked_site
from tests.cluster.foreseen import foreseen
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

LIMIT_S = 1200
LINES = (
    "PartitionName=half Nodes={node[0]} MaxCPUsPerNode=8",
    "PartitionName=one Nodes={node[0]}",
    "PartitionName=denied Nodes={node[1]} DenyQos=normal",
)


@pytest.fixture(scope="module")
def shell(make_folder: Callable[[], Path]) -> Iterator[Shell]:
    with unhooked_site(make_folder() / "site", Shape(lines=LINES), nodes=2) as sandbox:
        yield Shell(sandbox)


@pytest.fixture(autouse=True)
def _empty(shell: Shell) -> Iterator[None]:
    yield
    shell.empty("--user=root")


def submit(shell: Shell, cpus: int, partition: str, limit_s: int = LIMIT_S) -> int:
    options = (f"--partition={partition}", f"-c{cpus}", "--mem=100", f"--time={limit_s // 60}")
    return shell.submit(*options, script=f"sleep {LIMIT_S}")


def test_jobs_of_a_partition_that_may_use_half_a_node_wait_for_each_other(shell: Shell) -> None:
    first = submit(shell, 8, "half")
    shell.wait_state(first, "RUNNING")
    second, third = submit(shell, 4, "half"), submit(shell, 4, "half")
    _, found = foreseen()
    for job in (second, third):
        assert LIMIT_S / 2 < found[job] <= LIMIT_S
    # Others get what it may not use if they end before its turn: Slurm keeps the whole node for that.
    shell.wait_state(submit(shell, 8, "one", limit_s=60), "RUNNING")
    assert shell.run("squeue", "--noheader", "--format=%T", f"--jobs={second}").strip() == "PENDING"
    shell.run("scancel", str(first))
    for job in (second, third):
        shell.wait_state(job, "RUNNING")


def test_a_job_waits_for_the_one_of_its_partitions_that_accepts_it(shell: Shell) -> None:
    first = submit(shell, 16, "one")
    shell.wait_state(first, "RUNNING")
    job = submit(shell, 16, "one,denied")
    _, found = foreseen()
    assert LIMIT_S / 2 < found[job] <= LIMIT_S
    shell.run("scancel", str(first))
    shell.wait_state(job, "RUNNING")
    assert shell.run("squeue", "--noheader", "--format=%P", f"--jobs={job}").strip() == "one"


def test_a_job_that_waits_for_the_end_of_a_maintenance_is_foreseen_to_start_then(shell: Shell) -> None:
    words = ("Users=root", "StartTime=now", "Duration=1", "Nodes=ALL", "Flags=MAINT,IGNORE_JOBS")
    shell.run("scontrol", "create", "reservation", "ReservationName=upkeep", *words)
    job = submit(shell, 16, "main")
    asked = ("squeue", "--noheader", "--Format=Reason:64", f"--jobs={job}")
    wait_until(lambda: "eserved" in shell.run(*asked))
    now, found = foreseen()
    end_s = now.reservations[0].end_s
    assert found[job] == pytest.approx(end_s - now.time_s)
    shell.wait_state(job, "RUNNING")
    started = shell.run("env", "SLURM_TIME_FORMAT=%s", "squeue", "--noheader", "--format=%S", f"--jobs={job}")
    # Slurm looks every two seconds; a machine may be slow.
    assert -1 <= float(started) - end_s <= PATIENCE_S
