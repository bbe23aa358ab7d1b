"""What the doctor says of the model: damaged, old, refused, drifted, miscalibrated."""

import shutil

import msgspec
import pytest

from models.judging.card import card_files, card_of
from models.judging.drift import Word
from models.judging.promotion import CURRENT, Verdict
from models.past.jobs import Learned
from models.versions import registry
from slurm_plugin.doctor.model_checks import MODEL_AGE_S
from tests.builders import T0
from tests.slurm_plugin.doctor.installation import HOUR_S, PASSED, Installation, feature, week

REFUSED = Verdict(passed=False, opponent=CURRENT, judged=80, split_s=T0, reasons=("memory: fails 9 of 60",))


def test_a_damaged_model_is_a_problem(whole: Installation) -> None:
    version = registry.current_version(whole.site.models)
    assert version is not None
    with (whole.site.models / version / "history.json").open("ab") as history:
        history.write(b" ")
    whole.expect("model", "problem", "differs from its digest", "rightsizer train")
    rows, _ = whole.found()
    assert (rows["model-age"]["state"], rows["poisoning"]["state"]) == ("unknown", "unknown")


def test_an_old_model_is_a_warning(whole: Installation) -> None:
    shutil.rmtree(whole.site.models)
    whole.train(ago_s=MODEL_AGE_S + HOUR_S)
    whole.expect("model-age", "warning", "was trained 14 days ago", "rightsizer-train.timer")


def test_a_refused_training_is_a_warning(whole: Installation) -> None:
    version = whole.train(verdict=REFUSED, ago_s=30, promote=False)
    whole.expect(
        "gate",
        "warning",
        f"refused .*{version}: memory: fails 9 of 60",
        f"rightsizer models {version}.*; the previous model stays in use$",
    )
    registry.promote(whole.site.models, version)
    whole.expect("gate", "ok", r"promoted anyway by .* \(by hand\)")


def test_without_a_promoted_model_it_says_what_to_do(whole: Installation) -> None:
    shutil.rmtree(whole.site.models)
    version = whole.train(verdict=REFUSED, ago_s=30, promote=False)
    rows, _ = whole.found()
    assert rows["model"]["state"] == "problem"
    assert rows["model"]["saw"].startswith("none of the models in ")
    assert f"`rightsizer models {version}`" in rows["model"]["fix"]
    assert rows["gate"]["fix"].endswith("; no model is in use")


def test_the_first_of_many_reasons_are_given(whole: Installation) -> None:
    many = tuple(f"jobs of u{number}: memory: fails" for number in range(12))
    whole.train(verdict=msgspec.structs.replace(REFUSED, reasons=many), ago_s=30, promote=False)
    whole.expect("gate", "warning", "jobs of u2: memory: fails and 9 more$", "rightsizer models")


def test_a_training_without_the_gate_is_reported(whole: Installation) -> None:
    version = whole.train(verdict=None, ago_s=30)
    whole.expect("gate", "ok", f"did not judge the newest model, {version}")


@pytest.mark.parametrize(
    ("word", "state"),
    [("stable", "ok"), ("shifted", "warning"), ("drifted", "warning"), ("too few to tell", "unknown")],
)
def test_drift_is_what_the_newest_card_says(whole: Installation, word: Word, state: str) -> None:
    version = whole.train(drift=(feature("stable", "day"), feature(word)), ago_s=30)
    if word == "too few to tell":
        version = whole.train(drift=(feature(word),), ago_s=20)
    said = {"shifted": "memory: hour 0.20", "drifted": "memory: hour 0.70", "stable": "none"}.get(
        word, "too few"
    )
    whole.expect("drift", state, said)
    if state != "unknown":
        whole.expect("drift", state, f"at the training of {version}, on jobs that ended up to")


def test_drift_that_comes_with_the_age_of_families_counts_only_if_calibration_moved(
    whole: Installation,
) -> None:
    aged = (feature("drifted", "jobs_seen"), feature("stable"))
    whole.train(drift=aged, ago_s=30)
    whole.expect("drift", "ok", "none$")
    whole.train(drift=aged, weeks=(week("shifted"), week("stable", T0 + 1)), ago_s=20)
    whole.expect("drift", "warning", "memory: jobs_seen 0.70$", "evaluate --drift")


@pytest.mark.parametrize(
    ("word", "state"),
    [("stable", "ok"), ("shifted", "warning"), ("drifted", "problem"), ("too few to tell", "unknown")],
)
def test_calibration_is_that_of_the_last_week_with_enough_jobs(
    whole: Installation, word: Word, state: str
) -> None:
    before: Word = "too few to tell" if state == "unknown" else "drifted" if word == "stable" else "stable"
    later = week("too few to tell", T0 + 2)
    whole.train(weeks=(week(before), week(word, T0 + 1), later), ago_s=30)
    share = {"stable": "1.0% of 500", "shifted": "2.2%", "drifted": "10.0%"}.get(word, "too few")
    whole.expect("calibration", state, share)


@pytest.mark.parametrize("dimension", ["wall", "gpu_mem"])
@pytest.mark.parametrize(("word", "state"), [("shifted", "ok"), ("drifted", "warning")])
def test_a_dimension_that_no_grant_depends_on_is_judged_one_step_milder(
    whole: Installation, dimension: Learned, word: Word, state: str
) -> None:
    whole.train(weeks=(week(word),), ago_s=30, dimension=dimension)
    whole.expect("calibration", state, f"{dimension} ")


def test_a_model_without_a_card_is_unknown(whole: Installation) -> None:
    whole.save(whole.trained, 30, None, promote=True)
    for check in ("gate", "drift", "calibration"):
        whole.expect(check, "unknown", "was made without a card", "rightsizer train")


def test_a_card_of_another_version_is_unknown(whole: Installation) -> None:
    whole.save(whole.trained, 30, {"card.json": b'{"verdict": null}'}, promote=True)
    whole.expect("drift", "unknown", "written by another version", "rightsizer train")


def test_users_who_are_set_apart_are_named(whole: Installation) -> None:
    fitted = dict(whole.trained.fitted)
    known = msgspec.structs.replace(fitted["memory"].known, apart=("ann", "bob"))
    fitted["memory"] = msgspec.structs.replace(fitted["memory"], known=known)
    trained = msgspec.structs.replace(whole.trained, fitted=fitted)
    card = card_files(card_of(whole.trained, PASSED, 0.01))
    whole.save(trained, 30, card, promote=True)
    whole.expect("poisoning", "ok", "not learned from, .*: memory: ann, bob$")
