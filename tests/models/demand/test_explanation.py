"""What a prediction rests on: its last step is the prediction, its contributions are what the model says."""

import json
import math
import random
import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.demand.chain import SETTLED_JOBS, SETTLED_STREAK, Growth
from models.demand.explanation import TOLD_FEATURES, Explained, explain, grounds_of
from models.demand.feature_words import WORDS
from models.demand.features import FEATURES, features
from models.demand.prediction import ChainSettings, Predictor
from models.demand.tail import NEXT_RUN_LOG
from models.past.attempts import past_job, request_of
from models.past.failing import FAILS_IN_A_ROW
from models.past.history import History
from models.past.jobs import LEARNED
from models.versions.artefact import load_predictor
from models.versions.tree_shap import booster_contributions, read_contributions
from slurm_plugin.cli.why import explained_rows
from tests.builders import T0, attempt
from tests.conftest import TrainedModel

KNOWN = request_of(attempt())


def known(*used_mib: float) -> History:
    history = History(50)
    for number, mib in enumerate(used_mib, start=1):
        one = attempt(job_id=number, start_s=T0 + 1000 * number, mem_mib=mib, gpus=1, req_gpus=4)
        history.add(request_of(one), past_job(one))
    return history


def explained(predictor: Predictor, dimension: str = "memory") -> Explained:
    return {one.dimension: one for one in explain(predictor, KNOWN, {})}[dimension]  # type: ignore[index]


def settled_mib() -> list[float]:
    draw = random.Random(7)
    return [900.0, *(draw.uniform(100, 850) for _ in range(SETTLED_JOBS + SETTLED_STREAK))]


def test_every_feature_has_words_and_none_is_left_over() -> None:
    assert set(WORDS) == set(FEATURES)
    assert len({words.phrase for words in WORDS.values()}) == len(WORDS)


@given(
    st.lists(st.floats(1, 1e5), min_size=1, max_size=40),
    st.none() | st.floats(-2, 2),
    st.none() | st.floats(-1, 1),
    st.integers(1, 6),
)
def test_the_last_step_is_the_prediction(
    used: list[float], log_growth: float | None, offset: float | None, enough: int
) -> None:
    growth = {} if log_growth is None else dict.fromkeys(LEARNED, Growth(lambda _: log_growth, offset))
    predictor = Predictor("m", known(*used), growth, ChainSettings(min_evidence=enough))
    predicted = predictor.predict(KNOWN)
    estimates = {
        "memory": predicted.memory,
        "cores": predicted.cores,
        "wall": predictor.wall_time(KNOWN),
        "gpu_mem": predictor.gpu_mem_mib(KNOWN),
        "gpus": predicted.gpus,
    }
    for one in explain(predictor, KNOWN, {}):
        estimate = estimates[one.dimension]
        assert one.enough == (estimate is not None)
        if estimate is not None:
            assert one.steps[-1].upper == estimate.upper
        if one.dimension != "gpus":
            names = [step.name for step in one.steps]
            assert names[:3] == ["highest", "streak", "spread"]
            assert "margin" in names[-2:] if one.dimension == "cores" else names[-1] == "margin"
            lowering = {"growth", "threads", "whole"} if one.dimension == "cores" else {"growth"}
            assert set(names[3:]) <= {"margin", *lowering}
            streak, spread = one.steps[1:3]
            assert streak.counts != spread.counts
            bounds = [step.upper for step in (streak, spread) if step.upper is not None]
            before = next(
                step.upper for step in one.steps[3:] if step.name in ("growth", "threads", "margin")
            )
            assert before is not None
            assert before <= min(bounds) * (1.01 + 1e-9)


@pytest.mark.parametrize(("busy", "why"), [(0.99, "too few"), (0.01, "stopped")])
def test_the_last_step_is_the_prediction_also_where_cpus_were_too_few(busy: float, why: str) -> None:
    history = History(100)
    for number in range(22):
        one = attempt(
            job_id=number + 1,
            start_s=T0 + 1000 * number,
            elapsed_s=600,
            req_cpus=8,
            alloc_cpus=8 if number < 20 else 1,
            cores=0.95 if number < 20 else busy,
            state="COMPLETED" if number < 20 else "TIMEOUT",
        )
        history.add(request_of(one), past_job(one))
    predictor = Predictor("m", history, {}, ChainSettings())
    wanted = request_of(one)
    [cores] = [one for one in explain(predictor, wanted, {}) if one.dimension == "cores"]
    predicted = predictor.predict(wanted).cores
    assert predicted is not None
    assert (cores.steps[-1].name, cores.steps[-1].upper) == (why, predicted.upper)
    assert predicted.upper > 1


