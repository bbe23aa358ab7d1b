"""Whether a new model may take the place of the one that answers: both size the same later jobs. Pure.

Neither has seen the jobs it is judged on. The current model is judged as it is, on jobs submitted after all that it
learned from. A rehearsal of the new model learns what had ended before the later half of those, and both size that
half by the site's policy. On the way, both learn of each job that ends, as in the service, so that under neither does
a family whose need has grown fail again and again. What is promoted then learns from everything. Before the first
model, the opponent is what users ask for, on the latest fifth of all jobs. docs/decisions/0023 says why.

A job that was killed for memory with less than its user asked for is judged too: a model that grants no more than it
had fails it (outcomes.py). Otherwise the jobs that the current model fails would be those that it is not judged on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np

from accounting.errors import UnreadModelError
from accounting.frames import Flags
from accounting.request import JobRequest
from accounting.units import counted
from models.chance import at_least
from models.demand.prediction import ChainSettings, Predictor
from models.judging.outcomes import (
    DIMENSIONS,
    Follow,
    LargeFamilies,
    Outcome,
    Sizing,
    Tally,
    by_family,
    judge,
    lacked_memory,
    large_families,
    to_judge,
    whole,
)
from models.past.columns import PastColumns
from models.past.families import Family, describe_family
from models.training.quantile import Fit, fit_quantile
from models.training.training import train_columns

# Fewer later jobs cannot tell one model from another: the current one stays until there are more.
LEAST_JUDGED = 50
FIRST_JUDGED_SHARE = 0.2
# A refusal for failures must be less likely than this by chance; for families, than this over the number of
# comparisons.
UNLIKELY = 0.05
# Saved shares that differ by less than this count as equal: of all jobs, and of a family.
EQUAL_SAVED, EQUAL_FAMILY_SAVED = 0.01, 0.10
# By dimension and method.
Tallies = dict[tuple[str, str], Tally]
NEW, CURRENT, USERS = "new model", "current model", "users' requests"


class Champion(msgspec.Struct, frozen=True):
    """The model that answers, and the end of the last job it learned from (unix seconds)."""

    predictor: Predictor
    last_end_s: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Both models in one dimension."""

    dimension: str
    old: Tally
    new: Tally


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """What the methods did to all judged jobs, and to those of each large family."""

    all_jobs: Tallies = msgspec.field(default_factory=dict)
    families: dict[Family, Tallies] = msgspec.field(default_factory=dict)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the new model passed, against what, on how many jobs submitted from `split_s` on, and why."""

    passed: bool
    opponent: str
    judged: int
    split_s: int
    reasons: tuple[str, ...]
    comparisons: tuple[Comparison, ...] = ()


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempts to judge on (`after`, submitted from `split_s` on), and which had ended before."""

    split_s: int
    before: Flags
    after: Flags


def gate(
    past: PastColumns,
    settings: ChainSettings,
    recent_jobs: int,
    sizing: Callable[[Predictor], Sizing],
    champion: Champion | None,
    fit: Fit = fit_quantile,
    told: Callable[[float], None] = lambda _: None,
) -> Verdict:
    """Rehearse the new model and judge it against the champion, or against users' requests if there is none.

    Both learn of each job that ends, as in the service, so the champion's predictor is of no use afterwards. The
    rehearsal is fitted by the engine that fits the new model. `told` is called with the share of judging that is done.
    """
    part, opponent = slice_of(past, champion), CURRENT if champion else USERS
    jobs = int(part.after.sum())
    if not jobs or (champion and jobs < LEAST_JUDGED):
        return verdict(Sums(), opponent, settings.most_failures, jobs, part.split_s)
    if not part.before.any():
        return _undecided(opponent, jobs, part.split_s, _nothing_before(opponent, jobs))
    rehearsal = _rehearsal(past.part(part.before), settings, recent_jobs, fit)
    after = to_judge(past, part.split_s)
    old = sizing(champion.predictor) if champion else _as_asked
    follow = {NEW: Follow(np.flatnonzero(past.started & (past.end_s >= part.split_s)), rehearsal.join)}
    if champion:
        since = past.started & (past.end_s > champion.last_end_s)
        follow[CURRENT] = Follow(np.flatnonzero(since), champion.predictor.join)
    outcomes = judge(past, after, {opponent: old, NEW: sizing(rehearsal)}, follow, told)
    sums = added_up(outcomes, large_families(past, after, LEAST_JUDGED))
    return verdict(sums, opponent, settings.most_failures, len(after), part.split_s)


def _rehearsal(past: PastColumns, settings: ChainSettings, recent_jobs: int, fit: Fit) -> Predictor:
    """Return the model that a past makes, without the rows that it was fitted to."""
    trained = train_columns(past, recent_jobs, fit)
    return Predictor("rehearsal", trained.history, trained.growth(settings.most_failures), settings)


def refused_unread(error: UnreadModelError) -> Verdict:
    """Refuse the new model because the current one could not be read, which says nothing of either."""
    told = (
        "the current model stays, because it could not be read and so the new one could not be "
        f"compared with it: {error}; then run `rightsizer train` again"
    )
    return _undecided(CURRENT, 0, 0, told)


