"""Runs jobs of every kind that accounting must tell apart on a private Slurm, and says what each was made to do."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

import msgspec

from slurm_plugin.sandbox.cluster import Sandbox
from tests.cluster.matrix.release import environment
from tests.waiting import wait_until

COMMAND_PATIENCE_S = 60.0
# A requeued job has not ended: its next attempt will.
UNENDED = ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "REQUEUED", "")
HOSTILE_NAMES = (
    "|||COMPLETED|0:0",
    "a\nb|c|d",
    "tab\there",
    "quotes'\"`",
    "bell\x07 and \x1f",
    "n" * 1000,
    "2|2|main|COMPLETED\n3|3|x|main|normal|COMPLETED|1|2|3|4\n5",
)


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What a job was made to do: `states` are those of its attempts, `steps` the fewest steps of the last attempt."""

    kind: str
    jobs: int = 1
    states: tuple[str, ...] = ("COMPLETED",)
    cpus: int = 1
    steps: int = 1
    name: str = ""


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the mix with its id in Slurm: that of the array, or of the leader."""

    made: Made
    job_id: int


_PLAIN = ("--output=/dev/null", "--time=5", "--mem=100")
MIX: tuple[tuple[Made, tuple[str, ...], str], ...] = (
    (Made(kind="sub-second"), (), "true"),
    (Made(kind="array", jobs=2), ("--array=1-2",), "true"),
    (Made(kind="failed", states=("FAILED",)), (), "exit 3"),
    (Made(kind="multi-step", steps=3, cpus=2), ("--ntasks=2",), "srun -n1 true; srun -n1 sleep 2"),
    (Made(kind="multi-task", steps=2, cpus=4), ("--ntasks=2", "--cpus-per-task=2"), "srun sleep 2"),
    (Made(kind="multi-node", steps=2, cpus=2), ("--nodes=2", "--ntasks-per-node=1"), "srun sleep 2"),
    (Made(kind="gpu", cpus=1), ("--gres=gpu:2",), "sleep 1"),
    (Made(kind="timeout", states=("TIMEOUT",)), ("--time=1",), "sleep 300"),
    (Made(kind="requeued", states=("REQUEUED", "COMPLETED")), ("--requeue",), "sleep 8"),
    (Made(kind="cancelled-running", states=("CANCELLED",)), (), "sleep 300"),
    *(
        (Made(kind=f"hostile-{at}", name=name), (f"--job-name={name}",), "true")
        for at, name in enumerate(HOSTILE_NAMES)
    ),
)  # fmt: skip
# It waits for nodes that others hold. It is not held: sacct does not show a held job, as that could never have run.
WAITING = (
    Made(kind="cancelled-waiting", states=("CANCELLED",), cpus=0, steps=0),
    ("--nodes=2", "--exclusive"),
    "true",
)
_MEMORY_MIB = 60
OUT_OF_MEMORY = (
    Made(kind="out-of-memory", states=("OUT_OF_MEMORY",)),
    (f"--mem={_MEMORY_MIB}",),
    "head -c 300M /dev/zero | tail -c 1 | sleep 1; python3 -c 'x = bytearray(400_000_000)'",
)


def run_mix(sandbox: Sandbox, *, enforced: bool) -> list[Submitted]:
    """Run all and wait until slurmdbd has their ends. With `enforced`, memory is limited: one job runs out of it."""
    mix = (*MIX, OUT_OF_MEMORY) if enforced else MIX
    submitted = [_submit(sandbox, *one) for one in mix]
    submitted.append(_submit_het(sandbox))
    submitted.append(_submit(sandbox, *WAITING))
    by_kind = {one.made.kind: one.job_id for one in submitted}
    _wait_running(sandbox, [by_kind["requeued"], by_kind["cancelled-running"]])
    _run(sandbox, "scontrol", "requeue", str(by_kind["requeued"]))
    _run(sandbox, "scancel", str(by_kind["cancelled-running"]), str(by_kind["cancelled-waiting"]))
    _run(sandbox, "scontrol", "update", f"jobid={by_kind['requeued']}", "starttime=now")
    _wait_ended(sandbox, sum(one.made.jobs for one in submitted))
    return submitted


def _submit(sandbox: Sandbox, made: Made, options: Sequence[str], script: str) -> Submitted:
    named = () if made.name else (f"--job-name={made.kind}",)
    said = _run(sandbox, "sbatch", "--parsable", *_PLAIN, *named, *options, f"--wrap={script}")
    return Submitted(made=made, job_id=int(said.partition(";")[0]))


def _submit_het(sandbox: Sandbox) -> Submitted:
    parts = (*_PLAIN, "--job-name=het", ":", *_PLAIN[1:], "--job-name=het", "--cpus-per-task=2")
    said = _run(sandbox, "sbatch", "--parsable", *parts, "--wrap=srun --het-group=0,1 sleep 1")
    return Submitted(made=Made(kind="het", jobs=2, steps=1), job_id=int(said.partition(";")[0]))


def _wait_running(sandbox: Sandbox, jobs: list[int]) -> None:
    names = ",".join(map(str, jobs))
    wait_until(
        lambda: (
            _run(sandbox, "squeue", "--noheader", "--format=%T", f"--jobs={names}").split()
            == ["RUNNING"] * len(jobs)
        )
    )
    time.sleep(2.0)  # their steps too


def _wait_ended(sandbox: Sandbox, jobs: int) -> None:
    def ended() -> bool:
        argv = ("sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "--starttime=now-1hour")
        rows = _run(sandbox, *argv, "--format=State,Partition").splitlines()
        return len(rows) >= jobs and all(_is_ended(row) for row in rows)

    wait_until(ended)


def _is_ended(row: str) -> bool:
    state, _, partition = row.partition("|")
    return bool(partition) and state.partition(" ")[0] not in UNENDED


def _run(sandbox: Sandbox, *argv: str) -> str:
    answer = subprocess.run(
        argv, env=environment(sandbox), capture_output=True, check=False, cwd="/", timeout=COMMAND_PATIENCE_S
    )
    assert answer.returncode == 0, f"{argv}: {answer.stderr.decode(errors='replace')}"
    return answer.stdout.decode(errors="replace")
