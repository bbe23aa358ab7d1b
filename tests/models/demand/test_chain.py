"""A whole prediction: history, growth, margin, evidence."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.demand.chain import (
    SETTLED_JOBS,
    SIZED,
    Estimator,
    Growth,
    Sight,
    demand_chain,
    gpu_chain,
    stakes_of,
)
from models.demand.prediction import ChainSettings, Predictor
from models.demand.threads import without_excess
from models.past.attempts import past_job, request_of
from models.past.evidence import MOST_WORKED_OUT, Evidence, past_use
from models.past.history import Habit, History
from models.past.jobs import LEARNED, Learned, PastJob
from models.past.kills import KILLED_BUMP
from tests.builders import attempt, request

KNOWN = request_of(attempt())


def job(**changes: Any) -> PastJob:
    return msgspec.structs.replace(past_job(attempt()), **changes)


def sight(*jobs: PastJob) -> Sight:
    return Sight(KNOWN, Evidence(("user+name", "alice", "fit"), jobs), Habit(math.nan, math.nan))


def held_by_site(share: float) -> Sight:
    """Two jobs of a family whose mean job holds 1 ÷ `share` of what the site's does."""
    jobs = (job(mem_mib=100.0), job(mem_mib=200.0))
    uses = {dimension: past_use(jobs, dimension) for dimension in LEARNED}
    held = {dimension: use.held * share for dimension, use in uses.items() if use is not None}
    site_held = {dimension: lambda _, site=site: site for dimension, site in held.items()}
    return Sight(KNOWN, Evidence(("user+name", "alice", "fit"), jobs, site_held), Habit(math.nan, math.nan))


MEMORY = st.floats(1, 1e6)


BOUND = 0.01


def chain(
    dimension: Learned, growth: Growth | None = None, margin: float = 0.0, enough: int = 1
) -> Estimator:
    return demand_chain(dimension, growth, margin, enough, BOUND)


def settled(count: int = SETTLED_JOBS) -> list[PastJob]:
    """Jobs of a family that has long had no surprise, but whose needs are spread."""
    return [job(mem_mib=500.0 * share) for share in (1.0, *(0.5 + n / (2 * count) for n in range(count - 1)))]


def test_of_what_is_granted_a_heavy_family_goes_further_below_its_request() -> None:
    for dimension in LEARNED:
        stakes = [
            stakes_of(one, use, dimension, BOUND)
            for one in (held_by_site(16.0), held_by_site(1.0), held_by_site(1 / 16))
            if (use := one.evidence.use(dimension)) is not None
        ]
        assert [one.haste for one in stakes] == (
            [0.5, 1.0, 2.0] if dimension in SIZED else [1.0] * len(stakes)
        )
    light, heavy = (chain("memory")(held_by_site(share)) for share in (1.0, 1 / 16))
    assert light is not None
    assert heavy is not None
    assert 200.0 < heavy.upper < light.upper < (KNOWN.mem_mib or 0)


@given(
    st.lists(MEMORY, min_size=1, max_size=40), st.floats(0, 2), st.floats(-3, 3), st.none() | st.floats(-3, 3)
)
def test_memory_is_never_predicted_below_what_was_once_used(
    used: list[float], margin: float, log_growth: float, offset: float | None
) -> None:
    growth = Growth(lambda _: log_growth, offset)
    estimate = chain("memory", growth, margin)(sight(*(job(mem_mib=mib) for mib in used)))
    assert estimate is not None
    assert estimate.upper >= max(used) * (1 + margin) * (1 - 1e-9)
    assert min(used) <= estimate.likely <= max(used)
    assert estimate.jobs == len(used)


def told_by_all(features: Sequence[float]) -> float:
    """Return a growth that depends on every feature."""
    return sum(place * value for place, value in enumerate(features, 1) if not math.isnan(value)) / 1e4