def slice_of(past: PastColumns, champion: Champion | None) -> Slice:
    """Return what the gate judges on; empty if nothing is new. Jobs still running at the split are on neither side.

    Killed jobs are included if they had less than their users asked for, as in `to_judge`.
    """
    seen_s = champion.last_end_s if champion else -1
    shown = (past.complete | lacked_memory(past)) & (past.submit_s > seen_s)
    submits = np.sort(past.submit_s[shown])
    if not len(submits):
        return Slice(split_s=seen_s + 1, before=np.zeros_like(shown), after=shown)
    share = 0.5 if champion else FIRST_JUDGED_SHARE
    split_s = int(submits[int(len(submits) * (1 - share))])
    return Slice(
        split_s=split_s,
        before=past.started & (past.end_s < split_s),
        after=shown & (past.submit_s >= split_s),
    )


def added_up(outcomes: Iterable[Outcome], families: LargeFamilies) -> Sums:
    """Add up what became of judged jobs: of all, and of each large family."""
    sums = Sums(families={family: {} for family in families.names})
    for outcome in outcomes:
        key = (outcome.dimension, outcome.method)
        sums.all_jobs[key] = whole(outcome)
        for tallies, tally in zip(sums.families.values(), by_family(outcome, families), strict=True):
            tallies[key] = tally
    return sums


def verdict(sums: Sums, opponent: str, most_failures: float, jobs: int, split_s: int) -> Verdict:
    """Compare NEW with `opponent` on judged jobs; if there are too few, a current model stays.

    `jobs` is how many attempts there were to judge, `split_s` since when they were submitted (unix seconds).
    """
    comparisons = _compared(sums.all_jobs, opponent)
    if not comparisons or (opponent != USERS and jobs < LEAST_JUDGED):
        return _undecided(opponent, jobs, split_s, _too_little_known(opponent, jobs))
    against = [
        *(said for one in comparisons for said in _against(one, most_failures, UNLIKELY, EQUAL_SAVED)),
        *_families_against(sums.families, opponent, most_failures),
    ]
    return Verdict(
        passed=not against,
        opponent=opponent,
        judged=jobs,
        split_s=split_s,
        reasons=tuple(against) or (f"no worse than {opponent} in anything that was judged",),
        comparisons=comparisons,
    )


def _undecided(opponent: str, jobs: int, split_s: int, reason: str) -> Verdict:
    """Return a verdict without evidence: a first model passes, and a current one stays."""
    return Verdict(
        passed=opponent == USERS, opponent=opponent, judged=jobs, split_s=split_s, reasons=(reason,)
    )


def _too_little_known(opponent: str, jobs: int) -> str:
    unknown = jobs >= LEAST_JUDGED
    reason = (
        f"for none of the {jobs} jobs to judge on is the use known (`rightsizer report quality` says why)"
        if unknown
        else f"only {counted(jobs, 'job')} to judge on"
    )
    if opponent == USERS:
        return f"{reason}; a first model is accepted without"
    if unknown:
        return f"{reason}, and the current model stays"
    return (
        f"{reason}, {LEAST_JUDGED} are needed, and the current model stays: half of the jobs newer than "
        f"it are used to judge, so wait until about {2 * max(1, LEAST_JUDGED - jobs)} more jobs of "
        "known use have ended"
    )


def _nothing_before(opponent: str, jobs: int) -> str:
    stays = "; a first model is accepted without" if opponent == USERS else ", and the current model stays"
    return (
        f"no job had ended before the {jobs} jobs to judge on were submitted, so a rehearsal has "
        f"nothing to learn from{stays}; run `rightsizer train` again when jobs submitted from now on "
        "have ended"
    )


def fails_more(old: Tally, new: Tally, most_failures: float, unlikely: float) -> bool:
    """Return whether the new model fails more of the jobs it resizes than chance explains.

    By chance they would fail as often as those that the old model resizes (with one more of each added, so that none
    does not mean never), but no more often than the site accepts.
    """
    expected = min(most_failures, (old.failed + 1) / (old.resized + 1))
    return new.failed > old.failed and at_least(new.failed, new.resized, expected) < unlikely


def _against(one: Comparison, most_failures: float, unlikely: float, equal_saved: float) -> list[str]:
    said: list[str] = []
    if fails_more(one.old, one.new, most_failures, unlikely):
        said.append(
            f"{one.dimension}: fails {one.new.failed} of {one.new.resized} resized jobs, compared with "
            f"{one.old.failed} of {one.old.resized}"
        )
    if one.new.saved_share < one.old.saved_share - equal_saved:
        said.append(
            f"{one.dimension}: saves {one.new.saved_share:.1%} of what was asked for, compared with "
            f"{one.old.saved_share:.1%}"
        )
    return said


def _families_against(families: Mapping[Family, Tallies], opponent: str, most_failures: float) -> list[str]:
    known = {family: _compared(tallies, opponent, LEAST_JUDGED) for family, tallies in families.items()}
    count = sum(map(len, known.values()))
    return [
        f"{describe_family(family)}: {said}"
        for family, comparisons in known.items()
        for one in comparisons
        for said in _against(one, most_failures, UNLIKELY / count, EQUAL_FAMILY_SAVED)
    ]


def _compared(tallies: Tallies, opponent: str, least: int = 1) -> tuple[Comparison, ...]:
    comparisons = (
        Comparison(dimension=dimension, old=tallies[dimension, opponent], new=tallies[dimension, NEW])
        for dimension in DIMENSIONS
        if (dimension, NEW) in tallies
    )
    # The model with more rows may be the one that fails killed jobs, and the other has few or none.
    return tuple(one for one in comparisons if max(one.old.jobs, one.new.jobs) >= least)


def _as_asked(request: JobRequest) -> JobRequest:
    return request