def test_the_last_step_is_the_prediction_also_where_gpus_were_too_few() -> None:
    history = History(100)
    for number in range(12):
        failed = number == 10
        one = attempt(
            job_id=min(number, 10) + 1,
            start_s=T0 + 1000 * number,
            req_gpus=4,
            alloc_gpus=1 if failed else 4,
            gpus=1,
            state="FAILED" if failed else "COMPLETED",
        )
        history.add(request_of(one), past_job(one))
    predictor = Predictor("m", history, {}, ChainSettings())
    wanted = request_of(one)
    [gpus] = [one for one in explain(predictor, wanted, {}) if one.dimension == "gpus"]
    assert [(step.name, step.upper) for step in gpus.steps] == [("busy", 1.0), ("stopped", 4.0)]
    predicted = predictor.predict(wanted).gpus
    assert predicted is not None
    assert predicted.upper == 4


def test_a_growth_model_that_lowers_says_by_how_much() -> None:
    growth = {"memory": Growth(lambda _: 0.001, 0.0)}
    predictor = Predictor("m", known(*settled_mib()), growth, ChainSettings())  # type: ignore[arg-type]
    one = explained(predictor)
    assert [step.name for step in one.steps] == ["highest", "streak", "spread", "growth", "margin"]
    highest, lowered = one.steps[0].upper, one.steps[3].upper
    assert highest == pytest.approx(900.0)
    assert lowered == pytest.approx(900.0 * math.exp(0.001))
    assert one.silence == ""


def test_where_runs_surprise_the_explanation_counts_runs() -> None:
    runs = [
        attempt(job_id=20 * run + number, start_s=T0 + 10**6 * run, elapsed_s=600, mem_mib=500.0 + 100 * run)
        for run in range(2)
        for number in range(1, 11)
    ]
    history = History(100)
    for one in runs:
        history.add(request_of(one), past_job(one))
    later = attempt(job_id=99, user="bob", job_name="other", start_s=T0 + 2 * 10**6)
    history.add(request_of(later), past_job(later))
    predictor = Predictor("m", history, {}, ChainSettings())
    [memory] = [one for one in explain(predictor, request_of(runs[0]), {}) if one.dimension == "memory"]
    assert (memory.streak, memory.runs) == (10, 1)
    told = [row["what"] for row in explained_rows(memory)]
    assert told[1] == "allowance for surprises: 1 run of such jobs since the last"


def test_what_was_known_before_the_run_under_way_is_reported_as_such() -> None:
    history = History(100)
    for number in range(9):
        one = attempt(job_id=number + 1, start_s=T0, elapsed_s=600, mem_mib=400.0 + 10 * number)
        history.add(request_of(one), past_job(one))
    new = attempt(job_id=99, start_s=T0 + 10**6, elapsed_s=600, mem_mib=300.0)
    history.add(request_of(new), past_job(new))
    predictor = Predictor("m", history, {}, ChainSettings())
    told = {one.dimension: one for one in explain(predictor, request_of(new), {})}
    memory = told["memory"]
    assert (memory.before, memory.jobs, memory.streak, memory.runs) == (True, 10, 1, None)
    prediction = predictor.predict(request_of(new)).memory
    assert prediction is not None
    assert memory.steps[-1].upper == prediction.upper
    streak = [row["what"] for row in explained_rows(memory)][1]
    assert streak == "allowance for surprises: 1 job, all before the run in progress, since the last"
    assert not told["cores"].before


def test_the_room_left_for_a_new_run_is_reported_as_a_step() -> None:
    history = History(100)
    for number in range(20):
        one = attempt(job_id=number + 1, start_s=T0, elapsed_s=600, mem_mib=500.0)
        history.add(request_of(one), past_job(one))
    later = attempt(job_id=99, user="bob", job_name="other", start_s=T0 + 10**6)
    history.add(request_of(later), past_job(later))
    predictor = Predictor("m", history, {}, ChainSettings())
    [memory] = [one for one in explain(predictor, request_of(one), {}) if one.dimension == "memory"]
    steps = {step.name: step for step in memory.steps}
    assert [name for name, step in steps.items() if step.counts] == ["highest", "next run", "margin"]
    assert steps["next run"].upper == pytest.approx(500 * math.exp(NEXT_RUN_LOG))
    rows = [row for row in explained_rows(memory) if row["part"] == "step"]
    assert rows[3]["what"] == "a new run may need more than the runs before it"
    # It counts in place of both others, although one of them is the lower.
    assert [row["effect"] for row in rows] == ["", "not counted", "not counted", "", ""]