@pytest.mark.parametrize("jobs", [settled()[:5], settled()], ids=["few", "settled"])
@pytest.mark.parametrize(
    "changes",
    [
        {"user": "bob"}, {"num_tasks": 2, "cpus_per_task": 4}, {"cpus_per_task": 3}, {"mem_per_node_mib": 900},
        {"gpus_per_node": 2}, {"wall_s": 60}, {},
    ],
    ids=str,
)  # fmt: skip
def test_a_cached_estimate_equals_the_one_that_would_be_made_anew(
    changes: dict[str, Any], jobs: list[PastJob]
) -> None:
    one, other = KNOWN, msgspec.structs.replace(KNOWN, **changes)
    habit, other_habit = Habit(-1.0, -1.0), Habit(-1.0, -1.0) if changes else Habit(-2.0, -2.0)
    growth, evidence = Growth(told_by_all, 0.0, frozenset({"bob"})), sight(*jobs).evidence
    for dimension in ("memory", "cores", "wall"):
        estimate = chain(dimension, growth)
        before = estimate(Sight(one, evidence, habit))
        fresh = estimate(Sight(other, sight(*jobs).evidence, other_habit))
        assert estimate(Sight(other, evidence, other_habit)) == fresh
        assert estimate(Sight(one, evidence, habit)) == before
        assert fresh != before or dimension != "memory" or len(jobs) < SETTLED_JOBS, "a growth model sees it"


def test_cached_estimates_are_bounded() -> None:
    seen, estimate = sight(*settled()), chain("memory", Growth(lambda _: 0.0, 0.0))
    for wall_s in range(3 * MOST_WORKED_OUT):
        estimate(Sight(msgspec.structs.replace(KNOWN, wall_s=wall_s), seen.evidence, seen.user_habit))
    assert 0 < len(seen.evidence.worked_out) <= MOST_WORKED_OUT


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=12))
def test_gpus_are_never_predicted_below_what_was_once_busy(used: list[tuple[int, bool]]) -> None:
    estimate = gpu_chain(0)(sight(*(gpu_job(gpus, complete=complete) for gpus, complete in used)))
    assert estimate is not None
    assert estimate.upper == max(1, *(gpus for gpus, _ in used))
    assert estimate.jobs <= sum(complete for _, complete in used)


@pytest.mark.parametrize(("quality", "is_short"), [("sampled", False), ("short", True), ("censored", True)])
def test_gpus_that_were_metered_only_in_part_show_no_need(quality: str, is_short: bool) -> None:
    one = attempt(gpus=1, alloc_gpus=4)
    use = msgspec.structs.replace(one.use, gpu_quality=quality)
    assert past_job(msgspec.structs.replace(one, use=use)).gpu_short == is_short


def gpu_job(gpus: int, given: int = 9, **changes: Any) -> PastJob:
    return job(gpus=gpus, asked_gpus=9, given_gpus=given, gpu_source="nvml", **changes)


@pytest.mark.parametrize(
    ("jobs", "evidence"),
    [
        ([gpu_job(1)] * 5, 5),
        ([gpu_job(0), gpu_job(1)], 2),  # a job that used none gets one all the same
        ([gpu_job(1)] * 5 + [gpu_job(2)], 1),  # after a surprise, evidence starts again
        ([gpu_job(1)] * 5 + [gpu_job(2, complete=False)], 0),
        ([gpu_job(1)] * 3 + [gpu_job(1, complete=False), gpu_job(1, gpu_short=True)], 3),
        ([gpu_job(1, given=1)] * 5, 0),  # cut to one GPU, they cannot show that two are not needed
        ([gpu_job(1), *[gpu_job(1, given=1)] * 4], 5),
        ([job(gpus=2, asked_gpus=2)] * 5, 0),
        ([job(gpus=1, asked_gpus=2)] * 5, 5),
    ],
)
def test_evidence_of_gpus_are_jobs_since_the_last_surprise_if_one_of_them_had_more(
    jobs: list[PastJob], evidence: int
) -> None:
    estimate = gpu_chain(0)(sight(*jobs))
    assert estimate is not None
    assert estimate.jobs == evidence


@given(MEMORY, st.integers(1, 100), st.integers(1, 100), st.floats(0, 1))
def test_the_room_shrinks_as_evidence_grows(used: float, one: int, other: int, margin: float) -> None:
    few, many = (
        chain("memory", margin=margin)(sight(*[job(mem_mib=used)] * count)) for count in sorted((one, other))
    )
    assert few is not None
    assert many is not None
    assert few.upper * (1 + 1e-9) >= many.upper >= used * (1 + margin) * (1 - 1e-9)


def upper(estimator: Estimator, jobs: list[PastJob]) -> float:
    estimate = estimator(sight(*jobs))
    assert estimate is not None
    return estimate.upper


def test_a_growth_model_lowers_what_a_settled_family_is_granted() -> None:
    jobs = settled()
    alone = upper(chain("memory"), jobs)
    assert alone > 500 * 1.05
    assert upper(chain("memory", Growth(lambda _: math.log(1.01), math.log(1.02))), jobs) == pytest.approx(
        500 * 1.01 * 1.02
    )
    assert upper(chain("memory", Growth(lambda _: 5.0, 0.0)), jobs) == alone


