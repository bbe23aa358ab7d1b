"""The promotion gate on ended jobs: which jobs judge which model, and what each model has learned by then."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from accounting.errors import UnreadModelError
from accounting.records import Attempt
from accounting.request import JobRequest
from models.demand.prediction import ChainSettings, Predictor
from models.judging.outcomes import Sizing, to_judge
from models.judging.promotion import (
    CURRENT,
    Champion,
    Comparison,
    Verdict,
    gate,
    refused_unread,
    slice_of,
)
from models.past.attempts import request_of
from models.past.columns import columns_of_attempts
from models.training.training import train
from tests.builders import T0, attempt

SETTINGS = ChainSettings()
SHARE = SETTINGS.most_failures


def series(*mem_mib: float, start: int = 0) -> list[Attempt]:
    """One job of ten minutes every 1000 s, each requesting 4096 MiB."""
    return [
        attempt(
            job_id=number,
            submit_s=T0 + 1000 * number,
            start_s=T0 + 1000 * number,
            elapsed_s=600,
            req_mem_mib=4096,
            mem_mib=mib,
        )
        for number, mib in enumerate(mem_mib, start)
    ]


def killed(number: int, bound_mib: int, asked_mib: int = 4096, **changes: Any) -> Attempt:
    """A job of that series that was killed for memory with `bound_mib` allocated."""
    return attempt(
        **{
            "job_id": number,
            "submit_s": T0 + 1000 * number,
            "start_s": T0 + 1000 * number,
            "elapsed_s": 600,
            "state": "OUT_OF_MEMORY",
            "req_mem_mib": asked_mib,
            "alloc_mem_mib": bound_mib,
            "mem_mib": bound_mib,
            **changes,
        }
    )


def by_prediction(predictor: Predictor) -> Sizing:
    def sizing(request: JobRequest) -> JobRequest:
        memory = predictor.predict(request).memory
        asked = request.mem_per_node_mib or 0
        return (
            request
            if memory is None
            else msgspec.structs.replace(request, mem_per_node_mib=min(asked, math.ceil(memory.upper)))
        )

    return sizing


def champion_of(attempts: list[Attempt]) -> Champion:
    trained = train(attempts, 50)
    predictor = Predictor("old", trained.history, trained.growth(SHARE), SETTINGS)
    return Champion(predictor, max(attempt.row.end_s for attempt in attempts))


def together(attempts: list[Attempt], count: int) -> list[Attempt]:
    """Give the last `count` jobs the same submit time, so that none of them is known to another."""
    first = attempts[-count].row.submit_s
    at_once = (
        msgspec.structs.replace(one.row, submit_s=first, start_s=first, end_s=first + one.row.elapsed_s)
        for one in attempts[-count:]
    )
    return [
        *attempts[:-count],
        *(msgspec.structs.replace(one, row=row) for one, row in zip(attempts[-count:], at_once, strict=True)),
    ]


def gated(attempts: list[Attempt], champion: Champion | None) -> Verdict:
    return gate(columns_of_attempts(attempts), SETTINGS, 50, by_prediction, champion)


def test_neither_model_has_seen_the_jobs_it_is_judged_on() -> None:
    known = series(*[200.0 + number % 5 for number in range(100)])
    later = series(*[200.0] * 120, start=100)
    champion = champion_of(known)
    past = columns_of_attempts([*known, *later])
    part = slice_of(past, champion)
    before, after = past.part(part.before), past.part(part.after)
    assert len(after) == 60
    assert min(after.submit_s) == part.split_s > champion.last_end_s
    assert max(before.end_s) < part.split_s
    assert len(before) == 160
    assert not slice_of(columns_of_attempts(known), champion).after.any()
    assert slice_of(columns_of_attempts(known), None).after.sum() == 20


def test_the_same_jobs_decide_the_slice_and_are_judged() -> None:
    ends = [("COMPLETED", 8000), ("OUT_OF_MEMORY", 4000), ("OUT_OF_MEMORY", 8000), ("CANCELLED by 5", 8000)]
    ended = [
        attempt(job_id=number, state=state, req_mem_mib=8000, alloc_mem_mib=had_mib)
        for number, (state, had_mib) in enumerate(ends)
    ]
    past = columns_of_attempts(ended)
    assert to_judge(past, 0).tolist() == [0, 1]
    assert slice_of(past, None).after.tolist() == [True, True, False, False]


def test_a_new_model_that_grants_too_little_is_refused() -> None:
    known = series(*[200.0 + number % 5 for number in range(240)])
    champion, past = champion_of(known[:100]), columns_of_attempts(known)

    def sizing(predictor: Predictor) -> Sizing:
        least = by_prediction(predictor)
        if predictor is champion.predictor:
            return least

        def halved(request: JobRequest) -> JobRequest:
            return msgspec.structs.replace(request, mem_per_node_mib=(least(request).mem_mib or 2) // 2)

        return halved

    found = gate(past, SETTINGS, 50, sizing, champion)
    assert not found.passed
    assert any(reason.startswith("memory: fails") for reason in found.reasons)
    assert gate(past, SETTINGS, 50, by_prediction, champion_of(known[:100])).passed


def test_wrong_figures_mislead_both_models_until_the_first_right_one() -> None:
    """A meter shows too little for a while: the current model has learned from that, too."""
    known = series(*[200.0 + number % 5 for number in range(100)])
    bad = series(*[5.0] * 70, *[200.0 + number % 5 for number in range(70)], start=100)
    found = gated([*known, *bad], champion_of(known))
    assert found.passed, found.reasons
    assert (memory_of(found).old.failed, memory_of(found).new.failed) == (1, 1)


def test_both_models_learn_from_jobs_as_they_end() -> None:
    """Neither has seen the need grow before the judged half: each fails the first job, and no other."""
    known = series(*[200.0 + number % 5 for number in range(170)])
    grown = series(*[600.0 + number % 5 for number in range(70)], start=170)
    found = memory_of(gated([*known, *grown], champion_of(known[:100])))
    assert (found.old.failed, found.new.failed) == (1, 1)
    assert (found.old.jobs, found.new.jobs) == (70, 70)


def test_a_model_that_knows_newer_work_passes() -> None:
    known = series(*[2000.0] * 60)
    later = series(*[150.0 + number % 7 for number in range(200)], start=60)
    found = gated(together([*known, *later], 100), champion_of(known))
    assert found.passed, found.reasons
    memory = memory_of(found)
    assert memory.new.saved_share == pytest.approx(memory.old.saved_share, abs=0.02), "both have heard of it"
    assert memory.new.saved_share > 0.9


def test_the_current_model_stays_where_nothing_is_new() -> None:
    known = series(*[200.0] * 60)
    found = gated(known, champion_of(known))
    assert (found.passed, found.judged) == (False, 0)


def memory_of(found: Verdict) -> Comparison:
    (memory,) = (one for one in found.comparisons if one.dimension == "memory")
    return memory


def cut_to_kill(kill: Callable[[int, int], Attempt]) -> tuple[list[Attempt], Champion, int]:
    """Jobs every third of which is killed by the current model's cut, that model, and what it grants them, in MiB."""
    known = series(*[1500.0 + number % 5 for number in range(100)])
    champion = champion_of(known)
    grant_mib = by_prediction(champion.predictor)(request_of(known[0])).mem_mib or 0
    later = series(*[1500.0 + number % 5 for number in range(200)], start=100)
    for place in range(0, 200, 3):
        later[place] = kill(100 + place, grant_mib)
    return together([*known, *later], 100), champion, grant_mib


