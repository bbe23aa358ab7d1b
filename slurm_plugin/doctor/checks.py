"""What is wrong with an installation, by what was seen of it, and the fix. Pure: it asks nothing.

A check is one function from what was seen to (state, what, fix), and one line in CHECKS. `unknown` is what could not be
told: it is no problem of its own, but of what is seen to be one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from models.drift import FeatureDrift, WeekCalibration
from slurm_plugin.doctor.seen import Answer, Complaint, Seen, SocketSeen, TrainingSeen, unread_bytes

State = Literal["ok", "warning", "problem", "unknown"]
Judged = tuple[State, str, str]
# The worst last.
BAD: tuple[State, ...] = ("ok", "unknown", "warning", "problem")

DAY_S, HOUR_S = 86400, 3600
# Two weeks of nightly trainings that failed or were refused.
MODEL_AGE_S = 14 * DAY_S
# The timer ingests every ten minutes.
INGEST_LAG_S = 2 * HOUR_S
# A long weekend without a job's end is possible.
NEWEST_JOB_AGE_S = 4 * DAY_S
# Some 40,000 decisions.
UNREAD_BYTES = 64 * 1024 * 1024
# A clock may be ahead by as much.
CLOCK_S = 300

INGEST = "see `systemctl status rightsizer-ingest.timer` and run `rightsizer ingest`"
LOOK_AT_DRIFT = "compare `rightsizer evaluate --drift`, and see who submits what is new"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found: what it saw, and the fix in one line ("" where none is needed)."""

    check: str
    state: State
    what: str
    fix: str = ""


def judge(seen: Seen) -> list[Finding]:
    """Return the finding of every check."""
    return [_finding(name, check(seen)) for name, check in CHECKS.items()]


def not_configured(why: Complaint) -> list[Finding]:
    """Return what is known where the configuration does not load: that alone."""
    unseen: Judged = "unknown", "not looked at: the configuration does not load", ""
    judged: dict[str, Judged] = dict.fromkeys(CHECKS, unseen)
    judged["configuration"] = "problem", why.what, why.fix
    return [_finding(name, one) for name, one in judged.items()]


def _finding(check: str, judged: Judged) -> Finding:
    state, what, fix = judged
    return Finding(check=check, state=state, what=what, fix=fix)


def _configuration(seen: Seen) -> Judged:
    return "ok", seen.configuration, ""


def _kill_switch(seen: Seen) -> Judged:
    thrown = [switch.path for switch in seen.switches if switch.thrown]
    hidden = [switch.path for switch in seen.switches if switch.thrown is None]
    if thrown:
        return "warning", f"every job is left alone: {', '.join(thrown)} exists", "run `rightsizer enable`"
    if hidden:
        return "unknown", f"{', '.join(hidden)} may not be looked at", "run this as the service's user"
    return "ok", "not thrown", ""


def _service(seen: Seen) -> Judged:
    return max((_socket(one) for one in seen.sockets), key=lambda judged: BAD.index(judged[0]))


def _socket(one: SocketSeen) -> Judged:
    start = f"start `{one.command}` (systemctl restart {one.unit}), and see its log"
    fixes: dict[Answer, tuple[State, str]] = {
        "answers": ("ok", ""),
        "is not ours to ask": ("unknown", "run this as the service's user"),
        "is no socket": ("problem", f"move {one.path} away and {start}"),
    }
    state, fix = fixes.get(one.answer, ("problem", start))
    return state, f"{one.path} {one.answer}", fix


def _model(seen: Seen) -> Judged:
    if isinstance(seen.model, Complaint):
        return "problem", seen.model.what, seen.model.fix
    return "ok", f"{seen.model.version} loads, and every digest holds", ""


def _model_age(seen: Seen) -> Judged:
    if isinstance(seen.model, Complaint):
        return _unseen(seen.model)
    fix = "see `systemctl status rightsizer-train.timer`, `rightsizer models`, and run `rightsizer train`"
    return _by_age("the current model was trained", seen.now_s - seen.model.created_s, MODEL_AGE_S, fix)


def _gate(seen: Seen) -> Judged:
    if isinstance(seen.training, Complaint):
        return _unseen(seen.training)
    newest, verdict = seen.training, seen.training.card.verdict
    if verdict is None:
        return "ok", f"not asked of the newest model, {newest.version}", ""
    if verdict.passed:
        return "ok", f"passed the newest model, {newest.version}", ""
    refused = f"refused the newest model, {newest.version}: {'; '.join(verdict.reasons)}"
    if newest.made_current_by:
        return "ok", f"{refused}; made current all the same by {newest.made_current_by}", ""
    return (
        "warning",
        refused,
        f"read `rightsizer models {newest.version}`; the model before goes on answering",
    )


def _drift(seen: Seen) -> Judged:
    if isinstance(seen.training, Complaint):
        return _unseen(seen.training)
    found = [(dimension, one) for dimension, many in seen.training.card.drift.items() for one in many]
    shown = [f"{dimension}: {one.feature} {one.psi - one.by_chance:.2f}" for dimension, one in _moved(found)]
    what = f"PSI beyond chance {_when(seen.training, seen.now_s)}: {', '.join(shown) or 'none'}"
    return _by_word([one.word for _, one in found], what)