def test_the_only_job_of_a_family_far_smaller_than_the_sites_is_explained() -> None:
    history = History(100)
    for number in range(60):
        one = attempt(
            job_id=number + 1, start_s=T0 + 10**6 * number, user="bob", elapsed_s=10**5, req_mem_mib=10**6
        )
        history.add(request_of(one), past_job(one))
    tiny = attempt(job_id=99, mem_mib=1.0, req_mem_mib=64_000)
    history.add(request_of(tiny), past_job(tiny))
    predictor = Predictor("m", history, {}, ChainSettings())
    asked = request_of(tiny)
    [memory] = [one for one in explain(predictor, asked, {}) if one.dimension == "memory"]
    predicted = predictor.predict(asked).memory
    assert predicted is not None
    assert memory.steps[-1].upper == predicted.upper
    assert [step.name for step in memory.steps if step.counts] == ["highest", "streak", "margin"]


@pytest.mark.parametrize(
    ("ends", "kills", "what"),
    [
        (["OUT_OF_MEMORY", "COMPLETED"], "unseen", "with more memory than Slurm saw them use"),
        (["OUT_OF_MEMORY", "OUT_OF_MEMORY"], "unanswered", "no later job has shown how much is enough"),
    ],
)
def test_kills_that_leave_memory_unpredicted_are_explained(ends: list[str], kills: str, what: str) -> None:
    history = known(200.0, 200.0)
    asked_mib = KNOWN.mem_mib
    assert asked_mib is not None
    for place, state in enumerate(ends):
        given_mib = asked_mib if state == "COMPLETED" else 500
        # The second run is of the same job.
        one = attempt(job_id=9, start_s=T0 + 10_000 * (place + 1), state=state, alloc_mem_mib=given_mib)
        history.add(request_of(one), past_job(one))
    predictor = Predictor("m", history, {}, ChainSettings())
    predicted, told = predictor.predict(KNOWN), explained(predictor)
    assert (predicted.memory, predicted.untold, told.untold) == (None, kills, kills)
    [said] = [str(row["what"]) for row in explained_rows(told) if "request is kept" in str(row["what"])]
    assert what in said
    assert explained(predictor, "cores").untold == ""


def test_jobs_that_failed_one_after_the_other_leave_memory_and_cpus_unpredicted() -> None:
    history = known(200.0, 200.0)
    for place in range(FAILS_IN_A_ROW):
        one = attempt(job_id=9 + place, start_s=T0 + 10_000 * (place + 1), state="FAILED", alloc_mem_mib=500)
        one = msgspec.structs.replace(one, row=msgspec.structs.replace(one.row, alloc_cpus=1))
        history.add(request_of(one), past_job(one))
    predictor = Predictor("m", history, {}, ChainSettings())
    predicted, told, cores = predictor.predict(KNOWN), explained(predictor), explained(predictor, "cores")
    assert (predicted.memory, predicted.untold, told.untold) == (None, "failing", "failing")
    [said] = [str(row["what"]) for row in explained_rows(told) if "request is kept" in str(row["what"])]
    assert "failed one after the other with less" in said
    assert predicted.cores is not None
    assert (predicted.cores.upper, cores.steps[-1].name) == (KNOWN.cpus_per_task, "stopped")


@pytest.mark.parametrize(
    ("growth", "jobs", "silence"),
    [
        (None, 30, "no model"),
        (Growth(lambda _: 0.0, None), 30, "not calibrated"),
        (Growth(lambda _: 0.0, 0.0), 3, "not settled"),
        (Growth(lambda _: 0.0, 0.0, frozenset({"alice"})), 30, "apart"),
        (Growth(lambda _: 0.0, 0.0), 30, ""),
    ],
)
def test_a_growth_model_without_an_answer_says_why(growth: Growth | None, jobs: int, silence: str) -> None:
    models = {} if growth is None else {"memory": growth}
    predictor = Predictor("m", known(*settled_mib()[:jobs]), models, ChainSettings())  # type: ignore[arg-type]
    assert explained(predictor).silence == silence


@pytest.mark.parametrize("dimension", LEARNED)
def test_contributions_add_up_to_what_is_served(dimension: str, trained_model: TrainedModel) -> None:
    predictor = load_predictor(trained_model.folder, ChainSettings())
    contributions = read_contributions(trained_model.folder)[dimension]  # type: ignore[index]
    fitted = trained_model.trained.fitted[dimension]  # type: ignore[index]
    served = predictor.growth[dimension].predict  # type: ignore[index]
    for one in trained_model.attempts[-30:]:
        asked = request_of(one)
        sight = predictor.sight(asked)
        assert sight is not None
        row = features(asked, sight.evidence, sight.user_habit, dimension)  # type: ignore[arg-type]
        added = contributions(row)
        assert len(added) == len(FEATURES) + 1
        assert sum(added) == pytest.approx(served(row), abs=1e-4)
        assert added == booster_contributions(fitted.booster)(row)
        grounds = grounds_of(row, added, 0.25)
        told = sum(each.log_growth for each in grounds.contributions)
        assert grounds.base + told + grounds.others == pytest.approx(grounds.log_growth)
        assert grounds.log_growth == pytest.approx(served(row), abs=1e-4)
        assert len(grounds.contributions) <= TOLD_FEATURES
        logs = [abs(each.log_growth) for each in grounds.contributions]
        assert logs == sorted(logs, reverse=True)


