"""Run times of a type: what is enough to learn from, how well a known truth is found, and what is refused."""

import math
from typing import Any

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.run_time import regression as run_time
from models.run_time.boosted import WAYS, boosted
from models.run_time.importance import Floats, important, permutation_importances
from models.run_time.laws import BEYOND, affine_law, both_laws, median_law, power_law
from models.run_time.regression import (
    FOREST,
    MIN_JOBS,
    SEED,
    XGBOOST,
    Jobs,
    Judged,
    Model,
    NotLearned,
    importances_of,
    judge,
    learn,
    varied,
)
from models.run_time.search import averaged, best_ways, mae_s, wmape

RESOURCES = ("cores", "gpu_pct", "mem_mib", "gpu_mem_mib", "read_mib", "written_mib")


def made(count: int = 80, seed: int = 1) -> Jobs:
    """Jobs that read at 50 MiB a second on each core; memory varies but says nothing, and no GPU was metered."""
    draw = numpy.random.default_rng(seed)
    cores, read_mib = draw.uniform(1, 8, count), draw.lognormal(8, 1, count)
    run_s = read_mib / 50 / cores * draw.lognormal(0, 0.03, count)
    absent = numpy.full(count, math.nan)
    memory, written = draw.uniform(100, 900, count), numpy.full(count, 7.0)
    amounts = numpy.column_stack([cores, absent, memory, absent, read_mib, written])
    return Jobs(resources=RESOURCES, amounts=amounts, run_s=run_s)


@pytest.fixture(scope="module")
def judged() -> Judged:
    result = judge(made())
    assert isinstance(result, Judged)
    return result


def test_a_known_truth_is_found_and_the_peer_does_worse(judged: Judged) -> None:
    assert (judged.learned_from, judged.judged) == (56, 24)
    assert judged.errors[XGBOOST].wmape < 0.06
    assert judged.errors[XGBOOST].wmape < judged.errors[FOREST].wmape < judged.median.wmape
    assert judged.errors[XGBOOST].mae_s < judged.errors[FOREST].mae_s
    assert judged.tells


def test_what_the_truth_depends_on_is_important_and_what_never_varied_is_left_out(judged: Judged) -> None:
    assert judged.model.resources == ("cores", "mem_mib", "read_mib")
    assert important(judged.importances) == {"cores", "read_mib"}


def test_the_same_jobs_and_seed_give_the_same_run_times() -> None:
    rows = made(seed=2).amounts[:, [0, 2, 4]]
    first, again, other = (learn(made(60), seed=seed) for seed in (5, 5, 6))
    assert isinstance(first, Model)
    assert isinstance(again, Model)
    assert isinstance(other, Model)
    assert (first.predict(rows) == again.predict(rows)).all()
    assert (first.predict(rows) != other.predict(rows)).any()


def test_training_does_not_see_the_later_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = made(60)
    seen: list[float] = []

    def spy(part: Jobs, *arguments: Any, **named: Any) -> Model | NotLearned:
        seen.append(float(part.run_s.max()))
        return learn(part, *arguments, **named)

    changed = jobs.run_s.copy()
    changed[42:] = 1e6
    monkeypatch.setattr(run_time, "learn", spy)
    monkeypatch.setattr(run_time, "importances_of", lambda *_: ())
    judge(msgspec.structs.replace(jobs, run_s=changed), (XGBOOST,))
    assert seen == [jobs.run_s[:42].max()]


def test_the_latest_of_many_jobs_are_learned_from_and_show_what_a_resource_is_worth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_time, "MOST_LEARNED", 50)
    monkeypatch.setattr(run_time, "MOST_SHUFFLED", 10)
    jobs = made(70)
    before = jobs.run_s.copy()
    before[:20] = 1e6
    asked = jobs.amounts[:, [0, 2, 4]]
    model, latest = learn(msgspec.structs.replace(jobs, run_s=before)), learn(jobs.part(20, 70))
    assert isinstance(model, Model)
    assert isinstance(latest, Model)
    assert (model.predict(asked) == latest.predict(asked)).all()
    taught: list[int] = []

    def fit(amounts: Floats, _run_s: Floats) -> Any:
        taught.append(len(amounts))
        return model.predict

    found = importances_of(msgspec.structs.replace(model, fit=fit), jobs, jobs)
    shown = permutation_importances(model.predict, model.resources, asked[-10:], jobs.run_s[-10:], SEED)
    assert [one.mean for one in found] == [one.mean for one in shown]
    assert set(taught) == {50}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"run_s": numpy.full(80, 30.0)}, "all of them ran 30 s"),
        ({"amounts": numpy.ones((80, 6))}, "none of their resources varies"),
        ({"amounts": numpy.full((80, 6), math.nan)}, "none of their resources varies"),
    ],
)
def test_a_type_that_cannot_be_learned_says_why(changes: dict[str, Floats], reason: str) -> None:
    jobs = msgspec.structs.replace(made(), **changes)
    assert learn(jobs) == NotLearned(reason)
    assert judge(jobs) == NotLearned(reason)