def test_a_growth_model_that_is_not_calibrated_is_not_used() -> None:
    assert upper(chain("memory", Growth(lambda _: 0.0, None)), settled()) == upper(chain("memory"), settled())


@pytest.mark.parametrize("jobs", [settled(count=SETTLED_JOBS - 1), [*settled(), job(mem_mib=900.0)]])
def test_a_family_that_is_not_settled_is_predicted_from_its_own_past_alone(jobs: list[PastJob]) -> None:
    assert upper(chain("memory", Growth(lambda _: 0.0, 0.0)), jobs) == upper(chain("memory"), jobs)


def test_where_runs_surprise_the_growth_model_is_not_used() -> None:
    runs = [
        job(mem_mib=mib, end_s=end_s) for mib, end_s in ((500.0, 1000), (600.0, 10**6)) for _ in range(20)
    ]
    at_rest = Sight(
        KNOWN, Evidence(("user+name", "alice", "fit"), runs, at_rest=True), Habit(math.nan, math.nan)
    )
    lowering = Growth(lambda _: 0.0, 0.0)
    alone, asked = chain("memory")(at_rest), chain("memory", lowering)(at_rest)
    assert alone is not None
    assert alone == asked
    # The room is as much again as the later run needed more, and beyond.
    assert alone.upper > 600 * 1.2
    assert upper(chain("memory", lowering), runs) == pytest.approx(600)


def with_cores(*cores: float, asked: int = 8, given: int | None = None) -> list[PastJob]:
    return [job(cores_per_task=each, asked_cpus=asked, given_cpus=given) for each in cores]


@pytest.mark.parametrize(
    ("jobs", "cpus"),
    [
        (with_cores(0.98, 0.97, 0.99), 1),
        (with_cores(0.1, 0.97, 0.99), 1),  # one of three waited
        (with_cores(0.1, 0.2, 0.99), None),  # a mean that may hide a peak
        (with_cores(0.98, 0.97), None),
        (with_cores(0.98, 0.97, 1.01), None),
        (with_cores(1.98, 1.97, 1.99), None),  # a whole number of several threads is a coincidence
        (with_cores(0.98, 0.97, 0.99, given=1), None),  # a job cut to one CPU shows no more
        (with_cores(0.98, 0.97, 0.99, asked=1), None),
        (with_cores(0.98, 0.97, 0.99, given=2, asked=1), 1),
    ],
)
def test_a_family_of_one_thread_is_granted_one_cpu(jobs: list[PastJob], cpus: int | None) -> None:
    bound = upper(chain("cores", margin=0.01), jobs)
    assert bound == cpus if cpus else bound > 1.02 * max(one.cores_per_task or 0 for one in jobs)


def test_the_little_that_an_idle_core_does_is_no_spread() -> None:
    sleep = with_cores(*[0.016] * 13, 0.06)
    assert upper(chain("cores"), sleep) < 1


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=60), st.floats(0, 0.5))
def test_cores_are_never_predicted_below_what_was_once_used(used: list[float], margin: float) -> None:
    bound = upper(chain("cores", margin=margin), with_cores(*used))
    assert bound >= max(used)
    # A margin that a site sets is kept.
    assert bound >= min(1.0, max(used)) * (1 + margin) / 1.0203


@given(st.floats(0.01, 100), st.floats(1, 3))
def test_what_hardly_exceeds_a_whole_number_is_cut_off(highest: float, times: float) -> None:
    bound = cut_off(highest * times, with_cores(*[highest] * 3, asked=1000))
    assert highest * (1 - 1e-9) <= bound <= highest * times
    assert bound == highest * times or (
        bound == math.floor(highest * times) and highest * times < bound * 1.0203
    )


def cut_off(bound: float, jobs: list[PastJob]) -> float:
    past = past_use(jobs, "cores")
    assert past is not None
    return without_excess(bound, past, jobs)


def test_a_cut_to_a_whole_number_does_not_hold_a_family_there() -> None:
    assert cut_off(7.05, with_cores(6.9, 6.8, 6.9, 7.0, 7.0)) == 7
    assert cut_off(7.05, with_cores(6.9, 6.8, 6.9, 7.0, 7.0, given=7)) == 7.05


@given(st.lists(MEMORY, min_size=1, max_size=40))
def test_gpu_memory_is_never_predicted_below_what_was_once_used(used: list[float]) -> None:
    jobs = [job(gpu_mem_mib=mib) for mib in used]
    assert upper(chain("gpu_mem", margin=0.01), jobs) >= max(used) * 1.01 * (1 - 1e-9)


