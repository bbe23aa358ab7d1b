"""What the past jobs of a family say: whether all that came are known, and what their runs say of the next one."""

import math

import pytest

from models.past.evidence import REST_RUNS, Evidence, past_use, rests_from_s, runs_since_surprise
from models.past.jobs import PastJob
from models.past.kills import KILLED_BUMP
from tests.models.past.test_history import job


@pytest.mark.parametrize(
    ("at_rest", "used_mib", "whole"),
    [
        (True, [900.0] * 8, True),
        (False, [900.0] * 8, False),
        (True, [900.0] * 7, False),
        (True, [900.0] * 8 + [3000.0], False),
        (True, [3000.0] + [900.0] * 8, False),
    ],
    ids=["enough", "not_at_rest", "too_few", "one_beyond_the_request", "the_first_beyond_it"],
)
def test_all_jobs_are_known_only_where_a_family_is_at_rest_and_has_enough(
    at_rest: bool, used_mib: list[float], whole: bool
) -> None:
    jobs = [job(mem_mib=mib) for mib in used_mib]
    past, cores = (past_use(jobs, dimension, 2000.0, at_rest=at_rest) for dimension in ("memory", "cores"))
    assert past is not None
    assert cores is not None
    assert past.whole is whole
    assert not cores.whole


WEEK_S = 604_800


@pytest.mark.parametrize(
    ("runs", "since", "calm", "quiet"),
    [
        ([[900.0] * 4 + [1000.0] * 5], None, 1, 5),
        ([[1000.0] * 9, [900.0] * 9, [1010.0] * 9], None, 3, 27),
        ([[1000.0] * 9, [1200.0] * 9], 1, 1, 1),
        ([[1000.0] * 9, [1200.0] * 9, [700.0, 1100.0], [900.0]], 3, 3, 3),
        ([[1000.0] * 2, [2000.0] * 2, [4000.0] * 9], 1, 1, 1),
        ([[1000.0], [1200.0] * 9, *[[900.0]] * 30], 31, 31, 31),
        ([[1000.0, 900.0], [950.0] * 9], None, 2, 11),
    ],
    ids=["one_run", "alike", "larger", "larger_once", "each_larger", "long_ago", "less_than_the_most_of_one"],
)
def test_where_a_later_run_needed_more_the_next_one_is_judged_by_runs(
    runs: list[list[float]], since: int | None, calm: int, quiet: int
) -> None:
    # The jobs of a run end together, after up to two minutes.
    jobs = [
        job(mem_mib=mib, end_s=WEEK_S * number + 500, wall_s=60 + place)
        for number, run in enumerate(runs)
        for place, mib in enumerate(run)
    ]
    past = past_use(jobs, "memory", None, at_rest=True)
    assert past is not None
    assert (past.runs, past.calm, past.quiet) == (since, calm, quiet)
    # While a run is under way, its own jobs say what it needs.
    during = past_use(jobs, "memory", None)
    assert during is not None
    assert (during.runs, during.calm, during.quiet) == (None, 0, past.streak)
    # Only for memory is it known that the next run may need more.
    wall = past_use(jobs, "wall", None, at_rest=True)
    assert wall is not None
    assert wall.calm == 0


def _run(used_mib: list[float], end_s: int) -> list[PastJob]:
    return [
        job(mem_mib=mib, end_s=end_s + place, wall_s=60, job_id=place + 1)
        for place, mib in enumerate(used_mib)
    ]


FIRST = _run([900.0] * 4 + [1000.0] * 5, 500)


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        ([*FIRST, *_run([1000.0], WEEK_S)], True),
        ([*FIRST, *_run([500.0] * 3, WEEK_S), *_run([400.0], 2 * WEEK_S)], True),
        ([*FIRST, *_run([1001.0], WEEK_S)], False),
        ([*FIRST, *_run([3000.0, 700.0], WEEK_S)], False),
        ([*FIRST[2:], *_run([700.0], WEEK_S)], False),
        ([*FIRST, *_run([700.0], 600)], False),
        ([*FIRST[:4], *_run([3000.0], 505), *FIRST[4:], *_run([700.0], WEEK_S)], False),
    ],
    ids=[
        "no_more",
        "two_runs",
        "more",
        "beyond_the_request",
        "too_few",
        "the_same_run",
        "one_beyond_it_before",
    ],
)
def test_the_past_before_the_run_under_way_is_kept_as_long_as_nothing_needs_more(
    jobs: list[PastJob], told: bool
) -> None:
    past = past_use(jobs, "memory", 2000.0)
    assert past is not None
    assert (past.before is not None) is told
    if told:
        last_began_s = jobs[-1].end_s - jobs[-1].wall_s
        earlier = [one for one in jobs if one.end_s <= last_began_s]
        assert past.before == past_use(earlier, "memory", 2000.0, at_rest=True)
    for other in (past_use(jobs, "memory", 2000.0, at_rest=True), past_use(jobs, "cores", None)):
        assert other is not None
        assert other.before is None


