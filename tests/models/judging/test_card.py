"""The model card: what it says, that the manifest covers it, and what a model of odd rows reports of itself."""

import math
from pathlib import Path

import msgspec
import numpy
import pytest

from accounting.errors import ModelError
from accounting.records import Attempt
from models.demand.features import FEATURES
from models.demand.prediction import ChainSettings
from models.judging.card import Card, card_files, card_of, markdown
from models.judging.health import Calibrated, GrowthHealth, calibration_of, pinball
from models.judging.outcomes import Tally
from models.judging.promotion import CURRENT, Comparison, Verdict
from models.past.attempts import request_of
from models.past.jobs import LEARNED
from models.training import training
from models.training.matrix import Row, matrix_of
from models.training.quantile import SEED, predict
from models.training.served import splits_of
from models.training.training import MIN_ROWS, fit_growth
from models.versions.artefact import CARD_JSON, CARD_MD, load_predictor, read_manifest, read_part
from tests.builders import T0, attempt, past
from tests.conftest import RECENT_JOBS, TrainedModel

SETTINGS = ChainSettings()
REFUSED = Verdict(
    passed=False, opponent=CURRENT, judged=80, split_s=T0, reasons=("memory: fails 9 of 60 resized jobs",)
)


@pytest.fixture(scope="module")
def many() -> tuple[list[Attempt], training.Trained]:
    attempts = past(900)
    return attempts, training.train(attempts, RECENT_JOBS)


def test_a_card_is_part_of_the_artefact(many: tuple[list[Attempt], training.Trained], tmp_path: Path) -> None:
    _, trained = many
    card = card_of(trained, REFUSED, 0.01)
    version = training.save(trained, tmp_path, 0, card_files(card))
    assert {CARD_JSON, CARD_MD} <= set(read_manifest(tmp_path / version).digests)
    content = read_part(tmp_path / version, CARD_JSON)
    assert content is not None
    assert msgspec.json.decode(content, type=Card) == card
    assert load_predictor(tmp_path / version, SETTINGS).model == version
    (tmp_path / version / CARD_MD).write_text("# All is well")
    with pytest.raises(ModelError, match="differs from its digest"):
        read_part(tmp_path / version, CARD_MD)


def test_a_card_says_what_was_learned_and_how_well(many: tuple[list[Attempt], training.Trained]) -> None:
    attempts, trained = many
    card = card_of(trained, REFUSED, 0.01)
    assert (card.attempts, card.users, card.seed) == (900, 1, SEED)
    assert (card.first_submit_s, card.last_end_s) == (T0, max(one.row.end_s for one in attempts))
    assert {one.dimension for one in card.growth} == set(LEARNED)
    for health in card.growth:
        assert {one.resource for one in health.importance} == set(FEATURES)
        assert health.importance[0].mean > 0
        assert all(0 <= one.observed <= 1 for one in health.calibration)
        assert sum(week.rows or 0 for week in health.weeks) == health.calibrated_on
        assert [week.jobs for week in health.weeks] == [week.rows for week in health.weeks], "of one user"
        assert [one.nominal for one in health.calibration] == sorted(
            one.nominal for one in health.calibration
        )
    text = markdown(card)
    for said in (
        "Refused against the current model, on 80 jobs",
        "- memory: fails 9 of 60",
        "### wall",
        "PSI",
    ):
        assert said in text
    assert f"Seed {SEED}" in text


def test_the_same_training_leaves_the_same_card(trained_model: TrainedModel) -> None:
    again = training.train(trained_model.attempts, RECENT_JOBS)
    cards = [card_of(one, None, 0.01) for one in (trained_model.trained, again)]
    assert card_files(cards[0]) == card_files(cards[1])


def test_the_card_of_a_model_of_few_jobs_says_so() -> None:
    attempts = past(6)
    text = markdown(card_of(training.train(attempts, RECENT_JOBS), None, 0.01))
    assert "too few jobs had a past" in text
    assert "The gate was not asked." in text
    assert "drifted |" not in text


