"""What is known of how kinds of jobs disturb each other: the model learns, predicts, and says how sure it is."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.gpus.interference import MEASURED_S, PREDICTION_S, SHRINKAGE, Interference, Pair, cramped

KINDS = tuple("abcdefgh")


def true_speeds(seed: int) -> numpy.typing.NDArray[numpy.float64]:
    """Return speeds as the model assumes them: work takes 1 + s·d seconds, with a little noise that is no model's."""
    draw = numpy.random.default_rng(seed)
    suffers, disturbs = numpy.exp(draw.normal(-0.4, 0.7, (2, len(KINDS))))
    size = len(KINDS)
    off = numpy.exp(draw.normal(0, 0.1, (size, size)))
    return numpy.asarray(1 / (1 + suffers[:, None] * disturbs[None, :] * off))


def learned(speeds: numpy.typing.NDArray[numpy.float64], known: list[tuple[int, int]]) -> Interference:
    return Interference(
        KINDS, [Pair(kind=KINDS[one], beside=KINDS[other], speed=speeds[one, other]) for one, other in known]
    )


def test_predictions_are_those_of_a_ridge_regression_by_least_squares() -> None:
    draw = numpy.random.default_rng(5)
    cells = [(one, other) for one in range(8) for other in range(8) if draw.random() < 0.4]
    seen = [(one, other, draw.uniform(0.2, 0.9), draw.uniform(60, 6000)) for one, other in cells]
    model = Interference(
        KINDS, [Pair(kind=KINDS[one], beside=KINDS[at], speed=v, seconds=s) for one, at, v, s in seen]
    )
    rows, told = [], []
    for one, other, speed, seconds in seen:
        weight = numpy.sqrt(seconds / (seconds + PREDICTION_S))
        row = numpy.zeros(17)
        row[[0, 1 + one, 9 + other]] = weight
        rows.append(row)
        told.append(weight * numpy.log(1 / speed - 1))
    drawn = numpy.sqrt(SHRINKAGE) * numpy.eye(17)[1:]
    solved = numpy.linalg.lstsq(
        numpy.vstack([*rows, drawn]), numpy.concatenate([told, numpy.zeros(16)]), rcond=None
    )[0]
    for one, other in {(one, other) for one in range(8) for other in range(8)} - set(cells):
        expected = 1 / (1 + numpy.exp(solved[0] + solved[1 + one] + solved[9 + other]))
        assert model.speeds[one, other] == pytest.approx(expected)


def test_with_nothing_known_two_jobs_take_turns() -> None:
    nothing = Interference(KINDS)
    assert nothing.speeds == pytest.approx(numpy.full((8, 8), 0.5))
    estimate = nothing.estimate("a", "b")
    assert estimate.seconds == 0
    assert estimate.low < 0.4
    assert estimate.high > 0.6


@pytest.mark.parametrize("seed", range(5))
def test_pairs_that_never_ran_together_are_predicted(seed: int) -> None:
    speeds = true_speeds(seed)
    draw = numpy.random.default_rng(seed)
    cells = [(one, other) for one in range(8) for other in range(8)]
    known = [cell for cell in cells if draw.random() < 0.5]
    held_out = [cell for cell in cells if cell not in known]
    model = learned(speeds, known)
    of_model = numpy.mean([abs(model.speeds[cell] - speeds[cell]) for cell in held_out])
    mean = numpy.mean([speeds[cell] for cell in known])
    of_mean = numpy.mean([abs(mean - speeds[cell]) for cell in held_out])
    assert of_model < 0.5 * of_mean


def test_eight_of_ten_pairs_lie_in_their_interval() -> None:
    inside = []
    for seed in range(40):
        speeds = true_speeds(seed)
        draw = numpy.random.default_rng(seed)
        cells = [(one, other) for one in range(8) for other in range(8)]
        known = [cell for cell in cells if draw.random() < 0.6]
        model = learned(speeds, known)
        for one, other in set(cells) - set(known):
            estimate = model.estimate(KINDS[one], KINDS[other])
            inside.append(estimate.low <= speeds[one, other] <= estimate.high)
    assert 0.72 < numpy.mean(inside) < 0.95


