"""The demo on a real Slurm, as `make demo` runs it."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from slurm_plugin.demo import story, workload
from slurm_plugin.demo.story import QUEUE_ROUNDS, Outcome, Voice, begin, tell
from slurm_plugin.demo.table import family_rows
from slurm_plugin.demo.workload import FAMILIES, Queue
from slurm_plugin.sandbox import cluster
from tests.cluster.conftest import PATIENCE_S

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def outcome(make_folder: Callable[[], Path]) -> Outcome:
    before = dict(os.environ)
    directory = make_folder() / "demo"
    voice = Voice(lambda _line: None, lambda _line: None)
    try:
        with pytest.MonkeyPatch.context() as patch:
            queue_at_once(patch)
            return tell(begin(directory, voice), voice)
    finally:
        # The demo puts the sandbox's variables into its own process, as a shell would.
        os.environ.clear()
        os.environ.update(before)
        cluster.stop(directory)


def queue_at_once(patch: pytest.MonkeyPatch) -> None:
    """Let no job of a queue start before all are submitted: a slow machine would run them one after another."""
    run_queue, wait_until_ended = story.run_queue, workload.wait_until_ended

    def run_held(voice: Voice) -> tuple[Queue, str]:
        set_partition("DOWN")
        return run_queue(voice)

    def let_go(job_ids: Sequence[int], progress: Callable[[int], None], patience_s: float) -> None:
        set_partition("UP")
        wait_until_ended(job_ids, progress, PATIENCE_S + patience_s)

    patch.setattr(story, "run_queue", run_held)
    patch.setattr(story, "wait_until_ended", let_go)


def set_partition(state: str) -> None:
    subprocess.run(["scontrol", "update", "PartitionName=main", f"State={state}"], check=True)


def test_all_jobs_of_both_queues_complete(outcome: Outcome) -> None:
    for queue in (outcome.before, outcome.after):
        assert [attempt.row.state for attempt in queue.attempts] == ["COMPLETED"] * QUEUE_ROUNDS * len(
            FAMILIES
        )


def test_slurm_allocates_less_to_every_family_that_asked_for_too_much(outcome: Outcome) -> None:
    before, after = family_rows(outcome.before.attempts), family_rows(outcome.after.attempts)
    assert {row["family"] for row in after} == set(FAMILIES)
    for attempt in outcome.after.attempts:
        asked, got = attempt.asked_mem_mib, attempt.row.alloc_mem_mib
        assert asked is not None
        assert got is not None
        assert got < asked
    gpus = {a.row.alloc_gpus for a in outcome.after.attempts if a.row.job_name == "train-net"}
    assert gpus == {1}
    assert {a.row.alloc_gpus for a in outcome.before.attempts if a.row.job_name == "train-net"} == {4}
    assert len(before) == len(after)


def test_more_jobs_run_side_by_side_than_before(outcome: Outcome) -> None:
    assert outcome.after.side_by_side > 2 * outcome.before.side_by_side


def test_the_user_was_told(outcome: Outcome) -> None:
    assert "you asked for 8" in outcome.user_line
