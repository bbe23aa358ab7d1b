"""Which jobs share a GPU: the best matching, no pair that does not fit or loses, and no job last for ever."""

import itertools
import math
import random

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import ScheduleError
from models.gpus.interference import Interference, Pair
from models.gpus.pairing import Job, Round, Terms, gains, pair

KINDS = ("big", "cpu", "net", "small")
# Work of pairs: small with small 1.8, net with small 1.4, net with net 0.9, cpu with net 1.5; big fits with none.
SPEEDS = {
    ("small", "small"): (0.9, 0.9),
    ("net", "small"): (0.6, 0.8),
    ("net", "net"): (0.45, 0.45),
    ("cpu", "net"): (0.8, 0.7),
    ("cpu", "small"): (0.7, 0.8),
    ("cpu", "cpu"): (0.6, 0.6),
    **{("big", other): (0.0, 0.0) for other in KINDS},
}
HOUR_S = 3600.0


def all_known() -> Interference:
    pairs = [
        Pair(kind=kinds[at], beside=kinds[1 - at], speed=speeds[at], seconds=1e9)
        for kinds, speeds in SPEEDS.items()
        for at in (0, 1)
    ]
    return Interference(KINDS, pairs)


def job(number: int, kind: str, waited_s: float = 0.0, ran_s: float = 0.0) -> Job:
    return Job(job_id=number, kind=kind, waited_s=waited_s, ran_s=ran_s)


def placed(found: Round) -> dict[int, int | None]:
    return {choice.job.job_id: choice.gpu for choice in found.choices}


def test_free_gpus_go_to_the_jobs_that_wait_longest_and_are_not_shared() -> None:
    found = pair([[], []], [job(1, "small", 10), job(2, "small", 20)], all_known())
    assert placed(found) == {2: 0, 1: 1}
    assert all(choice.beside is None for choice in found.choices)


def test_a_waiting_job_goes_where_most_is_gained() -> None:
    gpus = [[job(1, "net")], [job(2, "small")]]
    found = pair(gpus, [job(3, "cpu", 20), job(4, "small", 10)], all_known())
    # cpu with net and small with small do 1.5 + 1.8; the other way it would be 1.4 + 1.5.
    assert placed(found) == {3: 0, 4: 1}
    assert found.choices[0].beside == gpus[0][0]


def test_the_earliest_of_equal_jobs_goes_beside_the_host_it_disturbs_least_for_its_time() -> None:
    gpus = [[job(1, "small", ran_s=60)], [job(2, "small", ran_s=9000)]]
    found = pair(gpus, [job(3, "small", 10), job(4, "small", 30), job(5, "small", 5)], all_known())
    assert placed(found) == {4: 1, 3: 0, 5: None}


def test_two_jobs_that_do_not_fit_or_gain_nothing_are_no_pair() -> None:
    found = pair([[job(1, "net")]], [job(2, "net", 50), job(3, "big", 60)], all_known())
    assert placed(found) == {2: None, 3: None}


def test_with_nothing_known_no_jobs_share_unless_the_site_wants_to_find_out() -> None:
    gpus, waiting = [[job(1, "net")]], [job(2, "small", 5)]
    assert placed(pair(gpus, waiting, Interference(KINDS))) == {2: None}
    assert placed(pair(gpus, waiting, Interference(KINDS), Terms(trying=0.5))) == {2: 0}


def test_a_job_that_has_waited_too_long_gets_the_gpu_likeliest_to_be_free_soon() -> None:
    gpus = [[job(1, "small", ran_s=9000)], [job(2, "small", ran_s=30)]]
    waiting = [job(3, "small", 60), job(4, "small", 50), job(5, "big", 12 * HOUR_S + 1)]
    found = pair(gpus, waiting, all_known())
    assert found.kept_free == {1: waiting[2]}
    assert placed(found) == {3: 0, 4: None, 5: None}
    # Nothing is kept for a job that could share, however long it has waited.
    assert not pair(gpus, [job(5, "net", 99 * HOUR_S)], all_known()).kept_free


def test_in_a_slot_pairs_are_parted_and_made_anew_where_that_gains() -> None:
    gpus = [[job(1, "net", ran_s=50), job(2, "small", ran_s=40)], [job(3, "small", ran_s=60)]]
    assert not pair(gpus, [], all_known()).choices
    # net with small (1.4) and small alone, compared with net alone and small with small (1.8).
    found = pair(gpus, [], all_known(), moving=True)
    assert [(choice.job.job_id, choice.gpu, choice.left) for choice in found.choices] == [(2, 1, 0)]
    assert not pair(gpus, [], all_known(), Terms(move_gain=0.5), moving=True).choices


def test_a_pair_that_turned_out_to_lose_is_parted() -> None:
    gpus = [[job(1, "net", ran_s=50), job(2, "net", ran_s=90)]]
    found = pair(gpus, [], all_known(), moving=True)
    assert [(choice.job.job_id, choice.gpu, choice.left) for choice in found.choices] == [(1, None, 0)]


