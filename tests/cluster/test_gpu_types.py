"""GPUs of several types on a real Slurm: which types jobs have, and when jobs that wait for one will start."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox.shape import NodeShape, Shape
from slurm_plugin.slurm.backends import open_queue
from tests.cluster.conftest import Shell, unhooked_site

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

MIXED, PLAIN = ("a100", "a100", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"), ("h100", "h100")
# Only one type is accounted for: Slurm shows the others only in the words of the request.
SHAPE = Shape(
    nodes=(NodeShape(gpu_types=MIXED), NodeShape(gpu_types=PLAIN, features=("new-2", "ib"))),
    lines=("AccountingStorageTRES=gres/gpu:a100",),
)
SLACK_S = 5


@pytest.fixture
def shell(make_folder: Callable[[], Path]) -> Iterator[Shell]:
    with unhooked_site(make_folder() / "site", SHAPE, nodes=2) as sandbox:
        yield Shell(sandbox)


def test_a_job_waits_for_its_gpu_type_and_its_start_is_foreseen(shell: Shell) -> None:
    plain = ("--mem=100", "--time=1")
    first, second = shell.sandbox.manifest.nodes
    on_first = shell.submit("--mem=100", "--time=9", "-w", first, "--gres=gpu:3", script="sleep 600")
    on_second = shell.submit("--mem=100", "--time=5", "-w", second, "--gres=gpu:h100:1", script="sleep 600")
    other = shell.submit("--mem=100", "--time=5", "--gpus=1g.10gb:3", script="sleep 600")
    for job in (on_first, on_second, other):
        shell.wait_state(job, "RUNNING")
    a100 = shell.submit(*plain, "--gres=gpu:a100:2")
    h100 = shell.submit(*plain, "--ntasks=2", "--gpus-per-task=h100:1", "--nodes=1")
    any_two = shell.submit(*plain, "--gres=gpu:2")
    on_new = shell.submit(*plain, "--gres=gpu:2", "--constraint=new-2|ib")
    seen = open_queue("scontrol").read()
    assert {node.name: node.gpu_types for node in seen.nodes} == {
        first: (("a100", 2), ("1g.10gb", 4)),
        second: (("h100", 2),),
    }
    assert {job.job_id: dict(job.gpu_types) for job in seen.jobs} == {
        on_first: {"a100": 2},
        on_second: {"h100": 1},
        other: {"1g.10gb": 3},
        a100: {"a100": 2},
        h100: {"h100": 2},
        any_two: {},
        on_new: {},
    }
    rows = json.loads(shell.run("rightsizer", "advise", "--format", "json"))
    foreseen_s = {row["job_id"]: row["base_start_s"] for row in rows}
    ends_s = {
        job: int(shell.run("env", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "--format=%e", f"--jobs={job}"))
        for job in (on_first, on_second, other)
    }
    assert foreseen_s == {
        a100: pytest.approx(ends_s[on_first], abs=SLACK_S),
        h100: pytest.approx(ends_s[on_second], abs=SLACK_S),
        any_two: pytest.approx(ends_s[other], abs=SLACK_S),
        on_new: pytest.approx(ends_s[on_second] + 60, abs=SLACK_S),
    }
    # As foreseen, this end lets the job start that waits for this type, and not the one before it.
    shell.run("scancel", str(on_second))
    shell.wait_ended(h100)
    assert shell.run("squeue", "-h", "--format=%T", f"--jobs={a100}").strip() == "PENDING"