def test_a_card_shows_what_the_gate_compared_and_how_many_users_are_apart() -> None:
    old = Tally(jobs=80, resized=40, failed=1, requested=100.0, granted=75.0)
    new = msgspec.structs.replace(old, resized=60, granted=50.0)
    passed = msgspec.structs.replace(
        REFUSED, passed=True, comparisons=(Comparison(dimension="memory", old=old, new=new),)
    )
    counted = Calibrated(nominal=0.01, observed=0.025, jobs=40)
    growth = GrowthHealth(
        dimension="memory",
        rows=300,
        calibrated_on=80,
        apart=2,
        calibration=(counted,),
        importance=(),
        weeks=(),
    )
    plain = card_of(training.train(past(6), RECENT_JOBS), passed, 0.01)
    text = markdown(msgspec.structs.replace(plain, growth=(growth,)))
    for said in (
        "Passed against the current model, on 80 jobs, submitted from 20",
        "| memory | GiB·h | current model | 80 | 40 | 1 | 100.00 | 75.00 | 25.0% |",
        "| memory | GiB·h | new model | 80 | 60 | 1 | 100.00 | 50.00 | 50.0% |",
        "Trained on 300 jobs, calibrated on 80 later ones; 2 users are not learned from",
        "| 1.0% | 2.5% | 40 |",
    ):
        assert said in text
    assert "too few jobs had a past" not in text
    unjudged = msgspec.structs.replace(REFUSED, judged=0)
    assert "Refused against the current model, on 0 jobs.\n" in markdown(
        msgspec.structs.replace(plain, verdict=unjudged)
    )


def test_calibration_is_counted_on_jobs_it_was_not_made_from() -> None:
    excess, equal = numpy.array([0.0] * 380 + [1.0] * 20), numpy.ones(400)
    values = numpy.zeros(400, numpy.bool_)
    assert {one.observed for one in calibration_of(excess, values, equal)} == {0.1}
    assert calibration_of(numpy.zeros(1), values[:1], equal[:1]) == ()


def test_a_bound_counts_only_where_it_tells_something() -> None:
    excess, equal = numpy.array([0.0] * 360 + [1.0] * 20 + [-1.0] * 20), numpy.ones(400)
    bounded = numpy.arange(400) >= 360
    found = {(one.observed, one.jobs) for one in calibration_of(excess, bounded, equal)}
    assert found == {(20 / 180, 180)}


def test_calibration_is_counted_with_the_weights_it_was_made_with() -> None:
    rows = numpy.arange(800)
    light = (rows >= 400) & (rows % 2 == 1)
    weights, excess = numpy.where(light, 0.1, 1.0), numpy.where(light & (rows % 40 == 1), 1.0, 0.0)
    found = calibration_of(excess, numpy.zeros(800, numpy.bool_), weights)
    assert {one.jobs for one in found} == {round(220**2 / 202)}
    assert [one.observed for one in found] == pytest.approx([1 / 220] * len(found))
    assert found


def test_the_loss_is_that_of_the_quantile() -> None:
    true = numpy.array([0.0, 1.0])
    assert pinball(numpy.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]), true) == pytest.approx([0, 0.01, 0.49])


def killed(number: int) -> Attempt:
    return attempt(
        job_id=number,
        submit_s=T0 + 1000 * number,
        start_s=T0 + 1000 * number,
        state="OUT_OF_MEMORY",
        mem_mib=7990.0,
    )


def test_a_model_of_jobs_that_were_all_killed_keeps_requests(tmp_path: Path) -> None:
    attempts = [killed(number) for number in range(80)]
    trained = training.train(attempts, RECENT_JOBS)
    assert trained.fitted == {}
    card = card_of(trained, None, 0.01)
    version = training.save(trained, tmp_path, 0, card_files(card))
    memory = load_predictor(tmp_path / version, SETTINGS).predict(request_of(attempts[0])).memory
    assert memory is None or memory.upper > 7990


def test_figures_that_are_not_numbers_are_not_learned_from(tmp_path: Path) -> None:
    attempts = past(120)
    broken = [
        msgspec.structs.replace(
            one, use=msgspec.structs.replace(one.use, peak_mem_mib=math.nan, cores_per_task=math.inf)
        )
        if number % 3 == 0
        else one
        for number, one in enumerate(attempts)
    ]
    trained = training.train(broken, RECENT_JOBS)
    assert all(math.isfinite(target) for matrix in trained.matrices.values() for target in matrix.targets)
    card = card_of(trained, None, 0.01)
    version = training.save(trained, tmp_path, 0, card_files(card))
    assert load_predictor(tmp_path / version, SETTINGS).predict(request_of(attempts[-1])).memory is not None


def test_nothing_is_learned_from_constant_columns() -> None:
    matrix = matrix_of(
        [Row([1.0] * len(FEATURES), 0.0, settled=True, bounded=False, user="ann")] * (2 * MIN_ROWS)
    )
    fitted = fit_growth(matrix)
    assert predict(fitted.booster, matrix.inputs[:1]) == pytest.approx([0.0], abs=0.05)
    assert splits_of(fitted.booster) == [[]] * len(FEATURES)