def test_the_highest_quarter_of_many_jobs_at_rest_tells_how_far_apart_they_are() -> None:
    used_mib = [100.0] * 14 + [200.0, 400.0, 400.0, 400.0, 400.0, 800.0]
    many, fewer = (
        past_use(_run(used, 500), "memory", None, at_rest=True) for used in (used_mib, used_mib[1:])
    )
    assert many is not None
    assert fewer is not None
    assert many.top_excess == pytest.approx(math.log(2) * 6 / 5)
    assert fewer.top_excess is None
    under_way = past_use(_run(used_mib, 500), "memory", None)
    assert under_way is not None
    assert under_way.top_excess is None


def test_memory_that_was_sampled_too_early_may_raise_but_is_no_evidence() -> None:
    early = job(mem_mib=100.0, mem_short=True)
    past = past_use([job(mem_mib=500.0), early, early, job(mem_mib=900.0, mem_short=True)], "memory")
    assert past is not None
    assert (past.needed, past.complete) == ((500.0, 900.0), 1)
    # Its wall time and its busy cores are known all the same.
    cores = past_use([early, early], "cores")
    assert cores is not None
    assert cores.complete == 2
    seldom = job(gpu_short=True)
    wall = past_use([seldom, seldom], "wall")
    assert wall is not None
    assert wall.complete == 2


def test_a_job_cut_short_counts_where_it_shows_more_than_all_before() -> None:
    cut = [job(complete=False, cores_per_task=cores) for cores in (0.5, 0.5, 0.7, 0.6)]
    past = past_use(cut, "cores")
    assert past is not None
    assert (past.needed, past.complete) == ((0.5, 0.7), 0)


def test_a_job_killed_for_memory_needed_more_memory_and_nothing_else() -> None:
    jobs = [job(mem_mib=900.0), job(mem_mib=500.0, complete=False, mem_at_least=True, wall_s=100)]
    past, wall = past_use(jobs, "memory"), past_use(jobs[1:], "wall")
    assert past is not None
    assert wall is not None
    assert (past.needed, past.complete) == ((900.0, 500 * KILLED_BUMP), 2)
    assert (wall.needed, wall.complete) == ((100.0,), 0)


def test_the_requested_memory_bounds_memory_alone() -> None:
    past = past_use([job(wall_s=9000)], "wall", 2000.0)
    assert past is not None
    assert past.needed == (9000.0,)


def test_the_median_is_the_likely_need_in_whatever_order_jobs_came() -> None:
    past = past_use([job(mem_mib=mib) for mib in (300.0, 100.0, 200.0)], "memory")
    assert past is not None
    assert (past.likely, past.median_log) == (200.0, math.log(200.0))


def test_a_familys_weight_is_what_its_mean_job_holds_relative_to_the_sites() -> None:
    jobs = [job(asked_mem_mib=mib, wall_s=10) for mib in (2000, 4000)]
    evidence = Evidence(("user+name", "alice", "fit"), jobs, {"memory": lambda own: own / 3})
    assert evidence.weight("memory") == pytest.approx(3.0)
    assert evidence.weight("wall") == 1.0


def test_fewer_than_eight_jobs_never_rest() -> None:
    jobs = [job(end_s=500 + place, wall_s=60) for place in range(8)]
    assert rests_from_s(jobs) == 447 + REST_RUNS * 60
    assert rests_from_s(jobs[:7]) == float("inf")


def test_a_job_that_began_while_a_long_one_ran_belongs_to_the_same_run() -> None:
    # In the order of their ends. The long job began before the other two, and is known last.
    short, later, long = (
        job(end_s=500 + end_s, wall_s=wall_s) for end_s, wall_s in ((51, 1), (201, 1), (300, 300))
    )
    assert runs_since_surprise((short, later, long), (1.0, 2.0, 3.0)) == (1, 1)
    assert runs_since_surprise((short, later), (1.0, 2.0)) == (1, 2)
