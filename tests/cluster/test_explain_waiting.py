"""What `rightsizer explain` says of jobs in the queue of a real Slurm: what it foresees comes true."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.cluster.conftest import Shell
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SLEEPS = "sleep 600"


@pytest.fixture
def full(shell: Shell) -> Iterator[Shell]:
    """Yield a cluster with 4 CPUs of one node free for at least ten minutes, which runs nothing else."""
    shell.empty()
    nodes = shell.run("sinfo", "--noheader", "--Node", "--format=%N %c %C").split("\n")
    names = [line.split() for line in nodes if line]
    for at, (name, cpus, _) in enumerate(names):
        shell.submit(
            f"--nodelist={name}", f"-c{int(cpus) - 4 * (at == 0)}", "--mem=100", "-t10", script=SLEEPS
        )
    wait_until(lambda: "PENDING" not in shell.run("squeue", "--noheader", "--format=%T"))
    yield shell
    shell.empty()


def explained(shell: Shell, job: int) -> tuple[list[dict[str, Any]], str]:
    out, errors = shell.run_both("rightsizer", "explain", str(job), "--format", "json")
    return json.loads(out), errors


def minutes_until(moment: str) -> float:
    now = datetime.now()  # noqa: DTZ005 - what is read is the local time that was printed
    return (datetime.strptime(f"{now.year}-{moment}", "%Y-%m-%d %H:%M") - now).total_seconds() / 60  # noqa: DTZ007


def minutes_left(shell: Shell, job: str = "") -> float:
    """Return in how many minutes a running job, or the first of all running jobs, reaches its limit."""
    which = (f"--jobs={job}",) if job else ()
    ends = shell.run("squeue", "--noheader", "--states=RUNNING", "--format=%e", *which).split()
    return minutes_until(min(ends)[5:16].replace("T", " "))


def test_the_predicted_effect_of_asking_for_less_comes_true(full: Shell) -> None:
    job = full.submit("-c8", "--mem=100", "-t10")
    before_min = minutes_left(full)
    rows, errors = explained(full, job)
    left_min = minutes_left(full)
    as_it_is, fewer = rows[0], next(row for row in rows if "CPUs" in row["if it asked for"])
    # All times are printed in whole minutes.
    assert left_min - 1 <= minutes_until(as_it_is["likely start"]) <= left_min + 2
    assert fewer["if it asked for"] == "4 CPUs, half of what it asks for"
    assert minutes_until(fewer["likely start"]) <= 0
    assert left_min - 1 <= fewer["sooner by (min)"] <= before_min + 2
    assert f"job {job} waits: " in errors
    full.run("scontrol", "update", f"JobId={job}", "NumCPUs=4", "CPUsPerTask=4", "MinCPUsNode=4")
    assert full.wait_ended(job) == "COMPLETED"
    assert full.allocated(job)["cpu"] == "4"


def test_the_reason_why_a_job_waits_is_given(full: Shell) -> None:
    job = full.submit("--hold", "-c1", "--mem=100")
    rows, errors = explained(full, job)
    assert [(row["if it asked for"], row["likely start"]) for row in rows] == [("as it is", None)]
    assert "it is held; `scontrol release` releases it (JobHeldUser)" in errors
    assert "cannot be estimated" in errors


def test_the_end_of_a_running_job_is_given(full: Shell) -> None:
    running = int(full.run("squeue", "--noheader", "--states=RUNNING", "--format=%A").split()[0])
    (row,), _ = explained(full, running)
    assert row["state"] == "RUNNING"
    assert minutes_until(row["its limit"]) == pytest.approx(minutes_left(full, str(running)), abs=1)


def test_a_forecast_counts_pending_and_running_jobs(full: Shell) -> None:
    assert full.wait_ended(full.submit("-c1", "--mem=100", script="true")) == "COMPLETED"
    full.submit("--array=1-3", "-c8", "--mem=100", "-t10")
    # slurmdbd hears of a job a moment after its end.
    wait_until(lambda: "COMPLETED" in full.run("sacct", "--allocations", "--noheader", "--format=State"))
    full.run("rightsizer", "ingest")
    _, errors = full.run_both("rightsizer", "forecast", "--step=5m", "--horizon=5m", code=1)
    now = full.run("squeue", "--noheader", "--array", "--format=%A").split()
    assert f"counted too: {len(now)} jobs waiting or running now" in errors
    assert "read more of the past" in errors
