"""Finds the decisions of jobs whose admin comment another tool has replaced in slurmdbd, token and all. Pure.

Jobstats' EpilogSlurmctld does so at the end of every job. Then only our journal knows what the job's user asked for.
A decision is taken for a job's if the user and the name are the same, if it was made as slurmctld took the job, and if
Slurm's figures are what it left. If several would do that tell of different requests, none is taken.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import msgspec

from accounting.decisions.decision import Decision
from accounting.decisions.slurm_figures import unlike_slurm
from accounting.decisions.token import find_token, format_token, with_journalled
from accounting.records import JobRow

# slurmctld asks before it stamps the job, in whole seconds; a busy one takes its time in between.
BEFORE_S, AFTER_S = 10, 1


def restored_comments(
    rows: Sequence[JobRow], decisions: Iterable[Decision], known: Mapping[int, str]
) -> dict[int, str]:
    """Return the admin comments with the tokens of their decisions, by row, of jobs that have lost their own.

    `known` are comments that were restored before, by row: they stay.
    """
    own = {token.decision_id for comment in known.values() if (token := find_token(comment)) is not None}
    free = _by_work(one for one in decisions if one.id not in own)
    found = dict(known)
    for places in _submissions(rows, known):
        first = rows[places[0]]
        decision = _decided(first, free.get((first.user, first.job_name), []))
        if decision is None:
            continue
        free[first.user, first.job_name].remove(decision)
        # What was queued again with its original request was not cut.
        found |= {
            place: with_journalled(rows[place].admin_comment, decision)
            for place in places
            if _left_by(decision, rows[place])
        }
    return found


def _by_work(decisions: Iterable[Decision]) -> dict[tuple[str, str], list[Decision]]:
    """Return decisions by user and name, the earliest first, without those that a client's job names in its token."""
    found: dict[tuple[str, str], list[Decision]] = {}
    ordered = sorted(decisions, key=attrgetter("time_s", "id"))
    named = {one.via for one in ordered}
    for one in ordered:
        if one.id not in named:
            found.setdefault((one.request.user, one.request.job_name), []).append(one)
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


def _decided(row: JobRow, decisions: Sequence[Decision]) -> Decision | None:
    begin = bisect.bisect_left(decisions, row.submit_s - BEFORE_S, key=attrgetter("time_s"))
    end = bisect.bisect_right(decisions, row.submit_s + AFTER_S, key=attrgetter("time_s"))
    fitting = [one for one in decisions[begin:end] if _left_by(one, row)]
    return fitting[0] if len({_told(one) for one in fitting}) == 1 else None


def _told(decision: Decision) -> str:
    """Return what a decision's token tells, but for whose it is."""
    return format_token(msgspec.structs.replace(decision, id="", model="", via="", replaces=""))


def _left_by(decision: Decision, row: JobRow) -> bool:
    token = find_token(format_token(decision))
    return token is not None and not any(unlike_slurm(row, token))