def test_a_trained_model_is_explained_in_full(trained_model: TrainedModel) -> None:
    loaded = load_predictor(trained_model.folder, ChainSettings())
    calibrated = {name: Growth(growth.predict, 0.0) for name, growth in loaded.growth.items()}
    predictor = Predictor("m", known(*settled_mib()), calibrated, ChainSettings())
    told = explain(predictor, KNOWN, read_contributions(trained_model.folder))
    assert [one.dimension for one in told] == ["memory", "cores", "wall", "gpu_mem", "gpus"]
    grounds = told[0].growth
    assert grounds is not None
    sight = predictor.sight(KNOWN)
    assert sight is not None
    row = features(KNOWN, sight.evidence, sight.user_habit, "memory")
    assert grounds.log_growth == pytest.approx(calibrated["memory"].predict(row), abs=1e-4)


def test_the_past_jobs_are_the_highest_and_the_newest_with_their_numbers() -> None:
    predictor = Predictor("m", known(100, 900, 300, 200, 400), {}, ChainSettings())
    rests = explained(predictor).rests_on
    assert [(one.which, one.job_id, one.used) for one in rests] == [
        ("highest", 2, 900.0),
        ("newest", 5, 400.0),
        ("newest", 4, 200.0),
        ("newest", 3, 300.0),
    ]
    assert rests[1].end_s == T0 + 5000 + 100
    gpus = explained(predictor, "gpus")
    assert (gpus.steps[0].upper, gpus.rests_on[0].used) == (1.0, 1.0)


def test_the_highest_past_job_is_one_that_managed_with_the_requested_amount() -> None:
    asked = KNOWN.mem_mib
    assert asked is not None
    one = explained(Predictor("m", known(asked / 4, asked + 1, asked / 8), {}, ChainSettings()))
    assert [(job.which, job.job_id) for job in one.rests_on[:2]] == [("highest", 1), ("newest", 3)]
    assert one.steps[0].upper == asked / 4


def test_a_killed_job_counts_as_more_than_it_used() -> None:
    history = History(50)
    for number, (mib, killed) in enumerate([(900.0, False), (800.0, True)], start=1):
        one = past_job(attempt(job_id=number, start_s=T0 + 1000 * number, mem_mib=mib))
        history.add(KNOWN, msgspec.structs.replace(one, mem_at_least=killed, complete=not killed))
    told = explained(Predictor("m", history, {}, ChainSettings()))
    highest = told.rests_on[0]
    assert (highest.job_id, highest.used, highest.needed, highest.at_least) == (2, 800.0, 960.0, True)
    assert told.steps[0].upper == pytest.approx(960.0)


def test_an_unknown_user_gets_no_explanation() -> None:
    predictor = Predictor("m", known(100.0), {}, ChainSettings())
    assert explain(predictor, msgspec.structs.replace(KNOWN, user="stranger"), {}) == ()


def test_nothing_of_another_user_is_in_an_explanation(trained_model: TrainedModel) -> None:
    loaded = load_predictor(trained_model.folder, ChainSettings())
    contributions = read_contributions(trained_model.folder)

    def told(others_mib: float) -> bytes:
        history = known(*settled_mib())
        for number in range(40):
            one = attempt(job_id=5000 + number, user="bob", start_s=T0 + number, mem_mib=others_mib)
            history.add(request_of(one), past_job(one))
        growth = {name: Growth(model.predict, 0.0) for name, model in loaded.growth.items()}
        return msgspec.json.encode(
            explain(Predictor("m", history, growth, ChainSettings()), KNOWN, contributions)
        )

    for mib in (50.0, 7777.0):
        text = told(mib)
        assert b"bob" not in text
        assert b"7777" not in text
        assert b"500" not in {str(job["job_id"]).encode()[:3] for job in json.loads(text)[0]["rests_on"]}
        assert b"account" not in text
        assert b"partition" not in text


def test_a_damaged_model_explains_nothing(trained_model: TrainedModel, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(trained_model.folder, folder)
    (folder / "memory.ubj").write_bytes(b"{}")
    with pytest.raises(ModelError, match=r"run `rightsizer train`"):
        read_contributions(folder)