def test_a_model_that_has_learned_of_kills_grants_more() -> None:
    """Both models have; how the killed jobs would have fared under either grant is not known."""
    attempts, champion, grant_mib = cut_to_kill(killed)
    found = gated(attempts, champion)
    assert found.passed, found.reasons
    assert found.judged == 100
    old, new = memory_of(found).old, memory_of(found).new
    assert 1500 < grant_mib < 1600
    assert (old.jobs, old.failed) == (new.jobs, new.failed) == (67, 0)
    assert new.requested == pytest.approx(67 * 4 * 600 / 3600)
    assert new.saved_share < 1 - grant_mib / 4096


def test_a_job_killed_with_all_that_it_requested_is_no_models_fault() -> None:
    attempts, champion, grant_mib = cut_to_kill(lambda number, _: killed(number, 4096))
    found = gated(attempts, champion)
    old, new = memory_of(found).old, memory_of(found).new
    assert grant_mib < 4096
    assert (old.jobs, new.jobs) == (found.judged, found.judged)
    assert (old.failed, new.failed) == (0, 0)


def test_a_new_model_that_would_kill_again_what_was_killed_is_refused() -> None:
    """Against users' requests, too: nobody knows whether those would have been enough, but this grant is not."""
    attempts = series(*[1500.0 + number % 5 for number in range(160)])
    attempts[130::2] = [killed(number, 3000) for number in range(130, 160, 2)]
    found = gated(together(attempts, 32), None)
    old, new = memory_of(found).old, memory_of(found).new
    assert not found.passed
    assert (old.jobs, old.failed) == (17, 0)
    assert (new.jobs, new.failed) == (32, 15)


def test_the_current_model_stays_where_all_jobs_were_killed_below_what_both_grant() -> None:
    known = series(*[1500.0 + number % 5 for number in range(100)])
    champion = champion_of(known)
    grant_mib = by_prediction(champion.predictor)(request_of(known[0])).mem_mib or 0
    attempts = [*known, *(killed(number, grant_mib) for number in range(100, 220))]
    found = gated(together(attempts, 60), champion)
    assert (found.passed, found.judged, found.comparisons) == (False, 60, ())
    assert "is the use known" in found.reasons[0]


def all_at_once(count: int, start: int = 0, at_s: int = T0) -> list[Attempt]:
    return [
        attempt(job_id=number, submit_s=at_s, start_s=at_s + 10, elapsed_s=600)
        for number in range(start, start + count)
    ]


def test_jobs_submitted_before_any_had_ended_are_not_called_unknown() -> None:
    """All were submitted in one second, so nothing could be learned before them; their use is known all the same."""
    first = gated(all_at_once(120), None)
    assert (first.passed, first.judged) == (True, 120)
    assert "is the use known" not in first.reasons[0]
    assert first.reasons[0].startswith("no job had ended before the 120 jobs to judge on were submitted")
    assert "a first model is accepted without; run `rightsizer train` again when" in first.reasons[0]
    # The store holds nothing of what the current model learned from.
    later = gated(all_at_once(120, start=500, at_s=T0 + 10**6), champion_of(series(*[200.0] * 60)))
    assert (later.passed, later.judged) == (False, 120)
    assert "nothing to learn from, and the current model stays; run `rightsizer train`" in later.reasons[0]


def test_a_model_file_that_cannot_be_read_now_changes_nothing() -> None:
    found = refused_unread(UnreadModelError("the model file m cannot be read now: Input/output error"))
    assert (found.passed, found.opponent, found.judged) == (False, CURRENT, 0)
    assert "Input/output error; then run `rightsizer train` again" in found.reasons[0]


@pytest.mark.parametrize("attempts", [[], series(200.0), series(*[200.0] * 4)])
def test_nothing_speaks_against_a_first_model_of_very_few_jobs(attempts: list[Attempt]) -> None:
    assert gated(attempts, None).passed
