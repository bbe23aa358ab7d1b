"""What a run says for or against cutting, by its token, its allocation and its end."""

from typing import Any

import pytest

from accounting.decisions.token import format_token, mark_recovery
from accounting.records import Attempt
from accounting.request import Grant
from models.past.recent import decode_finished, encode_finished, finished
from models.past.trials import Trial, trial_of
from tests.builders import decision, job_row, label_attempt, request, step

ASKED = request(cpus_per_task=8, mem_per_node_mib=8000)
CUT = decision(
    request=ASKED, grant=Grant(cpus_per_task=2, mem_per_node_mib=500), applied=True, reason="resized"
)
LESS_MEMORY = decision(request=ASKED, grant=Grant(mem_per_node_mib=500), applied=True, reason="resized")
LESS_CPUS = decision(request=ASKED, grant=Grant(cpus_per_task=2), applied=True, reason="resized")
NO_MEMORY = request(cpus_per_task=8)
ITS_CPUS = decision(request=NO_MEMORY, grant=Grant(cpus_per_task=2), applied=True, reason="resized")
ASKED_GPUS = request(cpus_per_task=8, mem_per_node_mib=8000, gpus_per_node=4)
OF_GPUS = decision(request=ASKED_GPUS, grant=Grant(mem_per_node_mib=500, gpus_per_node=2), applied=True)
# What Slurm allocates a job of these decisions.
LESS: dict[str, Any] = {"alloc_cpus": 2, "alloc_mem_mib": 500}
WATCHED = decision(request=ASKED, grant=Grant(mem_per_node_mib=500), mode="observe")


def run(state: str, comment: str = "", step_state: str = "COMPLETED", **row: Any) -> Attempt:
    return label_attempt(job_row(state=state, admin_comment=comment, **row), [step(state=step_state)])


@pytest.mark.parametrize(
    ("token", "state", "trial"),
    [
        (CUT, "COMPLETED", Trial(shrunk=True)),
        (CUT, "OUT_OF_MEMORY", Trial(shrunk=True, failed=True, wanted="out_of_memory")),
        (LESS_CPUS, "OUT_OF_MEMORY", Trial(shrunk=True, failed=True)),
        (CUT, "TIMEOUT", Trial(shrunk=True, failed=True, wanted="timeout")),
        (LESS_MEMORY, "TIMEOUT", Trial(shrunk=True, failed=True)),
        (ITS_CPUS, "OUT_OF_MEMORY", Trial(shrunk=True, failed=True, killed_with_fewer_cpus=True)),
        (ITS_CPUS, "TIMEOUT", Trial(shrunk=True, failed=True, wanted="timeout")),
        (ITS_CPUS, "FAILED", Trial(shrunk=True, failed=True)),
        (CUT, "FAILED", Trial(shrunk=True, failed=True)),
        (CUT, "CANCELLED by 1000", None),
        (CUT, "NODE_FAIL", None),
        (WATCHED, "OUT_OF_MEMORY", Trial(failed=True)),
        (WATCHED, "COMPLETED", Trial()),
    ],
)
def test_a_trial_follows_from_the_token_and_the_end_of_the_run(
    token: Any, state: str, trial: Trial | None
) -> None:
    assert trial_of(run(state, format_token(token), **LESS)) == trial


@pytest.mark.parametrize(
    ("token", "row", "trial"),
    [
        (CUT, {}, Trial(failed=True)),
        (CUT, {"alloc_cpus": 2}, Trial(shrunk=True, failed=True, memory_whole=True)),
        (CUT, {"alloc_mem_mib": 500}, Trial(shrunk=True, failed=True, wanted="out_of_memory")),
        # Whole cores were allocated, still fewer than requested: nothing is back at what the user wants.
        (
            CUT,
            {"alloc_cpus": 2, "alloc_mem_mib": 501},
            Trial(shrunk=True, failed=True, wanted="out_of_memory"),
        ),
        # The user set memory still lower than we had: that was too little.
        (CUT, {"alloc_cpus": 2, "alloc_mem_mib": 499}, Trial(shrunk=True, failed=True)),
        # Slurm counts no memory here.
        (CUT, {"alloc_mem_mib": None}, Trial(shrunk=True, failed=True, wanted="out_of_memory")),
        (ITS_CPUS, {}, Trial(failed=True)),
        (OF_GPUS, {}, Trial(shrunk=True, failed=True, memory_whole=True)),
    ],
)
def test_what_the_user_set_back_before_the_start_was_not_cut(
    token: Any, row: dict[str, Any], trial: Trial
) -> None:
    assert trial_of(run("OUT_OF_MEMORY", format_token(token), **row)) == trial


def test_a_job_without_a_token_was_not_cut() -> None:
    assert trial_of(run("FAILED")) == Trial(failed=True)
    assert trial_of(run("COMPLETED")) == Trial()


def test_a_grant_that_the_hook_refused_cut_nothing() -> None:
    refused = format_token(CUT).replace("granted=", "would=") + ";refused=misfit"
    assert trial_of(run("COMPLETED", refused)) == Trial()


def test_a_step_killed_for_memory_counts_whatever_the_state_of_its_job() -> None:
    for state in ("FAILED", "REQUEUED", "COMPLETED"):
        killed = run(state, format_token(CUT), "OUT_OF_MEMORY", **LESS)
        assert trial_of(killed) == Trial(shrunk=True, failed=True, wanted="out_of_memory")


def test_the_run_after_a_recovery_says_nothing_and_the_one_before_it_does() -> None:
    marked = mark_recovery(format_token(CUT), "out_of_memory", 0)
    assert trial_of(run("COMPLETED", marked)) is None
    before = run("OUT_OF_MEMORY", marked, alloc_mem_mib=500, alloc_cpus=2)
    assert trial_of(before) == Trial(shrunk=True, failed=True, wanted="out_of_memory")


def test_what_a_client_lowered_shows_in_what_slurm_allocated() -> None:
    token = format_token(decision(request=ASKED, reason="decided-for-its-client", via="abcdefabcdef"))
    whole = run("OUT_OF_MEMORY", token)
    assert trial_of(whole) == Trial(failed=True)
    lowered = run("OUT_OF_MEMORY", token, alloc_mem_mib=500)
    assert trial_of(lowered) == Trial(shrunk=True, failed=True, wanted="out_of_memory")
    token = format_token(decision(request=NO_MEMORY, reason="decided-for-its-client", via="abcdefabcdef"))
    assert trial_of(run("OUT_OF_MEMORY", token)) == Trial(failed=True)
    fewer = Trial(shrunk=True, failed=True, killed_with_fewer_cpus=True)
    assert trial_of(run("OUT_OF_MEMORY", token, alloc_cpus=2)) == fewer


def test_a_token_without_the_request_says_nothing_about_what_was_wanting() -> None:
    token = format_token(CUT).replace("asked=", "other=")
    for state in ("OUT_OF_MEMORY", "TIMEOUT"):
        assert trial_of(run(state, token)) == Trial(shrunk=True, failed=True)


def test_a_job_that_never_ran_says_nothing() -> None:
    failed = label_attempt(job_row(state="FAILED", elapsed_s=0, start_s=0), [])
    assert trial_of(failed) is None


def test_the_feed_carries_the_trial_and_lines_of_earlier_releases_carry_none() -> None:
    one = finished(run("OUT_OF_MEMORY", format_token(CUT)), 1.0)
    assert one is not None
    line = encode_finished(one)
    assert decode_finished(line) == one
    before = decode_finished(line.replace(b'"trial"', b'"unknown"'))
    assert before is not None
    assert before.trial is None
