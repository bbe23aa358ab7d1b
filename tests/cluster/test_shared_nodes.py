"""Jobs that do not have their nodes to themselves, on a real Slurm: suspended ones, and those in a reserved part.

Plans and expected starts agree with Slurm on until when a job may run, and whether a job starts.
"""

import json
import time
from collections.abc import Callable, Iterator

import pytest

from accounting.store.database import open_store
from accounting.store.records import read_attempts
from slurm_plugin.config.file import load_config
from slurm_plugin.sandbox.shape import NodeShape
from tests.cluster.advised_site import until
from tests.cluster.conftest import Shell, unhooked_site

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NODE_CPUS = NodeShape().cpus
# Far more than rounding to whole seconds can explain.
SUSPENDED_S = 12


@pytest.fixture(scope="module")
def node(make_folder: Callable[[], "object"]) -> Iterator[Shell]:
    """Yield a cluster of one node."""
    with unhooked_site(make_folder() / "site") as sandbox:  # type: ignore[operator]
        yield Shell(sandbox)


@pytest.fixture(autouse=True)
def _empty(node: Shell) -> Iterator[None]:
    yield
    node.empty()


def ends_by_s(shell: Shell, job: int) -> int:
    """Return when Slurm ends a running job (unix seconds)."""
    said = shell.run("env", "SLURM_TIME_FORMAT=%s", "squeue", "--noheader", "--format=%e", f"--jobs={job}")
    return int(said)


def foreseen_s(shell: Shell, job: int) -> int:
    """Return when the advisor expects a job to start (unix seconds), if nothing is changed."""
    rows = json.loads(shell.run("rightsizer", "advise", "--format", "json"))
    return int(next(row["base_start_s"] for row in rows if row["job_id"] == job))


def test_the_time_that_a_job_was_suspended_is_not_part_of_its_run(node: Shell) -> None:
    over = node.sandbox.directory.parent / "over"
    first = node.submit(f"-c{NODE_CPUS}", "--mem=100", "-t9", script=until(over))
    node.wait_state(first, "RUNNING")
    node.run("scontrol", "suspend", str(first))
    node.wait_state(first, "SUSPENDED")
    time.sleep(SUSPENDED_S)
    node.run("scontrol", "resume", str(first))
    node.wait_state(first, "RUNNING")
    behind = node.submit(f"-c{NODE_CPUS}", "--mem=100", "-t1")
    assert foreseen_s(node, behind) == pytest.approx(ends_by_s(node, first), abs=SUSPENDED_S / 3)
    over.touch()
    assert node.wait_ended(first) == "COMPLETED"
    node.run("rightsizer", "ingest")
    engine = open_store(load_config(str(node.sandbox.layout.rightsizer_toml)).store.url)
    [told] = read_attempts(engine, first)
    engine.dispose()
    assert told.row.end_s - told.row.start_s - told.row.elapsed_s == pytest.approx(SUSPENDED_S, abs=4)
    assert told.use.wall_s == int(node.accounted(first, "ElapsedRaw"))


def test_a_job_in_a_reserved_part_of_a_node_takes_nothing_from_the_rest(node: Shell) -> None:
    name = node.sandbox.manifest.nodes[0]
    words = ("users=root", "starttime=now", "duration=30", f"nodes={name}", f"tres=cpu={NODE_CPUS // 2}")
    node.run("scontrol", "create", "reservation", "reservationname=course", *words)
    try:
        inside = node.submit(
            "--reservation=course", f"-c{NODE_CPUS // 2}", "--mem=100", "-t9", script="sleep 600"
        )
        outside = node.submit(f"-c{NODE_CPUS // 4}", "--mem=100", "-t9", script="sleep 600")
        for job in (inside, outside):
            node.wait_state(job, "RUNNING")
        waits = node.submit(f"-c{NODE_CPUS // 2}", "--mem=100", "-t2")
        assert foreseen_s(node, waits) == pytest.approx(ends_by_s(node, outside), abs=4)
        out = node.run("rightsizer", "explain", str(waits), "--format", "json")
        fewer = next(row for row in json.loads(out) if "CPUs" in row["if it asked for"])
        assert fewer["sooner by (min)"] > 5
        # As predicted, a smaller job starts, and this one keeps waiting.
        node.wait_ended(node.submit(f"-c{NODE_CPUS // 4}", "--mem=100", "-t2"))
        assert node.run("squeue", "--noheader", "--format=%T", f"--jobs={waits}").strip() == "PENDING"
        node.run("scancel", str(inside), str(outside))
        node.wait_ended(waits)
    finally:
        node.empty()
        node.run("scontrol", "delete", "reservation", "course")