@given(speed=st.floats(0.05, 1.0), seconds=st.floats(1.0, 1e7))
def test_estimates_move_to_an_observation_by_its_seconds(speed: float, seconds: float) -> None:
    model = learned(true_speeds(1), [(0, 2), (3, 1), (4, 4)])
    model.learn(Pair(kind="a", beside="b", speed=speed, seconds=seconds))
    error = abs(model.estimate("a", "b").speed - speed)
    assert error <= PREDICTION_S / (PREDICTION_S + seconds) + 1e-9
    assert model.estimate("a", "b").seconds == pytest.approx(seconds)


def test_one_long_observation_equals_many_short_ones_in_any_order() -> None:
    parts = [("a", "b", 0.5, 600.0), ("a", "b", 0.7, 1200.0), ("c", "a", 0.9, 60.0), ("a", "b", 0.5, 300.0)]
    pairs = [Pair(kind=one, beside=other, speed=speed, seconds=s) for one, other, speed, s in parts]
    whole = [pairs[2], Pair(kind="a", beside="b", speed=(450 + 840) / 2100, seconds=2100.0)]
    assert Interference(KINDS, pairs).speeds == pytest.approx(Interference(KINDS, whole).speeds)


def test_an_estimate_is_surer_the_longer_a_pair_was_seen() -> None:
    model = learned(true_speeds(2), [(0, 1), (1, 0), (2, 3), (4, 5), (3, 2)])
    widths = []
    for _ in range(4):
        estimate = model.estimate("a", "g")
        assert estimate.low <= estimate.speed <= estimate.high
        widths.append(estimate.high - estimate.low)
        model.learn(Pair(kind="a", beside="g", speed=0.6, seconds=3600.0))
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < widths[0] / 3


def test_hope_is_for_pairs_that_are_not_known() -> None:
    model = learned(true_speeds(3), [(0, 1), (1, 0), (2, 3), (4, 5), (3, 2)])
    more = model.hoped(0.5) - model.speeds
    assert (more > 0).all()
    assert more[0, 1] < more[0, 7] / 3


def test_a_pair_that_does_not_fit_runs_at_no_speed_both_ways() -> None:
    model = Interference(
        KINDS, [Pair(kind="a", beside="b", speed=0.0), Pair(kind="a", beside="c", speed=0.8)]
    )
    assert model.estimate("a", "b").speed == model.estimate("b", "a").high == 0
    assert model.hoped(2.0)[1, 0] == 0
    # That the pair does not fit says nothing about speeds.
    alone = Interference(KINDS, [Pair(kind="a", beside="c", speed=0.8)])
    assert model.estimate("d", "e") == alone.estimate("d", "e")


def test_a_pair_whose_memory_together_is_too_much_does_not_fit() -> None:
    pairs = cramped({"a": 30_000, "b": 50_000, "c": 50_001}, gpu_mem_mib=80_000)
    model = Interference(KINDS, pairs)
    fits = {(one, other) for one in "abc" for other in "abc" if model.estimate(one, other).speed > 0}
    assert fits == {("a", "a"), ("a", "b"), ("b", "a")}
    assert model.estimate("a", "d").speed > 0, "of d it is not known"


def test_impossible_observations_and_unknown_kinds_are_refused() -> None:
    model = Interference(KINDS)
    with pytest.raises(ModelError, match="both must be 0 or more"):
        model.learn(Pair(kind="a", beside="b", speed=-0.1))
    with pytest.raises(ModelError, match="both must be 0 or more"):
        model.learn(Pair(kind="a", beside="b", speed=float("nan")))
    with pytest.raises(ModelError, match="add it to the kinds"):
        model.estimate("a", "z")
    with pytest.raises(ModelError, match="listed twice"):
        Interference(["a", "a"])
    assert MEASURED_S > 10 * PREDICTION_S, "what was measured off line is hardly drawn to what is predicted"
