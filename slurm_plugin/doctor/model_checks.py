"""Checks of the current model, and of the card of the newest training. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from models.judging.drift import FeatureDrift, WeekCalibration, Word, counted
from slurm_plugin.doctor.finding import DAY_S, Judged, State, by_age, closed_to, span, unseen
from slurm_plugin.doctor.seen import CardPart, Complaint, Seen, TrainingSeen

# After two weeks in which every nightly training failed or was refused.
MODEL_AGE_S = 14 * DAY_S
# How many reasons against a model are shown: a large site may have hundreds of them, one for each family.
SHOWN = 3
# The dimensions in which growth models decide grants; run times and the memory of GPUs are only reported.
GRANTED = ("memory", "cores")
MILDER: dict[Word, Word] = {"drifted": "shifted", "shifted": "stable"}
LOOK_AT_DRIFT = "see `rightsizer evaluate --drift`, and find out who submits new kinds of jobs"


def model(seen: Seen) -> Judged:
    """Whether the current model loads as the service loads it."""
    if isinstance(seen.model, Complaint):
        return "problem", seen.model.what, seen.model.fix
    if seen.model.closed:
        shut = ", ".join(seen.model.closed)
        what = (
            f"{seen.model.version} loads, but {shut} cannot be written: no model can be trained, and "
            "newly ended jobs are not passed on to the service"
        )
        return "warning", what, closed_to("the user who trains and ingests")
    return "ok", f"{seen.model.version} loads, and every digest is correct", ""


def model_age(seen: Seen) -> Judged:
    """How long ago the current model was trained."""
    if isinstance(seen.model, Complaint):
        return unseen(seen.model)
    fix = "see `systemctl status rightsizer-train.timer` and `rightsizer models`, then run `rightsizer train`"
    return by_age("the current model was trained", seen.now_s - seen.model.created_s, MODEL_AGE_S, fix)


def gate(seen: Seen) -> Judged:
    """Whether the promotion gate refused the newest model."""
    if isinstance(seen.training, Complaint):
        return unseen(seen.training)
    newest, verdict = seen.training, seen.training.card.verdict
    if verdict is None:
        return "ok", f"did not judge the newest model, {newest.version}", ""
    if verdict.passed:
        return "ok", f"accepted the newest model, {newest.version}", ""
    more = f" and {len(verdict.reasons) - SHOWN} more" if len(verdict.reasons) > SHOWN else ""
    refused = f"refused the newest model, {newest.version}: {'; '.join(verdict.reasons[:SHOWN])}{more}"
    if newest.made_current_by:
        return "ok", f"{refused}; promoted anyway by {newest.made_current_by}", ""
    meanwhile = "the previous model stays in use" if newest.is_another_current else "no model is in use"
    return "warning", refused, f"see `rightsizer models {newest.version}`; {meanwhile}"


def drift(seen: Seen) -> Judged:
    """How far the features of the latest jobs had drifted at the newest training, as `evaluate --drift` counts them.

    At most a warning: the model may predict new kinds of jobs as well as known ones. `calibration` shows if it does.
    """
    if isinstance(seen.training, Complaint):
        return unseen(seen.training)
    found = [(dimension, one) for dimension, many in counted_drift(seen.training.card) for one in many]
    shown = [
        f"{dimension}: {one.feature} {one.psi - one.by_chance:.2f}"
        for dimension, one in found
        if one.word in ("shifted", "drifted")
    ]
    what = f"PSI beyond chance {_when(seen.training, seen.now_s)}: {', '.join(shown) or 'none'}"
    return _by_word([one.word for _, one in found], what, drifted="warning")


def calibration(seen: Seen) -> Judged:
    """How many jobs of the last week used more than the model allowed, at the newest training."""
    if isinstance(seen.training, Complaint):
        return unseen(seen.training)
    last = {one.dimension: week for one in seen.training.card.growth if (week := last_week(one.weeks))}
    shown = [
        f"{dimension} {week.observed:.1%} of {week.jobs} jobs (at most {week.nominal:.1%})"
        for dimension, week in last.items()
    ]
    what = (
        f"jobs that used more than the model allowed in the last week {_when(seen.training, seen.now_s)}: "
        f"{', '.join(shown) or 'none'}"
    )
    words = [_as_it_matters(dimension, week.word) for dimension, week in last.items()]
    return _by_word(words, what, drifted="problem")


def _as_it_matters(dimension: str, word: Word) -> Word:
    """Return a word one step milder if no grant depends on the dimension, as for run times and the memory of GPUs."""
    return word if dimension in GRANTED else MILDER.get(word, word)


def poisoning(seen: Seen) -> Judged:
    """Which users the current model did not learn from."""
    if isinstance(seen.model, Complaint):
        return unseen(seen.model)
    apart = [f"{dimension}: {', '.join(users)}" for dimension, users in seen.model.apart.items() if users]
    if not apart:
        return "ok", "the model learned from every user", ""
    return "ok", f"not learned from, because these users differ from all others: {'; '.join(apart)}", ""


def last_week(weeks: Iterable[WeekCalibration]) -> WeekCalibration | None:
    """Return the last week that has enough jobs to judge; None if none has."""
    return max(
        (one for one in weeks if one.word != "too few to tell"), key=lambda one: one.from_s, default=None
    )


def counted_drift(card: CardPart) -> Iterator[tuple[str, tuple[FeatureDrift, ...]]]:
    """Yield each dimension with those of its features whose drift counts."""
    weeks = {one.dimension: one.weeks for one in card.growth}
    for dimension, found in card.drift.items():
        yield dimension, counted(found, weeks.get(dimension, ()))


def largest_drift(found: Iterable[FeatureDrift]) -> float | None:
    """Return the largest index of a dimension's features, minus what chance gives; None if there are too few rows."""
    return max((one.psi - one.by_chance for one in found if one.word != "too few to tell"), default=None)


def _by_word(words: Sequence[str], what: str, drifted: State) -> Judged:
    if "drifted" in words:
        return drifted, what, LOOK_AT_DRIFT
    if "shifted" in words:
        return "warning", what, LOOK_AT_DRIFT
    if "stable" in words:
        return "ok", what, ""
    return "unknown", "the newest model has too few jobs to judge this", "wait for more jobs"


def _when(training: TrainingSeen, now_s: float) -> str:
    return (
        f"at the training of {training.version}, on jobs that ended up to "
        f"{span(now_s - training.card.last_end_s)} ago"
    )