def test_gpu_memory_that_was_sampled_once_may_raise_but_is_no_evidence() -> None:
    short = job(gpu_mem_mib=900.0, gpu_short=True)
    assert chain("gpu_mem")(sight(short)) is None
    assert upper(chain("gpu_mem"), [job(gpu_mem_mib=500.0), short]) >= 900
    assert chain("gpu_mem")(sight(job())) is None


@pytest.mark.parametrize("dimension", ["memory", "cores", "wall"])
def test_too_little_evidence_gives_no_prediction(dimension: Any) -> None:
    three = chain(dimension, enough=3)
    cut_short = job(complete=False)
    assert three(sight(job(), job(), cut_short)) is None
    assert three(sight(job(), job(), job(), cut_short)) is not None
    assert three(sight()) is None


def test_jobs_without_a_figure_are_no_evidence() -> None:
    assert chain("memory", enough=2)(sight(job(), job(mem_mib=None))) is None
    assert gpu_chain(1)(sight(job(gpus=None))) is None


def test_a_job_killed_for_memory_raises_the_prediction_above_what_it_had() -> None:
    killed = job(mem_mib=512.0, mem_at_least=True, complete=False)
    nine = [job(mem_mib=500.0)] * 9
    assert upper(chain("memory"), [*nine, killed]) >= max(512 * KILLED_BUMP, upper(chain("memory"), nine))


@pytest.mark.parametrize("first_mib", [2000, 8000])
@pytest.mark.parametrize(("times", "is_known"), [(1.5, True), (2, True), (2, False)])
def test_a_job_that_comes_back_with_a_larger_request_after_a_kill_gets_it_even_at_once(
    first_mib: int, times: float, is_known: bool
) -> None:
    """Nextflow's `memory { 4.GB * task.attempt }` requests twice as much within seconds, often with no third try."""
    history = History(100)
    for number in range(30):
        history.add(KNOWN, job(job_id=number + 1, asked_mem_mib=first_mib, mem_mib=100.0))
    predictor = Predictor("m", history, {}, ChainSettings())

    def said(asked_mib: float) -> bool:
        wanted = msgspec.structs.replace(KNOWN, mem_per_node_mib=int(asked_mib))
        return predictor.predict(wanted).memory is not None

    assert said(first_mib)
    if is_known:
        killed = job(job_id=50, asked_mem_mib=first_mib, mem_mib=110.0, mem_at_least=True, complete=False)
        history.join(KNOWN, killed)
    assert said(first_mib)
    assert not said(times * first_mib)
    enough = job(job_id=51, asked_mem_mib=int(times * first_mib), mem_mib=300.0, end_s=later_s(history))
    history.join(KNOWN, enough)
    assert said(times * first_mib)


def later_s(history: History) -> int:
    """Return a second after all that is known."""
    return 1 + max(one.end_s for _, jobs in history.items() for one in jobs)


def test_a_job_that_was_cut_short_may_raise_but_not_lower() -> None:
    base, small, large = (
        chain("memory")(sight(job(mem_mib=500.0), *extra))
        for extra in ((), (job(mem_mib=5.0, complete=False),), (job(mem_mib=900.0, complete=False),))
    )
    assert base is not None
    assert small is not None
    assert large is not None
    assert base.upper == small.upper < large.upper


def predictor(jobs: int, enough: int = 5) -> Predictor:
    history = History(50)
    for _ in range(jobs):
        history.add(KNOWN, job(gpus=1, asked_gpus=4, gpu_source="simulated"))
    return Predictor("m", history, {}, ChainSettings(min_evidence=enough))


def test_a_predictor_says_what_it_rests_on() -> None:
    known = predictor(7)
    prediction = known.predict(KNOWN)
    assert prediction.basis == "7 earlier jobs of alice named fit and the same script"
    assert (prediction.jobs_seen, prediction.gpu_source) == (7, "simulated")
    for estimate in (prediction.memory, prediction.cores, prediction.gpus, known.wall_time(KNOWN)):
        assert estimate is not None


def test_a_predictor_says_nothing_of_jobs_it_does_not_know() -> None:
    unknown = predictor(7).predict(request(user="bob"))
    assert (unknown.memory, unknown.cores, unknown.gpus, unknown.jobs_seen) == (None, None, None, 0)
    few = predictor(4).predict(KNOWN)
    assert (few.memory, few.cores, few.gpus, few.jobs_seen) == (None, None, None, 4)
