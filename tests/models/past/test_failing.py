"""Which jobs failed one after the other since they had less than they asked for."""

from typing import Any

import pytest

from models.past.failing import FAILS_IN_A_ROW, failing
from models.past.jobs import PastJob
from models.past.kills import SPARED_A_KILL
from tests.models.demand.cut_jobs import job

CUT: dict[str, Any] = {"asked_mem_mib": 8000, "given_mem_mib": 600}
WHOLE: dict[str, Any] = {"asked_mem_mib": 8000, "given_mem_mib": 8000, "given_cpus": 8}
FAILED: dict[str, Any] = {"complete": False, "failed": True}
FAILS = [CUT | FAILED] * FAILS_IN_A_ROW
KILLED = CUT | FAILED | {"mem_at_least": True}


def one_after_the_other(*ends: dict[str, Any]) -> list[PastJob]:
    return [job(**{"end_s": 100 * n, "wall_s": 50, "job_id": n, **end}) for n, end in enumerate(ends, 1)]


@pytest.mark.parametrize(
    ("ends", "count"),
    [
        (FAILS[1:], 0),
        (FAILS, FAILS_IN_A_ROW),
        ([*FAILS, FAILS[0]], FAILS_IN_A_ROW + 1),
        ([*FAILS[1:], CUT, FAILS[0]], 0),
        ([*FAILS, WHOLE], FAILS_IN_A_ROW),
        ([*FAILS, WHOLE, CUT], FAILS_IN_A_ROW),
        ([*FAILS[1:], WHOLE, FAILS[0]], FAILS_IN_A_ROW),
        ([*FAILS, WHOLE | FAILED], 0),
        ([*FAILS, WHOLE | {"wall_s": 250}, CUT], 0),
        ([*FAILS, WHOLE | {"wall_at_least": True}], FAILS_IN_A_ROW),
        ([CUT | {"complete": False}] * FAILS_IN_A_ROW, 0),
        ([end | {"mem_at_least": True} for end in FAILS], 0),
        ([WHOLE | FAILED] * FAILS_IN_A_ROW, 0),
        ([*[CUT] * (SPARED_A_KILL - 1), *FAILS, WHOLE], FAILS_IN_A_ROW),
        ([*[CUT] * SPARED_A_KILL, *FAILS * 6, WHOLE], 0),
        ([*FAILS, KILLED, WHOLE], FAILS_IN_A_ROW),
        ([*[CUT] * SPARED_A_KILL, *FAILS], FAILS_IN_A_ROW),
        ([*[CUT | {"given_mem_mib": 700}] * SPARED_A_KILL, *FAILS, WHOLE], FAILS_IN_A_ROW),
        ([*[CUT | {"given_cpus": 4}] * SPARED_A_KILL, *FAILS, WHOLE], FAILS_IN_A_ROW),
        ([*[CUT | {"asked_mem_mib": 600, "asked_cpus": 2}] * SPARED_A_KILL, *FAILS, WHOLE], FAILS_IN_A_ROW),
    ],
    ids=[
        "two", "three", "four", "one_that_was_cut_ends_well", "one_with_all_ends_well", "then_one_that_was_cut",
        "with_all_in_between", "with_all_fails_too", "with_all_that_began_before", "with_all_runs_out_of_time",
        "cancelled", "killed", "not_cut", "hardly_any_spared", "spared", "one_was_killed",
        "spared_but_still_failing",
        "spared_with_more_memory", "spared_with_more_cpus", "not_cut_and_not_failed",
    ],
)  # fmt: skip
def test_three_cut_jobs_that_fail_in_a_row_count_unless_one_with_all_fails_too(
    ends: list[dict[str, Any]], count: int
) -> None:
    told = failing(one_after_the_other(*ends))
    assert len(told) == count
    assert all(one.failed and one.given_mem_mib == 600 for one in told)


@pytest.mark.parametrize("less", [{"given_cpus": 2}, {"asked_gpus": 4, "given_gpus": 1}])
def test_fewer_cpus_or_gpus_are_a_cut_like_less_memory(less: dict[str, Any]) -> None:
    fails = one_after_the_other(*[WHOLE | less | FAILED] * FAILS_IN_A_ROW)
    assert failing(fails) == fails