def _moved(found: Iterable[tuple[str, FeatureDrift]]) -> Iterator[tuple[str, FeatureDrift]]:
    return ((dimension, one) for dimension, one in found if one.word in ("shifted", "drifted"))


def _calibration(seen: Seen) -> Judged:
    if isinstance(seen.training, Complaint):
        return _unseen(seen.training)
    last = {one.dimension: week for one in seen.training.card.growth if (week := last_week(one.weeks))}
    shown = [
        f"{dimension} {week.exceeded / week.jobs:.1%} of {week.jobs} (at most {week.nominal:.1%})"
        for dimension, week in last.items()
    ]
    what = (
        f"beyond the model in the last week {_when(seen.training, seen.now_s)}: {', '.join(shown) or 'none'}"
    )
    return _by_word([week.word for week in last.values()], what)


def last_week(weeks: Iterable[WeekCalibration]) -> WeekCalibration | None:
    """Return the last week that has enough jobs to tell; None where none has."""
    return max(
        (one for one in weeks if one.word != "too few to tell"), key=lambda one: one.from_s, default=None
    )


def largest_drift(found: Iterable[FeatureDrift]) -> float | None:
    """Return the largest index of a dimension's features, less what chance gives; None where rows are too few."""
    return max((one.psi - one.by_chance for one in found if one.word != "too few to tell"), default=None)


def _by_word(words: list[str], what: str) -> Judged:
    if "drifted" in words:
        return "problem", what, LOOK_AT_DRIFT
    if "shifted" in words:
        return "warning", what, LOOK_AT_DRIFT
    if "stable" in words:
        return "ok", what, ""
    return "unknown", "the newest model has too few jobs to tell", "wait for more jobs"


def _when(training: TrainingSeen, now_s: float) -> str:
    return f"at the training of {training.version}, jobs until {span(now_s - training.card.last_end_s)} ago"


def _poisoning(seen: Seen) -> Judged:
    if isinstance(seen.model, Complaint):
        return _unseen(seen.model)
    apart = [f"{dimension}: {', '.join(users)}" for dimension, users in seen.model.apart.items() if users]
    if not apart:
        return "ok", "no user is set apart", ""
    return "ok", f"set apart, unlike all others and not learned from: {'; '.join(apart)}", ""


def _store(seen: Seen) -> Judged:
    if isinstance(seen.store, Complaint):
        return "problem", seen.store.what, seen.store.fix
    return "ok", "opens", ""


def _ingest(seen: Seen) -> Judged:
    if isinstance(seen.store, Complaint):
        return _unseen(seen.store)
    if seen.store.read_until_s is None:
        return "unknown", "the store was never read from Slurm's accounting", "run `rightsizer ingest`"
    return _by_age("accounting was read until", seen.now_s - seen.store.read_until_s, INGEST_LAG_S, INGEST)


def _newest_job(seen: Seen) -> Judged:
    if isinstance(seen.store, Complaint):
        return _unseen(seen.store)
    if seen.store.newest_end_s is None:
        return "warning", "the store has no job", "run `rightsizer ingest`"
    fix = "if jobs did end since, see what `sacct -a -X` says as the service's user, then `rightsizer ingest`"
    return _by_age(
        "the newest job in the store ended", seen.now_s - seen.store.newest_end_s, NEWEST_JOB_AGE_S, fix
    )


def _journal(seen: Seen) -> Judged:
    if isinstance(seen.journal, Complaint):
        return _unseen(seen.journal)
    journal = seen.journal
    if not journal.is_there:
        return "warning", f"there is no {journal.folder}", "start the service, which makes it"
    if not journal.is_ours:
        fix = "run this as the service's user; if you did, give it that folder (chown)"
        return "problem", f"{journal.folder} may not be read and written", fix
    if isinstance(seen.store, Complaint):
        return "ok", f"{journal.folder} may be read and written; what of it is ingested is not known", ""
    unread = unread_bytes(journal, seen.store)
    what = f"{unread / 1024 / 1024:.1f} MiB of {journal.folder} are not ingested"
    return ("warning", what, INGEST) if unread > UNREAD_BYTES else ("ok", what, "")


def _unseen(why: Complaint) -> Judged:
    return "unknown", why.what, why.fix


def _by_age(what: str, age_s: float, most_s: float, fix: str) -> Judged:
    """Judge an age that should be at most `most_s`."""
    if age_s < -CLOCK_S:
        return "warning", f"{what} in {span(-age_s)}", "set this machine's clock (timedatectl)"
    return (
        ("warning", f"{what} {span(age_s)} ago", fix)
        if age_s > most_s
        else ("ok", f"{what} {span(age_s)} ago", "")
    )


def span(seconds: float) -> str:
    """Return a span of time in the largest unit that it has two of."""
    for unit, unit_s in (("days", DAY_S), ("hours", HOUR_S), ("minutes", 60)):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


CHECKS: dict[str, Callable[[Seen], Judged]] = {
    "configuration": _configuration,
    "kill-switch": _kill_switch,
    "service": _service,
    "model": _model,
    "model-age": _model_age,
    "gate": _gate,
    "drift": _drift,
    "calibration": _calibration,
    "poisoning": _poisoning,
    "store": _store,
    "ingest": _ingest,
    "newest-job": _newest_job,
    "journal": _journal,
}