def test_in_a_slot_a_sharing_job_goes_to_a_gpu_that_no_job_waits_for() -> None:
    gpus = [
        [job(1, "small", ran_s=50), job(2, "small", ran_s=40)],
        [job(3, "net", ran_s=50), job(4, "small", ran_s=60)],
        [],
    ]
    # net and small do 1.4 of the work of two GPUs, two small ones 1.8: the first pair is parted.
    found = pair(gpus, [], all_known(), moving=True)
    assert [(choice.job.job_id, choice.gpu, choice.left) for choice in found.choices] == [(3, 2, 1)]
    assert placed(pair(gpus, [job(5, "big", 9)], all_known(), moving=True)) == {5: 2}
    assert not pair(gpus, [], all_known(), Terms(move_gain=0.7), moving=True).choices


def test_a_job_that_is_parted_may_be_the_better_host_of_another() -> None:
    gpus = [
        [job(1, "net", ran_s=50), job(2, "small", ran_s=40)],
        [job(3, "cpu", ran_s=50), job(4, "small", ran_s=40)],
        [],
    ]
    found = pair(gpus, [], all_known(), moving=True)
    assert [(choice.job.job_id, choice.gpu, choice.left) for choice in found.choices] == [
        (2, 2, 0),
        (4, 2, 1),
    ]


jobs_of_kinds = st.lists(st.sampled_from(KINDS), min_size=0, max_size=4)


@settings(max_examples=150, deadline=None)
@given(hosts=jobs_of_kinds, guests=jobs_of_kinds, seed=st.integers(0, 9))
def test_no_other_pairing_gains_more(hosts: list[str], guests: list[str], seed: int) -> None:
    draw = numpy.random.default_rng(seed)
    pairs = [
        Pair(kind=one, beside=other, speed=float(draw.choice([0.0, 0.3, 0.5, 0.6, 0.7, 0.9])))
        for one in KINDS
        for other in KINDS
        if draw.random() < 0.8
    ]
    known, terms = Interference(KINDS, pairs), Terms(most_wait_s=float("inf"))
    gain = gains(known)
    gpus = [[job(number, kind)] for number, kind in enumerate(hosts)]
    found = pair(gpus, [job(10 + number, kind, number) for number, kind in enumerate(guests)], known, terms)
    pairs_of = [(choice.job, choice.beside) for choice in found.choices if choice.beside is not None]
    reached = [gain[known.number(host.kind), known.number(guest.kind)] for guest, host in pairs_of]
    assert all(value >= terms.least_gain for value in reached)
    assert len({host.job_id for _, host in pairs_of}) == len(pairs_of), "two guests of one host"
    best = 0.0
    nobody = [""] * len(hosts)
    for chosen in set(itertools.permutations([*guests, *nobody], len(hosts))):
        tried = (
            gain[known.number(host), known.number(guest)]
            for host, guest in zip(hosts, chosen, strict=True)
            if guest
        )
        best = max(best, sum(value for value in tried if value >= terms.least_gain))
    assert sum(reached) == pytest.approx(best)


