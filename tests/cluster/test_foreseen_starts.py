"""What plans, expected starts and reports foresee on a real Slurm, which then starts jobs so.

Rules of partitions, reservations, suspended jobs, and idle GPUs that CPUs keep from being used.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accounting.store.database import open_store
from accounting.store.records import read_attempts
from slurm_plugin.config.file import load_config
from slurm_plugin.sandbox.shape import NodeShape, Shape
from tests.cluster.advised_site import until
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


NODE_CPUS = NodeShape().cpus
# Far more than rounding to whole seconds can explain.
SUSPENDED_S = 12
WITH_GPU = ("--cpus-per-task=2", "--mem=4000", "--gres=gpu:1", "--time=5")


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


def ends_by_s(shell: Shell, job: int) -> int:
    """Return when Slurm ends a running job (unix seconds)."""
    said = shell.run("env", "SLURM_TIME_FORMAT=%s", "squeue", "--noheader", "--format=%e", f"--jobs={job}")
    return int(said)


def advised_s(shell: Shell, job: int) -> int:
    """Return when the advisor expects a job to start (unix seconds), if nothing is changed."""
    rows = json.loads(shell.run("rightsizer", "advise", "--format", "json"))
    return int(next(row["base_start_s"] for row in rows if row["job_id"] == job))


def test_the_time_that_a_job_was_suspended_is_not_part_of_its_run(
    shell: Shell, make_folder: Callable[[], Path]
) -> None:
    over, whole = make_folder() / "over", ("--partition=one", f"-c{NODE_CPUS}", "--mem=100")
    first = shell.submit(*whole, "-t9", script=until(over))
    shell.wait_state(first, "RUNNING")
    shell.run("scontrol", "suspend", str(first))
    shell.wait_state(first, "SUSPENDED")
    time.sleep(SUSPENDED_S)
    shell.run("scontrol", "resume", str(first))
    shell.wait_state(first, "RUNNING")
    behind = shell.submit(*whole, "-t1")
    assert advised_s(shell, behind) == pytest.approx(ends_by_s(shell, first), abs=SUSPENDED_S / 3)
    over.touch()
    assert shell.wait_ended(first) == "COMPLETED"
    shell.run("rightsizer", "ingest")
    engine = open_store(load_config(str(shell.sandbox.layout.rightsizer_toml)).store.url)
    [told] = read_attempts(engine, first)
    engine.dispose()
    assert told.row.end_s - told.row.start_s - told.row.elapsed_s == pytest.approx(SUSPENDED_S, abs=4)
    assert told.use.wall_s == int(shell.accounted(first, "ElapsedRaw"))


def test_a_job_in_a_reserved_part_of_a_node_takes_nothing_from_the_rest(shell: Shell) -> None:
    name = shell.sandbox.manifest.nodes[0]
    words = ("users=root", "starttime=now", "duration=30", f"nodes={name}", f"tres=cpu={NODE_CPUS // 2}")
    shell.run("scontrol", "create", "reservation", "reservationname=course", *words)
    asked = ("--partition=one", "--mem=100")
    try:
        inside = shell.submit(
            *asked, "--reservation=course", f"-c{NODE_CPUS // 2}", "-t9", script="sleep 600"
        )
        outside = shell.submit(*asked, f"-c{NODE_CPUS // 4}", "-t9", script="sleep 600")
        for job in (inside, outside):
            shell.wait_state(job, "RUNNING")
        waits = shell.submit(*asked, f"-c{NODE_CPUS // 2}", "-t2")
        assert advised_s(shell, waits) == pytest.approx(ends_by_s(shell, outside), abs=4)
        out = shell.run("rightsizer", "explain", str(waits), "--format", "json")
        fewer = next(row for row in json.loads(out) if "CPUs" in row["if it asked for"])
        assert fewer["sooner by (min)"] > 5
        # As predicted, a smaller job starts, and this one keeps waiting.
        shell.wait_ended(shell.submit(*asked, f"-c{NODE_CPUS // 4}", "-t2"))
        assert shell.run("squeue", "--noheader", "--format=%T", f"--jobs={waits}").strip() == "PENDING"
        shell.run("scancel", str(inside), str(outside))
        shell.wait_ended(waits)
    finally:
        shell.empty("--user=root")
        shell.run("scontrol", "delete", "reservation", "course")


def test_idle_gpus_are_lost_if_jobs_without_gpus_hold_the_cpus(shell: Shell) -> None:
    first, second = shell.sandbox.manifest.nodes
    for _ in range(2):
        shell.submit_and_wait(*WITH_GPU)
    held = NODE_CPUS - 1
    in_the_way = shell.submit(f"-c{held}", "--mem=100", "-w", first, "--time=9", script="sleep 600")
    on_gpus = shell.submit("-c1", "--mem=100", "-w", second, "--gres=gpu:3", script="sleep 600")
    for job in (in_the_way, on_gpus):
        shell.wait_state(job, "RUNNING")
    shell.run("rightsizer", "ingest")
    told, said = shell.run_both("rightsizer", "report", "idle-gpus", "--format", "json")
    rows = {row["node"]: row for row in json.loads(told)}
    assert (rows[first]["idle"], rows[first]["lost_for_cpus"], rows[first]["cpus_held"]) == (4, 4.0, held)
    assert (rows[second]["idle"], rows[second]["usable"]) == (1, 1.0)
    assert "5 idle GPUs. On average over 2 attempts with GPUs, such a job could use 1.0 of them" in said
    assert "had at most 2 CPUs and 4,000 MiB per GPU" in said
    # Slurm agrees: one job starts on the usable GPU, the next one waits although four are idle.
    usable, lost = (shell.submit(*WITH_GPU, script="sleep 600") for _ in range(2))
    shell.wait_state(usable, "RUNNING")
    assert shell.run("squeue", "-h", "--format=%N", f"--jobs={usable}").strip() == second
    shell.wait_state(lost, "PENDING")
    shell.run("scancel", str(in_the_way))
    shell.wait_state(lost, "RUNNING")
    assert shell.run("squeue", "-h", "--format=%N", f"--jobs={lost}").strip() == first
