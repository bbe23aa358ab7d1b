"""Finds the decisions of jobs whose admin comment another tool has replaced in slurmdbd, token and all. Pure.

Jobstats' EpilogSlurmctld does so at the end of every job. Then only our journal knows what the job's user asked for.
A decision is taken for a job's if the user and the name are the same, if it was made as slurmctld took the job, and if
Slurm's figures are what it left. If several would do that tell of different requests, none is taken. A job that was
queued again keeps the decision about its submission.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from accounting.decisions.decision import Decision
from accounting.decisions.slurm_figures import unlike_slurm
from accounting.decisions.token import Token, find_token, format_token, with_journalled
from accounting.records import JobRow

# slurmctld asks before it stamps the job, in whole seconds; a busy one takes its time in between.
BEFORE_S, AFTER_S = 10, 1
# Moments that are less apart are read together.
TOGETHER_S = 3600
# A user may submit hundreds of jobs a second, each with a request of its own. No more kinds than these are compared.
MOST_KINDS = 32


class Made(NamedTuple):
    """A decision that may be some job's: when it was made, what its token tells but for whose it is, and the token."""

    time_s: float
    told: str
    token: Token | None
    decision: Decision


def moments(rows: Iterable[JobRow]) -> list[tuple[int, int]]:
    """Return when decisions about rows were made: spans of unix seconds, both included, in their order."""
    spans: list[tuple[int, int]] = []
    for submit_s in sorted({row.submit_s for row in rows}):
        begin_s, end_s = submit_s - BEFORE_S, submit_s + AFTER_S
        if spans and begin_s - spans[-1][1] < TOGETHER_S:
            begin_s = spans.pop()[0]
        spans.append((begin_s, end_s))
    return spans


def restored_comments(
    rows: Sequence[JobRow],
    decisions: Iterable[Decision],
    known: Mapping[int, str],
    before: Mapping[int, Decision] | None = None,
) -> dict[int, str]:
    """Return the admin comments with the tokens of their decisions, by row, of jobs that have lost their own.

    `known` are comments that were restored before, by row: they stay. `before` are the decisions that other attempts of
    the same jobs name, by row.
    """
    before = before or {}
    own = {token.decision_id for comment in known.values() if (token := find_token(comment)) is not None}
    own |= {one.id for one in before.values()}
    free = _by_work(one for one in decisions if one.id not in own)
    found = dict(known)
    for places in _submissions(rows, known):
        decision = _named_before(rows, places, before) or _taken(rows[places[0]], free)
        if decision is None:
            continue
        token = _token(decision)
        # What was queued again with its original request was not cut.
        found |= {
            place: with_journalled(rows[place].admin_comment, decision)
            for place in places
            if _left_by(token, rows[place])
        }
    return found


def _by_work(decisions: Iterable[Decision]) -> dict[tuple[str, str], list[Made]]:
    """Return decisions by user and name, the earliest first.

    Those that a client's job names in its token are left out, and those about jobs that waited already.
    """
    found: dict[tuple[str, str], list[Made]] = {}
    ordered = sorted(decisions, key=attrgetter("time_s", "id"))
    named = {one.via for one in ordered}
    for one in ordered:
        if one.id not in named and not one.replaces:
            made = Made(one.time_s, _told(one), _token(one), one)
            found.setdefault((one.request.user, one.request.job_name), []).append(made)
    return found


def _submissions(rows: Sequence[JobRow], known: Mapping[int, str]) -> Iterator[list[int]]:
    """Yield the rows of each submission, the first attempt first: an array is submitted as one job."""
    found: dict[tuple[str, str], list[int]] = {}
    for place in sorted(range(len(rows)), key=lambda place: (rows[place].submit_s, rows[place].job_id)):
        if place not in known:
            found.setdefault((rows[place].cluster, rows[place].display_id.partition("_")[0]), []).append(
                place
            )
    yield from found.values()


def _named_before(
    rows: Sequence[JobRow], places: Sequence[int], before: Mapping[int, Decision]
) -> Decision | None:
    """Return the decision that another attempt of a job names. Job ids are used again: it must be about this work."""
    found = ((rows[place], before[place]) for place in places if place in before)
    same = (
        one
        for row, one in found
        if (one.request.user, one.request.job_name) == (row.user, row.job_name)
        and one.time_s <= row.submit_s + AFTER_S
    )
    return next(same, None)


def _taken(row: JobRow, free: Mapping[tuple[str, str], list[Made]]) -> Decision | None:
    """Return the decision made as slurmctld took a job, which is no longer free then; None if that is not sure."""
    made = free.get((row.user, row.job_name), [])
    begin = bisect.bisect_left(made, row.submit_s - BEFORE_S, key=attrgetter("time_s"))
    end = bisect.bisect_right(made, row.submit_s + AFTER_S, key=attrgetter("time_s"))
    first: dict[str, int] = {}
    for place in range(begin, end):
        first.setdefault(made[place].told, place)
        if len(first) > MOST_KINDS:
            return None
    fitting = [place for place in first.values() if _left_by(made[place].token, row)]
    return made.pop(fitting[0]).decision if len(fitting) == 1 else None


def _told(decision: Decision) -> str:
    """Return what a decision's token tells, but for whose it is."""
    return format_token(msgspec.structs.replace(decision, id="", model="", via="", replaces=""))


def _token(decision: Decision) -> Token | None:
    return find_token(format_token(decision))


def _left_by(token: Token | None, row: JobRow) -> bool:
    return token is not None and not any(unlike_slurm(row, token))
