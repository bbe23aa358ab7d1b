"""Which job starts on which device, by hand; and what no decision may do, whatever waits."""

from __future__ import annotations

import random

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.scheduling.deadlines import Decision, Job, Terms, decide, told
from models.scheduling.lanes import Busy, Pool
from models.scheduling.placement import place_whole
from models.scheduling.room import Amounts, Room

INF = float("inf")
# Two fast nodes, two slow ones, and two that are lent, each of four CPUs.
FAST, SLOW, LENT = 0, 1, 2
ROOM = Room.of(numpy.array([[4] * 6, [0] * 6, [0] * 6]))
TERMS = Terms(margin=0.5, risk=0.2, spare_share=0.25, calm_share=0.25)


def pools(left_s: tuple[float, float] = (0.0, 0.0), busy: tuple[Busy, ...] = ()) -> list[Pool]:
    return [
        Pool(name="fast", nodes=(0, 1), capacity=(8, 0, 0), busy=busy),
        Pool(name="slow", nodes=(2, 3), capacity=(8, 0, 0)),
        Pool(name="lent slow", nodes=(4, 5), capacity=(8, 0, 0), left_s=left_s),
    ]


def job(number: int, deadline_s: float, run_s: float = 10.0, *, cpus: int = 4, large: bool = False) -> Job:
    """A job that runs twice as long on slow devices."""
    return Job(
        number=number,
        deadline_s=deadline_s,
        demand=(cpus, 0, 0),
        run_s=(run_s, 2 * run_s, 2 * run_s),
        large=large,
    )


def decided(jobs: list[Job], at: list[Pool], room: Room = ROOM) -> dict[int, Decision]:
    return {one.number: one for one in decide(0.0, room, jobs, at, place_whole, TERMS)}


def where(jobs: list[Job], at: list[Pool], room: Room = ROOM) -> dict[int, int | None]:
    """The pool in which each job starts now; None where it waits."""
    return {number: one.pool if one.parts else None for number, one in decided(jobs, at, room).items()}


def full(*nodes: int) -> Room:
    """The room with nothing left on the given nodes."""
    room = ROOM.copy()
    room.take(tuple((node, (4, 0, 0)) for node in nodes))
    return room


@pytest.mark.parametrize(
    ("deadline_s", "left_s", "pool"),
    [
        (100.0, 100.0, LENT),
        (100.0, 30.0, LENT),
        (100.0, 29.0, SLOW),  # its owner is likely back by then
        (30.0, 100.0, LENT),
        (29.0, 100.0, FAST),  # on a slow device less would be left than the margin
        (10.0, 100.0, FAST),  # where nothing is faster, no margin is required
        (INF, 30.0, LENT),
    ],
)
def test_a_job_goes_to_the_slowest_device_on_which_it_is_in_time(
    deadline_s: float, left_s: float, pool: int
) -> None:
    assert where([job(1, deadline_s)], pools((left_s, 0.0))) == {1: pool}


def test_the_lent_node_whose_owner_stays_away_longer_is_taken() -> None:
    assert decided([job(1, 100)], pools((5.0, 40.0)))[1].parts == ((5, (4, 0, 0)),)


def test_the_earliest_deadline_gets_the_fast_node_and_the_other_job_waits_for_one() -> None:
    busy = (Busy(5.0, (4, 0, 0)),)
    assert where([job(1, 19), job(2, 14)], pools(busy=busy), full(0, 2, 3)) == {1: None, 2: FAST}


def test_a_large_job_gives_its_place_to_one_that_uses_less() -> None:
    """Either is in time if it starts now; by its earlier deadline the large one would come first."""
    busy = (Busy(1000.0, (4, 0, 0)),)
    found = decided([job(1, 110, 100), job(2, 120, 50)], pools(busy=busy), full(0, 2, 3))
    assert {number: bool(one.parts) for number, one in found.items()} == {1: False, 2: True}
    assert "given to smaller jobs" in told(found[1], pools(), job(1, 110, 100), 0.0)


def test_the_job_that_uses_most_gives_its_place() -> None:
    jobs = [job(1, 110, 90), job(2, 112, 100), job(3, 115, 50)]
    assert where(jobs, pools(), full(2, 3)) == {1: FAST, 2: None, 3: FAST}


def test_a_late_job_comes_after_those_in_time_and_late_jobs_hold_a_share() -> None:
    late, due = [job(number, 1.0, cpus=2) for number in (1, 2, 3)], job(4, 12.0)
    assert where([*late, due], pools(), full(0, 2, 3)) == {1: None, 2: None, 3: None, 4: FAST}
    # A quarter of a pool's eight CPUs is one of these jobs; the slow nodes come first.
    assert where(late, pools(), full(0)) == {1: SLOW, 2: FAST, 3: None}
    small = [job(number, 1.0, cpus=1) for number in range(1, 6)]
    assert where(small, pools(), full(0)) == {1: SLOW, 2: SLOW, 3: FAST, 4: FAST, 5: None}