slots = st.lists(st.lists(st.sampled_from(KINDS[1:]), max_size=2), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(
    on=slots,
    waits=jobs_of_kinds,
    shuffled=st.randoms(use_true_random=False),
    moving=st.booleans(),
    hours=st.integers(1, 6),
)
def test_every_job_is_in_one_place_and_the_given_order_does_not_matter(
    on: list[list[str]], waits: list[str], shuffled: random.Random, moving: bool, hours: int
) -> None:
    numbers = itertools.count()
    unit_s = hours * HOUR_S
    gpus = [
        [job(number := next(numbers), kind, ran_s=7 * number % 5 * unit_s) for kind in kinds] for kinds in on
    ]
    waiting = [job(next(numbers), kind, waited_s=len(kind) * unit_s) for kind in waits]
    known = all_known()
    found = pair(gpus, waiting, known, moving=moving)
    place = {one.job_id: gpu for gpu, jobs in enumerate(gpus) for one in jobs}
    kind_of = {one.job_id: one.kind for jobs in (*gpus, waiting) for one in jobs}
    assert {one.job_id for one in waiting} <= placed(found).keys()
    assert len(placed(found)) == len(found.choices)
    place |= {number: gpu for number, gpu in placed(found).items() if gpu is not None}
    for number, gpu in placed(found).items():
        if gpu is None:
            place.pop(number, None)
    for gpu in range(len(gpus)):
        there = [known.number(kind_of[number]) for number, at in place.items() if at == gpu]
        assert len(there) <= 2
        assert len(there) < 2 or known.fits[tuple(there)]
    shuffled.shuffle(waiting)
    assert pair(gpus, waiting, known, moving=moving) == found


def test_a_job_that_has_run_long_gives_way_to_one_that_has_not() -> None:
    gpus = [
        [job(1, "big", ran_s=5 * HOUR_S)],
        [job(2, "big", ran_s=9 * HOUR_S)],
        [job(3, "big", ran_s=3 * HOUR_S)],
    ]
    waiting = [job(4, "big", 60), job(5, "big", 9 * HOUR_S, ran_s=4 * HOUR_S)]
    found = pair(gpus, waiting, all_known(), moving=True)
    # The job that has run longest gives way; one that has run four hours waits, however long the others have run.
    assert placed(found) == {4: 1, 2: None, 5: None}
    assert found.choices[0].instead_of == gpus[1][0]
    for terms, moving in ((Terms(long_s=math.inf), True), (Terms(), False)):
        assert placed(pair(gpus, waiting, all_known(), terms, moving=moving)) == {4: None, 5: None}


def test_a_job_that_gives_way_stays_beside_the_newcomer_or_shares_elsewhere_where_that_gains() -> None:
    gpus = [[job(1, "cpu", ran_s=9 * HOUR_S), job(2, "small", ran_s=8 * HOUR_S)], [job(3, "net", ran_s=60)]]
    found = pair(gpus, [job(4, "small", 9)], all_known(), moving=True)
    # Two small jobs do 1.8, cpu with net 1.5.
    assert [(choice.job.job_id, choice.gpu, choice.left) for choice in found.choices] == [
        (4, 0, None),
        (1, 1, 0),
        (2, 0, 0),
    ]
    assert found.choices[2].beside == job(4, "small", 9)


def test_a_short_job_is_the_host_of_one_that_has_run_long() -> None:
    gpus = [[job(1, "small", ran_s=9 * HOUR_S), job(2, "small", ran_s=60)]]
    assert placed(pair(gpus, [job(3, "big", 9)], all_known(), moving=True)) == {3: None}


def test_a_job_that_has_waited_too_long_and_longer_than_it_ran_goes_first() -> None:
    gpus = [[job(1, "big", ran_s=60)], [job(2, "big", 13 * HOUR_S, ran_s=9 * HOUR_S)]]
    waiting = [job(3, "big", 9), job(4, "big", 14 * HOUR_S, ran_s=13 * HOUR_S)]
    assert placed(pair(gpus, waiting, all_known(), moving=True)) == {4: 0, 1: None, 3: None}
    waiting[1] = job(4, "big", 14 * HOUR_S, ran_s=15 * HOUR_S)
    assert placed(pair(gpus, waiting, all_known(), moving=True)) == {3: None, 4: None}


runs = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 16)), max_size=2)
waits_of = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 16), st.integers(0, 16)), max_size=5)


def drawn(
    on: list[list[tuple[str, int]]], waits: list[tuple[str, int, int]]
) -> tuple[list[list[Job]], list[Job]]:
    """Return which jobs are on each GPU and which wait; the given times are in hours."""
    numbers = itertools.count()
    gpus = [[job(next(numbers), kind, ran_s=ran * HOUR_S) for kind, ran in jobs] for jobs in on]
    waiting = [job(next(numbers), kind, waited * HOUR_S, ran * HOUR_S) for kind, waited, ran in waits]
    return gpus, waiting


@settings(max_examples=200, deadline=None)
@given(on=st.lists(runs, min_size=1, max_size=5), waits=waits_of)
def test_no_job_goes_after_one_with_more_right_to_a_gpu(
    on: list[list[tuple[str, int]]], waits: list[tuple[str, int, int]]
) -> None:
    terms, known = Terms(), all_known()
    gpus, waiting = drawn(on, waits)
    found = pair(gpus, waiting, known, moving=True)
    alone = {choice.gpu: choice for choice in found.choices if choice.left is None and choice.beside is None}
    for choice in alone.values():
        if choice.instead_of is not None:
            assert terms.level(choice.job) < terms.level(choice.instead_of)
    still = [one for one in waiting if placed(found)[one.job_id] is None]
    firsts = [
        alone[gpu].job if gpu in alone else min(jobs, key=terms.level)
        for gpu, jobs in enumerate(gpus)
        if jobs
    ]
    assert all(terms.level(one) >= terms.level(first) for one in still for first in firsts)


@settings(max_examples=100, deadline=None)
@given(on=st.lists(runs, min_size=1, max_size=5), waits=waits_of, long=st.booleans(), moving=st.booleans())
def test_where_all_jobs_have_run_alike_none_gives_way(
    on: list[list[tuple[str, int]]], waits: list[tuple[str, int, int]], *, long: bool, moving: bool
) -> None:
    alike = [[(kind, ran + 4 if long else ran % 4) for kind, ran in jobs] for jobs in on]
    gpus, waiting = drawn(alike, [(k, w % 12, r + 4 if long else r % 4) for k, w, r in waits])
    known = all_known()
    keeping = pair(gpus, waiting, known, Terms(long_s=math.inf), moving=moving)
    assert pair(gpus, waiting, known, moving=moving) == keeping


def test_terms_by_which_pairs_would_lose_are_refused() -> None:
    with pytest.raises(ScheduleError, match="least_gain above 0"):
        Terms(least_gain=0.0)
