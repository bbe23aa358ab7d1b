"""Jobs that share GPUs, by hand: how long they run, what a move costs, what is seen, and that no job waits for ever."""

import numpy
import pytest

from accounting.errors import ScheduleError
from models.gpus.interference import Interference, Pair
from models.gpus.pairing import Terms
from models.simulation.shared_gpus import Load, Machines, Seen, share
from models.simulation.sharing import LearnedPairing

SPEED = numpy.array([[0.5, 0.8], [0.6, 0.0]])


class Fixed:
    """A policy that starts each job on its GPU at once, moves jobs in the given slots, and remembers what it saw."""

    def __init__(self, gpu: list[int], moves: dict[float, dict[int, int | None]] | None = None) -> None:
        self.gpu, self.moves = gpu, moves or {}
        self.seen: dict[tuple[int, int], list[float]] = {}

    def decide(self, seen: Seen) -> dict[int, int | None]:
        return {job: self.gpu[job] for job in seen.waiting} | self.moves.pop(seen.now_s, {})

    def saw(self, kind: int, beside: int, seconds: float, speed: float) -> None:
        found = self.seen.setdefault((kind, beside), [0.0, 0.0])
        found[0] += seconds
        found[1] += seconds * speed


def load(*jobs: tuple[float, float, int]) -> Load:
    submit_s, alone_s, kind = (numpy.array(column) for column in zip(*jobs, strict=True))
    return Load(submit_s=submit_s.astype(float), alone_s=alone_s.astype(float), kind=kind)


def test_two_jobs_on_a_gpu_run_as_worked_out_by_hand() -> None:
    policy = Fixed([0, 0])
    ended = share(load((0, 100, 0), (20, 30, 1)), Machines(gpus=1, speed=SPEED), policy)
    # The second needs 30 / 0.6 = 50 s, until 70; the first then has 100 - 20 - 50 · 0.8 = 40 s left.
    assert ended.end_s == pytest.approx([110, 70])
    assert ended.shared == pytest.approx(50 / 110)
    assert ended.gain == pytest.approx(130 / 110)
    assert policy.seen == {(0, 1): pytest.approx([50, 40]), (1, 0): pytest.approx([50, 30])}


def test_a_move_costs_what_was_done_since_the_checkpoint() -> None:
    machines = Machines(gpus=2, speed=SPEED, slot_s=10, move_s=7)
    ended = share(load((0, 100, 0), (0, 30, 1)), machines, Fixed([0, 0], {10.0: {1: 1}}))
    # Ten seconds side by side; then each runs alone, for 30 - 6 + 7 = 31 s and 100 - 8 = 92 s.
    assert ended.end_s == pytest.approx([102, 41])
    assert ended.moves == 1


def test_what_a_policy_may_not_do_is_refused() -> None:
    with pytest.raises(ScheduleError, match="does not fit"):
        share(load((0, 100, 1), (0, 30, 1)), Machines(gpus=1, speed=SPEED), Fixed([0, 0]))
    with pytest.raises(ScheduleError, match="move it in a slot"):
        share(load((0, 100, 0), (5, 30, 1)), Machines(gpus=2, speed=SPEED), Fixed([0, 0], {5.0: {0: 1}}))


def interference(pairs: list[Pair]) -> Interference:
    return Interference(["train", "big"], pairs)


def test_the_pairing_learns_from_what_it_sees() -> None:
    # Two jobs of this kind really gain together; the policy finds out because it may try.
    speed = numpy.array([[0.8, 0.0], [0.0, 0.0]])
    known = interference([Pair(kind="big", beside=other, speed=0) for other in ("train", "big")])
    jobs = load(*((0, 2000, 0),) * 4)
    tried = share(jobs, Machines(gpus=1, speed=speed), LearnedPairing(known, Terms(trying=0.5)))
    assert known.estimate("train", "train").speed == pytest.approx(0.8, abs=0.05)
    assert tried.gain == pytest.approx(1.6)
    never = share(jobs, Machines(gpus=1, speed=speed), LearnedPairing(interference([]), Terms()))
    assert never.shared == 0
    assert never.end_s.max() == 8000


def test_a_pair_that_loses_is_parted_in_a_slot() -> None:
    wrong = interference([Pair(kind="train", beside="train", speed=0.7, seconds=60)])
    machines = Machines(gpus=1, speed=numpy.array([[0.4, 0], [0, 0]]), slot_s=600)
    ended = share(load((0, 4000, 0), (0, 4000, 0)), machines, LearnedPairing(wrong))
    assert ended.moves == 1
    assert ended.shared < 0.2
    stays = interference([Pair(kind="train", beside="train", speed=0.7, seconds=60)])
    still = share(load((0, 4000, 0), (0, 4000, 0)), machines, LearnedPairing(stays, moves=False))
    assert (still.moves, still.shared) == (0, 1)


@pytest.mark.parametrize("most_wait_s", [5000.0, 1e9])
def test_a_job_that_fits_beside_no_other_does_not_wait_for_ever(most_wait_s: float) -> None:
    # A series of jobs that always share, two at a time; «big» comes early.
    speed = numpy.array([[0.8, 0.0], [0.0, 0.0]])
    pairs = [
        Pair(kind="train", beside="train", speed=0.8),
        *(Pair(kind="big", beside=other, speed=0) for other in ("train", "big")),
    ]
    jobs = [(500.0 * number, 900.0, 0) for number in range(100)]
    jobs.insert(2, (700.0, 900.0, 1))
    policy = LearnedPairing(interference(pairs), Terms(most_wait_s=most_wait_s))
    ended = share(load(*jobs), Machines(gpus=1, speed=speed), policy)
    assert not numpy.isnan(ended.end_s).any()
    assert (ended.start_s[2] < 10_000) == (most_wait_s < 10_000)


@pytest.mark.parametrize("most_wait_s", [9000.0, 1e9])
def test_a_job_that_gives_way_does_not_wait_for_ever(most_wait_s: float) -> None:
    # One GPU that no jobs share, a long job, and short jobs that always wait for it.
    nobody = [Pair(kind=one, beside=other, speed=0) for one in ("train", "big") for other in ("train", "big")]
    jobs = [(0.0, 20_000.0, 1), *((500.0 * number, 600.0, 0) for number in range(1, 200))]
    machines = Machines(gpus=1, speed=numpy.zeros((2, 2)))
    policy = LearnedPairing(interference(nobody), Terms(most_wait_s=most_wait_s, long_s=3600))
    ended = share(load(*jobs), machines, policy)
    assert ended.moves > 0
    # The short jobs alone keep the GPU busy until 120,000 s.
    assert (ended.end_s[0] < 45_000) == (most_wait_s < 10_000)


def test_short_jobs_end_sooner_where_a_long_one_gives_way() -> None:
    nobody = [Pair(kind=one, beside=other, speed=0) for one in ("train", "big") for other in ("train", "big")]
    jobs = load((0, 30_000, 1), (15_000, 600, 0))
    machines = Machines(gpus=1, speed=numpy.zeros((2, 2)))
    gives_way = share(jobs, machines, LearnedPairing(interference(nobody)))
    assert gives_way.moves == 1
    # The next slot is at 15,120 s; the move costs the long job a minute.
    assert gives_way.end_s == pytest.approx([30_000 + 600 + 60, 15_120 + 600])
    keeps = share(jobs, machines, LearnedPairing(interference(nobody), Terms(long_s=float("inf"))))
    assert keeps.end_s == pytest.approx([30_000, 30_600])
