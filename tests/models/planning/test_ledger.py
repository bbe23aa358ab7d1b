"""Limits of what jobs may have at a time: a job at its limit is passed over until one that counts for it ends."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.planning.cells import at_limits, cells_of, slurm_order
from models.planning.forward import AT_ONCE, Until
from models.planning.futures import likely_future, look_ahead
from models.planning.ledger import CONTINUOUS, Clock, Due, Dues, Elsewhere, Ledger, Parked
from models.planning.planning import plan
from models.planning.problem import Bounds, Coming, Holding, Machine, Pending, Problem, Yields
from models.planning.rollout import expected_starts, places_of
from tests.models.planning.problems import POOL, holding, job, machine
from tests.models.planning.reference_queue import Run, by_hand, in_use

JOBS = "ann: jobs"


def due(amount: int = 1, limit: str = JOBS, *, binds: bool = True) -> Dues:
    return (Due(limit, amount, binds),)


def problem(*pending: Pending, running: tuple[Holding, ...] = (), cpus: int = 8, **others: object) -> Problem:
    return Problem(
        machines=(machine(cpus),),
        pending=pending,
        running=running,
        **{"limits": {JOBS: 2}, **others},  # type: ignore[arg-type]
    )


def starts(found: Problem) -> list[float]:
    return [span.start_s for span in expected_starts(found, samples=0)]


def test_a_job_at_a_limit_starts_when_one_that_counts_for_it_ends() -> None:
    jobs = (
        job(1, run_s=100.0, dues=due()),
        job(2, run_s=60.0, dues=due()),
        job(3, dues=due()),
        job(4, dues=due()),
    )
    assert starts(problem(*jobs)) == [0.0, 0.0, 60.0, 100.0]


def test_nothing_is_kept_free_for_a_job_at_a_limit() -> None:
    first = job(1, cpus=4, run_s=500.0, dues=due(2))
    at_it = job(2, cpus=4, run_s=60.0, dues=due())
    # If four CPUs were kept for the second job at 500 s, no job with a longer limit could have them.
    assert starts(problem(first, at_it, job(3, cpus=4, run_s=30.0, limit_s=9000.0))) == [0.0, 500.0, 0.0]
    # It may be the job waiting for room that another puts at its limit.
    by_room = (
        job(1, cpus=6, run_s=90.0),
        job(2, cpus=4, run_s=60.0, dues=due(2)),
        job(3, cpus=2, run_s=80.0, dues=due()),
    )
    assert starts(problem(*by_room, job(4, cpus=2, run_s=9000.0))) == [0.0, 90.0, 0.0, 80.0]


def test_running_jobs_count_wherever_they_run() -> None:
    held = (counting(holding(0, 1, left_s=300.0), dues=due()),)
    elsewhere = (Elsewhere(dues=due(), left_s=70.0),)
    assert starts(problem(job(1, dues=due()), running=held, elsewhere=elsewhere)) == [70.0]
    assert starts(problem(job(1, dues=due(2)), running=held, elsewhere=elsewhere)) == [300.0]


def counting(held: Holding, dues: Dues) -> Holding:
    return msgspec.structs.replace(held, dues=dues)


def test_jobs_running_in_another_cell_count_too() -> None:
    other = frozenset([1])
    held = counting(holding(1, 1, left_s=90.0), dues=due(2))
    found = Problem(
        machines=(machine(), machine(pools=other)),
        pending=(job(1, dues=due()), job(2, pools=other)),
        running=(held,),
        limits={JOBS: 2},
    )
    assert starts(found) == [90.0, 0.0]


def test_an_array_runs_as_many_tasks_as_it_may() -> None:
    found = problem(job(1, run_s=60.0, tasks=5, dues=due()), job(2))
    (cell,) = cells_of(found)
    outlook = look_ahead(
        [cell], places_of(slurm_order(found.pending)), likely_future(found, [cell]), [Until()]
    )
    (rolled,) = outlook.rolled
    of_array = [
        start_s for number, start_s in zip(rolled.numbers, rolled.starts_s, strict=True) if not number
    ]
    assert of_array == [0.0, 0.0, 60.0, 60.0, 120.0]


def test_a_limit_that_does_not_bind_is_only_counted() -> None:
    assert starts(problem(job(1, dues=due(2, binds=False)), job(2, dues=due()))) == [0.0, 60.0]
    assert starts(problem(job(1, dues=due(2)), job(2, dues=due(binds=False)))) == [0.0, 0.0]


def test_a_job_beyond_a_limit_by_itself_never_starts() -> None:
    assert starts(problem(job(1, dues=due(3)), job(2, dues=due()))) == [math.inf, 0.0]


def test_an_unknown_limit_lets_all_jobs_start() -> None:
    assert starts(problem(job(1, dues=due(limit="else")), job(2, dues=due(limit="else")))) == [0.0, 0.0]


def test_other_jobs_are_looked_at_however_many_are_at_a_limit() -> None:
    many = [job(number, run_s=1000.0, dues=due()) for number in range(1, 2501)]
    others = [job(3000 + number, run_s=1000.0) for number in range(8)]
    found = starts(problem(*many, *others))
    assert found[2500:] == [0.0] * 6 + [1020.0] * 2  # A long queue is looked at every 30 s.
    assert found[:3] == [0.0, 0.0, 1020.0]


def test_as_many_jobs_start_as_a_large_one_leaves_room_for() -> None:
    # More jobs than are looked at at once wait for what one job gives back.
    cpus = 3 * AT_ONCE
    held = counting(holding(0, 1, left_s=50.0), dues=due(cpus))
    many = [job(number, run_s=10.0, dues=due()) for number in range(1, cpus + 1)]
    assert starts(problem(*many, running=(held,), cpus=cpus, limits={JOBS: cpus})) == [50.0] * cpus


def test_a_job_that_comes_and_is_at_a_limit_takes_no_room() -> None:
    comes = Coming(
        at_s=10.0,
        pools=POOL,
        priority=20_000,
        demand=(8000, 8, 0),
        limit_s=500.0,
        likely_s=500.0,
    )
    waits = job(1, cpus=8, run_s=30.0)
    held = counting(holding(0, 1, left_s=100.0), due(2))
    for dues, start_s in (((), 600.0), (due(), 600.0), (due(9), 100.0)):
        coming = ((msgspec.structs.replace(comes, dues=dues),),)
        assert starts(problem(waits, running=(held,), coming=coming)) == [start_s]
    # A job that would come first and is at a limit is passed over.
    others = (holding(0, 7, left_s=100.0), counting(holding(0, 1, left_s=900.0), due(2)))
    for dues, start_s in (((), 600.0), (due(), 100.0)):
        coming = ((msgspec.structs.replace(comes, demand=(7000, 7, 0), dues=dues),),)
        assert starts(problem(job(1, cpus=7, run_s=30.0), running=others, coming=coming)) == [start_s]


def test_a_preempted_job_counts_no_longer() -> None:
    low, high = Yields(above=1), job(2, cpus=6, run_s=50.0, tier=2)
    small = job(3, cpus=2, run_s=60.0, dues=due())
    runs = counting(holding(0, 8, left_s=500.0), dues=due(2))
    # The small job is at the limit until the running job ends: at 500 s or, if it yields, at once.
    assert starts(problem(high, small, running=(runs,))) == [500.0, 500.0]
    yielding = msgspec.structs.replace(runs, yields=low)
    assert starts(problem(high, small, running=(yielding,))) == [0.0, 0.0]


def test_a_job_that_began_meanwhile_and_is_preempted_counts_no_longer() -> None:
    comes = Coming(
        at_s=40.0, pools=POOL, priority=1, demand=(6000, 6, 0), limit_s=50.0, likely_s=50.0, tier=2
    )  # fmt: skip
    small = job(3, cpus=2, run_s=60.0, dues=due())
    for yields, start_s in ((None, 500.0), (Yields(above=1), 40.0)):
        first = job(1, cpus=8, run_s=500.0, dues=due(2), yields=yields)
        assert starts(problem(first, small, coming=((comes,),))) == [0.0, start_s]


def test_jobs_that_cannot_start_now_are_moved_last() -> None:
    ann = [job(number, run_s=60.0, limit_s=6000.0, dues=due(2)) for number in range(1, 6)]
    others = [job(10 + number, run_s=600.0 + number, limit_s=6000.0, cpus=8) for number in range(5)]
    found = problem(*ann, *others, running=(counting(holding(0, 8, left_s=6000.0), dues=due(2)),))
    assert at_limits(cells_of(found), len(found.pending)).tolist() == [True] * 5 + [False] * 5
    changed = plan(found, Bounds(most_changes=3, most_delay_s=1e6, most_inversion=1.0)).changes
    assert not {one.job_id for one in changed} & {one.job_id for one in ann}


MINUTES = "ann: cpu RunMins"


def falling(falls: int, limit_s: float, asks: int = 0) -> Dues:
    """Return what a job counts for that holds `falls` of something for as long as its limit."""
    return (Due(MINUTES, round(falls * limit_s), falls=falls, asks=asks),)


def under(
    most: int,
    *pending: Pending,
    clock: Clock = CONTINUOUS,
    running: tuple[Holding, ...] = (),
    elsewhere: tuple[Elsewhere, ...] = (),
) -> Problem:
    return problem(*pending, running=running, limits={MINUTES: most}, clock=clock, elsewhere=elsewhere)


def test_a_job_waiting_for_unspent_time_of_running_jobs_starts_once_that_has_fallen() -> None:
    first, second = (job(number, run_s=900.0, limit_s=1000.0, dues=falling(2, 1000)) for number in (1, 2))
    # The second counts 2,000, so at most 1,000 of the first may be left: after 500 s.
    assert starts(under(3000, first, second)) == [0.0, pytest.approx(500.0, abs=0.01)]
    # The first ends before that.
    assert starts(under(2050, first, second)) == [0.0, 900.0]
    # A smaller job goes ahead.
    small = job(3, run_s=10.0, limit_s=100.0, dues=falling(2, 100))
    assert starts(under(2050, first, second, small)) == [0.0, 900.0, pytest.approx(75.0, abs=0.01)]


def test_what_running_jobs_may_still_use_falls_only_when_slurm_counts_it() -> None:
    first, second = (job(number, run_s=900.0, limit_s=1000.0, dues=falling(2, 1000)) for number in (1, 2))
    assert starts(under(3000, first, second, clock=Clock(at_s=-70.0, every_s=300.0))) == [0.0, 530.0]
    # What has run since Slurm last counted still counts in full.
    held = counting(holding(0, 1, left_s=990.0), falling(2, 1000))
    for at_s, starts_s in ((-20.0, 580.0), (-5.0, 595.0), (90.0, 690.0)):
        clock = Clock(at_s=at_s, every_s=300.0)
        assert starts(under(3000, second, running=(held,), clock=clock)) == [starts_s]
    assert under(1, running=(held,), clock=Clock(at_s=-20.0, every_s=300.0)).ledger.in_use(MINUTES) == 2000
    assert under(1, running=(held,), clock=Clock(at_s=-5.0, every_s=300.0)).ledger.in_use(MINUTES) == 1990


def test_a_job_may_hold_more_of_a_limit_than_it_needs_to_start() -> None:
    # A UsageFactor counts for running jobs; for a job that is about to start it need not.
    twice = [job(number, run_s=900.0, limit_s=1000.0, dues=falling(4, 1000, 2000)) for number in (1, 2)]
    assert starts(under(4000, *twice)) == [0.0, pytest.approx(500.0, abs=0.01)]
    assert starts(under(1999, *twice)) == [math.inf, math.inf]


def test_a_run_uses_up_its_part_of_a_budget_and_gives_the_rest_of_its_limit_back() -> None:
    def spending(number: int) -> Pending:
        return job(number, run_s=300.0, limit_s=1000.0, dues=(Due(MINUTES, 2000, spends=2.0),))

    # Each job spends 600 of what is left: 3,900, 3,300, …; each starts only while 2,000 are left.
    four = [spending(number) for number in range(1, 5)]
    assert starts(under(3900, *four)) == [0.0, 300.0, 600.0, 900.0]
    assert starts(under(3700, *four)) == [0.0, 300.0, 600.0, math.inf]
    assert starts(under(4000, *four)) == [0.0, 0.0, 300.0, 600.0]
    assert starts(under(1999, *four)) == [math.inf] * 4
    # The running job has 1,980 left to spend, and 20 more as of Slurm's last count.
    held = counting(holding(0, 1, left_s=990.0), (Due(MINUTES, 2000, spends=2.0),))
    assert under(1, running=(held,)).ledger.in_use(MINUTES) == 1980
    assert under(1, running=(held,), clock=Clock(at_s=-20.0, every_s=300.0)).ledger.in_use(MINUTES) == 2000


def test_what_began_elsewhere_falls_too() -> None:
    elsewhere = (Elsewhere(dues=falling(2, 1000), left_s=900.0, ran_s=100.0),)
    waits = job(1, limit_s=1000.0, dues=falling(2, 1000))
    assert starts(under(3000, waits, elsewhere=elsewhere)) == [pytest.approx(400.0, abs=0.01)]


def test_the_first_of_many_that_fit_are_released() -> None:
    ledger = Ledger({JOBS: 4}, [(due(2), 0.0)])
    parked = Parked(ledger)
    for number, amount in enumerate((3, 1, 2, 1, 1)):
        parked.add(due(amount)[0], float(number), number)
    assert parked.released(JOBS, 3) == [(1.0, 1), (2.0, 2), (3.0, 3)]
    assert parked.released(JOBS, 3) == [(4.0, 4)]
    assert parked
    ledger.give(due(2))
    assert parked.released(JOBS, 3) == [(0.0, 0)]
    assert not parked


limits = st.dictionaries(st.sampled_from("abc"), st.integers(1, 6), min_size=1)
most_left = st.dictionaries(st.sampled_from("pq"), st.integers(900, 9000), max_size=1)
most_falling = st.dictionaries(st.sampled_from("xy"), st.integers(300, 6000), max_size=2)
clocks = st.builds(Clock, at_s=st.sampled_from([-50.0, 0.0, 7.0]), every_s=st.sampled_from([60.0, 250.0]))
dues_drawn = st.lists(
    st.builds(
        Due,
        st.sampled_from("abc"),
        st.integers(1, 4),
        st.sampled_from([True, True, False]),
        falls=st.just(0.0),
        asks=st.just(0),
        spends=st.just(0.0),
    ),
    max_size=3,
    unique_by=lambda one: one.limit,
).map(tuple)


@st.composite
def falling_dues(draw: st.DrawFn, limit_s: float) -> Dues:
    names = draw(st.lists(st.sampled_from("xyp"), max_size=2, unique=True))
    found = []
    for name in names:
        rate = draw(st.integers(1, 4))
        amount = round(rate * limit_s)
        binds, asks = draw(st.sampled_from([True, True, False])), draw(st.sampled_from([0, 0, amount // 2]))
        due = Due(name, amount, binds, asks=asks)
        found.append(due._replace(spends=rate) if name == "p" else due._replace(falls=rate))
    return tuple(found)


@st.composite
def limited(
    draw: st.DrawFn,
    machines: tuple[Machine, ...] = (machine(4, POOL), machine(4, frozenset([0, 1]))),
    pools: tuple[int, ...] = (0, 1),
    most_tasks: int = 40,
) -> Problem:
    pending = tuple(
        job(
            number,
            cpus=draw(st.integers(1, 4)),
            run_s=60.0 * draw(st.integers(1, 9)),
            limit_s=(limit_s := 60.0 * draw(st.integers(9, 20))),
            tasks=draw(st.sampled_from([1, 1, 2, most_tasks])),
            dues=draw(dues_drawn) + draw(falling_dues(limit_s)),
            pools=frozenset([draw(st.sampled_from(pools))]),
            priority=draw(st.integers(1, 9)),
        )
        for number in range(1, draw(st.integers(2, 12)))
    )
    running = []
    for place in range(draw(st.integers(0, len(machines)))):
        held = holding(place, draw(st.integers(1, 2)), 60.0 * draw(st.integers(1, 9)))
        of_time = draw(falling_dues(held.ran_s + held.limit_left_s))
        running.append(counting(held, draw(dues_drawn) + of_time))
    return Problem(
        machines=machines,
        pending=pending,
        running=tuple(running),
        limits=draw(limits) | draw(most_falling) | draw(most_left),
        clock=draw(clocks),
    )


ONE = limited(machines=(machine(4),), pools=(0,), most_tasks=7)


def rolled_starts(found: Problem) -> list[list[float]]:
    cells = cells_of(found)
    places = places_of(slurm_order(found.pending))
    outlook = look_ahead(cells, places, likely_future(found, cells), [Until()] * len(cells))
    starts_s: list[list[float]] = [[] for _ in found.pending]
    for rolled in outlook.rolled:
        for number, start_s in zip(rolled.numbers, rolled.starts_s, strict=True):
            starts_s[number].append(start_s)
    return starts_s


@given(st.one_of(limited(), limited(machines=(machine(4), machine(4, frozenset([1]))))))
@settings(deadline=None)
def test_no_start_exceeds_a_limit_and_every_job_that_may_start_does(found: Problem) -> None:
    starts_s = rolled_starts(found)
    nobody = Ledger(found.limits)
    for one, each in zip(found.pending, starts_s, strict=True):
        # A budget that is spent may be too small for all.
        assert len(each) <= one.tasks
        if not any(due.spends for due in one.dues):
            assert len(each) == (0 if nobody.never(one.dues) else one.tasks)
    runs = [
        Run(-held.ran_s, held.limit_left_s, held.likely_left_s, 0, held.dues, 0) for held in found.running
    ]
    runs += [
        Run(start_s, start_s + one.limit_s, start_s + one.likely_s, 0, one.dues, 0)
        for one, each in zip(found.pending, starts_s, strict=True)
        for start_s in each
    ]
    for at_s, own in ((run.begin_s, due) for run in runs if run.begin_s >= 0 for due in run.dues):
        if not own.binds or own.limit not in found.limits:
            continue
        before = [run for run in runs if run.begin_s < at_s < run.end_s]
        # Of jobs that start at once, any that the limit does not bind may come last; the last bound one needs its own.
        beside = [
            (due.amount, due.needs)
            for run in runs
            for due in run.dues
            if run.begin_s == at_s and due.limit == own.limit and due.binds
        ]
        used = sum(amount for amount, _ in beside) - max(amount - needs for amount, needs in beside)
        ended = [run for run in runs if run.end_s <= at_s]
        assert in_use(found, own.limit, at_s, before, ended) + used <= found.limits[own.limit] + 0.01


@given(ONE)
@settings(deadline=None, max_examples=300)
def test_starts_are_those_of_the_reference_queue(found: Problem) -> None:
    assert rolled_starts(found) == by_hand(found)


def test_a_job_waiting_for_other_machines_uses_up_the_same_limit() -> None:
    other = frozenset([1])
    found = Problem(
        machines=(machine(), machine(pools=other)),
        pending=(
            job(1, run_s=100.0, pools=other, dues=due()),
            job(2, run_s=30.0, dues=due()),
            job(3, run_s=40.0, pools=other, dues=due()),
        ),
        running=(counting(holding(0, 1, left_s=60.0), due()),),
        limits={JOBS: 1},
    )
    assert len(cells_of(found)) == 2
    assert starts(found) == by_place(by_hand(found)) == [60.0, 160.0, 190.0]


def by_place(starts_s: list[list[float]]) -> list[float]:
    return [first_s for (first_s,) in starts_s]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_plan_of_jobs_at_limits_is_the_same_twice(seed: int) -> None:
    pending = tuple(job(number, run_s=60.0 * number, limit_s=1e4, dues=due()) for number in range(1, 30))
    found = problem(*pending, running=(holding(0, 8, left_s=600.0),))
    assert plan(found, Bounds(), seed) == plan(found, Bounds(), seed)