def test_few_jobs_are_not_enough() -> None:
    assert judge(made(MIN_JOBS - 1)) == NotLearned("49 jobs, 50 are needed")
    empty = Jobs(resources=RESOURCES, amounts=numpy.empty((0, 6)), run_s=numpy.empty(0))
    assert learn(empty) == NotLearned("0 jobs, 50 are needed")


def test_earlier_jobs_that_are_all_alike_teach_nothing() -> None:
    jobs = made(60)
    run_s = jobs.run_s.copy()
    run_s[:45] = 20.0
    result = judge(msgspec.structs.replace(jobs, run_s=run_s))
    assert result == NotLearned("of the earlier jobs, all of them ran 20 s")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, -3.0])
def test_an_impossible_run_time_is_an_error_with_its_row(bad: float) -> None:
    jobs = made()
    jobs.run_s[17] = bad
    for of in (learn, judge):
        with pytest.raises(ModelError, match=r"job 17 ran .* leave out"):
            of(jobs)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, -1.0])
def test_an_impossible_amount_is_an_error_with_its_resource(bad: float) -> None:
    jobs = made()
    jobs.amounts[3, 2] = bad
    with pytest.raises(ModelError, match=r"job 3 used .* of mem_mib; give NaN"):
        learn(jobs)
    with pytest.raises(ModelError, match="do not belong"):
        learn(msgspec.structs.replace(made(), resources=("cores",)))


def test_amounts_unknown_for_some_jobs_are_no_error() -> None:
    jobs = made()
    jobs.amounts[::5, 2] = math.nan
    model = learn(jobs)
    assert isinstance(model, Model)
    rows = jobs.amounts[:, [0, 2, 4]]
    rows[:, 1] = math.nan
    assert numpy.isfinite(model.predict(rows)).all()
    assert wmape(model.predict(rows), jobs.run_s) < 0.2


def test_columns_with_a_single_amount_do_not_count_as_varied() -> None:
    assert varied(made()) == (0, 2, 4)


def test_errors_are_those_worked_out_by_hand() -> None:
    predicted, true = numpy.array([10.0, 30.0]), numpy.array([20.0, 20.0])
    assert mae_s(predicted, true) == 10
    assert wmape(predicted, true) == 0.5


def test_a_power_law_goes_on_where_trees_stop() -> None:
    amounts = numpy.linspace(10, 100, 40)[:, None]
    law = power_law(amounts, 3 * amounts[:, 0] ** 1.5)
    assert math.exp(law(numpy.array([[150.0]]))[0]) == pytest.approx(3 * 150**1.5, rel=0.02)


def test_an_affine_law_knows_a_fixed_part() -> None:
    amounts = numpy.linspace(1, 1000, 60)[:, None]
    law = affine_law(amounts, 60 + amounts[:, 0] / 10)
    assert math.exp(law(numpy.array([[1.0]]))[0]) == pytest.approx(60.1, rel=0.02)


@given(
    st.lists(st.floats(1e-3, 1e6), min_size=3, max_size=30),
    st.floats(0, 1e12),
    st.sampled_from([power_law, affine_law, both_laws, median_law]),
)
def test_no_law_goes_far_beyond_what_was_seen(values: list[float], asked: float, fit: Any) -> None:
    run_s = numpy.array(values)
    law = fit(numpy.arange(1.0, len(values) + 1)[:, None], run_s)
    answer = numpy.exp(law(numpy.array([[asked], [math.nan]])))
    assert (answer >= run_s.min() / BEYOND * 0.999).all()
    assert (answer <= run_s.max() * BEYOND * 1.001).all()


@pytest.mark.parametrize("name", WAYS)
def test_every_way_of_boosting_gives_positive_run_times(name: str) -> None:
    jobs = made(40)
    amounts = jobs.amounts[:, [0, 2, 4]]
    predicted = boosted(WAYS[name], 1)(amounts, jobs.run_s)(amounts * 3)
    assert predicted.shape == (40,)
    assert (predicted > 0).all()


def test_the_ways_that_err_least_on_the_next_jobs_are_averaged() -> None:
    jobs = made(60)
    ways = {
        str(factor): lambda _amounts, run_s, factor=factor: (
            lambda rows: numpy.full(len(rows), factor * float(numpy.median(run_s)))
        )
        for factor in (50.0, 1.0, 9.0, 1.2)
    }
    best = best_ways(ways, jobs.amounts, jobs.run_s)
    assert set(best) == {"1.0", "1.2", "9.0"}
    assert best[2] == "9.0"
    mean = averaged([ways["1.0"], ways["9.0"]])(jobs.amounts, jobs.run_s)(jobs.amounts)
    assert mean[0] == pytest.approx(5 * numpy.median(jobs.run_s))