def test_a_large_job_takes_what_no_other_needs() -> None:
    one, due = job(1, 11.0, large=True), job(2, 12.0)
    assert where([one, due], pools(), full(0, 2, 3)) == {1: None, 2: FAST}
    assert where([one], pools(), full(0, 2, 3)) == {1: FAST}


def test_a_job_in_time_only_with_luck_is_planned_after_one_that_is_sure() -> None:
    lucky, due = job(1, 8.0), job(2, 12.0)
    assert where([lucky, due], pools(), full(0, 2, 3)) == {1: None, 2: FAST}
    found = decided([lucky], pools(), full(0, 2, 3))[1]
    assert (found.pool, found.spare, found.looked[-1].word) == (FAST, False, "in time with luck")


def test_a_short_job_passes_in_a_gap_that_ends_before_the_planned_start() -> None:
    """The first job needs the whole node and waits for three CPUs of it."""
    at = [Pool(name="fast", nodes=(0,), capacity=(4, 0, 0), busy=(Busy(10.0, (3, 0, 0)),))]
    room = Room.of(numpy.array([[4], [0], [0]]))
    room.take(((0, (3, 0, 0)),))

    def alone(number: int, deadline_s: float, run_s: float, cpus: int) -> Job:
        return Job(number=number, deadline_s=deadline_s, demand=(cpus, 0, 0), run_s=(run_s,))

    first = alone(1, 20, 10, 4)
    assert where([first, alone(2, 30, 9, 1)], at, room) == {1: None, 2: 0}
    assert where([first, alone(2, 40, 11, 1)], at, room) == {1: None, 2: None}


def test_a_job_that_fits_only_on_lent_nodes_has_no_choice() -> None:
    one = Job(number=1, deadline_s=5.0, demand=(4, 0, 0), run_s=(INF, INF, 20.0))
    assert where([one], pools((1.0, 1.0))) == {1: LENT}


def test_a_decision_says_what_was_considered() -> None:
    one = job(1, 29.0)
    assert told(decided([one], pools((100.0, 100.0)))[1], pools(), one, 0.0) == (
        "starts on fast: it has 19 s to spare (lent slow: too late, ends in 30 s; "
        "slow: in time, but closer than the margin, ends in 20 s; fast: in time, ends in 10 s)"
    )


@pytest.mark.parametrize("wrong", [{"margin": -1}, {"risk": 0}, {"spare_share": 2}, {"promised_share": 0}])
def test_meaningless_terms_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ModelError, match="are no terms"):
        Terms(**wrong)


jobs_drawn = st.lists(
    st.builds(
        job,
        st.just(0),
        st.one_of(st.just(INF), st.integers(1, 60).map(float)),
        st.integers(1, 30).map(float),
        cpus=st.integers(1, 4),
        large=st.booleans(),
    ),
    max_size=15,
)


@given(
    jobs_drawn,
    st.lists(st.integers(0, 4), min_size=6, max_size=6),
    st.tuples(st.integers(0, 90).map(float), st.integers(0, 90).map(float)),
    st.randoms(use_true_random=False),
)
def test_no_job_starts_where_it_does_not_fit_or_is_unlikely_to_end(
    drawn: list[Job], held: list[int], left_s: tuple[float, float], shuffle: random.Random
) -> None:
    jobs = [
        Job(number=at, deadline_s=one.deadline_s, demand=one.demand, run_s=one.run_s, large=one.large)
        for at, one in enumerate(drawn)
    ]
    room = ROOM.copy()
    room.take(tuple((node, (cpus, 0, 0)) for node, cpus in enumerate(held)))
    amounts: list[Amounts] = [(cpus, 0, 0) for cpus in held]
    at = pools(left_s, tuple(Busy(7.0, amounts[node]) for node in (0, 1) if held[node]))
    free = room.free.copy()
    found = decide(0.0, room, jobs, at, place_whole, TERMS)
    assert (room.free == free).all()
    assert sorted(one.number for one in found) == list(range(len(jobs)))
    for one in found:
        if one.parts is None:
            continue
        room.take(one.parts)  # raises ModelError where it does not fit
        ((node, taken),) = one.parts
        assert taken == jobs[one.number].demand
        assert node in at[one.pool].nodes
        needs_s = jobs[one.number].run_s[one.pool] * (1 + TERMS.margin)
        if one.pool == LENT:
            assert left_s[node - 4] >= needs_s
        if not one.spare and one.pool != FAST:
            assert needs_s <= jobs[one.number].deadline_s
    mixed = list(jobs)
    shuffle.shuffle(mixed)
    room = ROOM.copy()
    room.take(tuple((node, (cpus, 0, 0)) for node, cpus in enumerate(held)))
    assert decide(0.0, room, mixed, at, place_whole, TERMS) == found
