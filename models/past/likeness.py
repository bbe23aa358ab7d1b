"""Which past jobs of a family count for a request. Pure.

A request sees the jobs that asked for enough, with as many tasks and an input like its own. Of all amounts that may
be asked for, only a few see other jobs than the next smaller amount, so what is seen is computed once for all in
between.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping

import msgspec

from accounting.request import JobRequest
from models.past.evidence import COMPARABLE_INPUT, Evidence, rests_from_s
from models.past.families import Family, family_keys
from models.past.jobs import Learned, PastJob, use_of

# A past job counts for a request for less than this many times as much: a user who suddenly asks for ten times the
# memory knows something about the input that no history does. Workflow engines ask for twice as much within seconds
# after a task was killed, before anything of that kill is known here.
COMPARABLE_REQUEST = 2
# Once this many jobs that ran to their end had an input within COMPARABLE_INPUT, those with a far larger one do not
# count.
ENOUGH_NEAR = 4
# A name stands for a new script too once this many different ones ran under it. With fewer, a changed script is new
# work.
VARIED_SCRIPTS = 3


class Likeness(msgspec.Struct, frozen=True):
    """All of a request that decides which past jobs count for it; amounts are those of the whole job."""

    families: tuple[Family, ...]
    script_signature: str
    num_tasks: int
    cpus: int
    mem_mib: int | None
    gpus: int | None
    input_mib: float | None = None


def likeness_of(request: JobRequest) -> Likeness:
    """Return a request's likeness."""
    return Likeness(
        family_keys(request),
        request.script_signature,
        request.num_tasks,
        request.cpus,
        request.mem_mib,
        request.gpus,
        request.input_mib,
    )


def comparable(jobs: Iterable[PastJob], like: Likeness) -> tuple[PastJob, ...]:
    """Return the past jobs that count for a request: with as many tasks, a request not far less, an input like it."""
    mem_mib, cpus, gpus = map(least_asked, (like.mem_mib, like.cpus, like.gpus))
    alike = tuple(
        job
        for job in jobs
        if job.num_tasks == like.num_tasks
        and (job.asked_mem_mib is None or job.asked_mem_mib >= mem_mib)
        and (job.asked_cpus is None or job.asked_cpus >= cpus)
        and (job.asked_gpus is None or job.asked_gpus >= gpus)
    )
    return alike if like.input_mib is None else with_input_like(alike, like.input_mib)


def with_input_like(jobs: Iterable[PastJob], input_mib: float) -> tuple[PastJob, ...]:
    """Return the past jobs whose input was not far smaller; nor far larger, if enough are like it.

    The input says only roughly how much is needed, but a larger input hardly ever needs less. A job whose input is
    not known counts, but not as one that is like it: for the sake of such jobs, none with a far larger input is left
    out.
    """
    not_smaller = tuple(
        job for job in jobs if job.input_mib is None or job.input_mib >= input_mib / COMPARABLE_INPUT
    )
    near = tuple(
        job for job in not_smaller if job.input_mib is None or job.input_mib <= input_mib * COMPARABLE_INPUT
    )
    known_near = sum(job.complete and job.input_mib is not None for job in near)
    return near if known_near >= ENOUGH_NEAR else not_smaller


def stands_for(evidence: Evidence, script_signature: str) -> bool:
    """Return whether a family's past counts for a script: it ran the same, many different ones, or none known."""
    scripts = evidence.scripts
    same = not script_signature or not scripts or scripts == {script_signature}
    return same or len(scripts) >= VARIED_SCRIPTS


# The place of a request among what a family's jobs asked for and used: requests at the same place see the same.
Place = tuple[int, int, int, int, int, int, float | None]


class FamilyPast:
    """A family's jobs and those `beside` them, the oldest first, and what was `seen` of them from each place.

    The family is at rest from `rests_from_s` on (unix seconds); `at_rest` says whether it was when it was looked at.
    """

    def __init__(
        self,
        family: Family,
        jobs: Iterable[PastJob],
        site_held: Mapping[Learned, Callable[[float], float]] | None = None,
        beside: Iterable[PastJob] = (),
        *,
        now_s: float = -math.inf,
    ) -> None:
        self._family = family
        self._jobs, self._beside = tuple(jobs), tuple(beside)
        told = (*self._beside, *self._jobs)
        self._site_held = site_held
        self.rests_from_s = rests_from_s(self._jobs)
        self.at_rest = now_s >= self.rests_from_s
        self._asked_mib = _in_order(job.asked_mem_mib for job in told)
        self._asked_cpus = _in_order(job.asked_cpus for job in told)
        self._asked_gpus = _in_order(job.asked_gpus for job in told)
        # A job that used more than is asked for says less, unless it was killed (past_use in
        # models/past/evidence.py).
        self._used_mib = _in_order(use_of(job, "memory") for job in self._jobs if not job.mem_at_least)
        # If a job was killed for memory, it matters which jobs asked for less than is asked for now (are_unanswered).
        self._asked_beside_killed = self._asked_mib if any(job.mem_at_least for job in self._jobs) else []
        self.seen: dict[Place, Evidence] = {}

    def place(self, like: Likeness) -> Place:
        """Return where a request stands; each size of its input, which few sites know, is a place of its own."""
        return (
            like.num_tasks,
            bisect_left(self._asked_mib, least_asked(like.mem_mib)),
            bisect_left(self._asked_cpus, least_asked(like.cpus)),
            bisect_left(self._asked_gpus, least_asked(like.gpus)),
            bisect_right(self._used_mib, like.mem_mib) if like.mem_mib else len(self._used_mib),
            bisect_left(self._asked_beside_killed, like.mem_mib or 0),
            like.input_mib,
        )

    def look(self, like: Likeness) -> Evidence:
        """Return what a request sees, and every other request at its place."""
        return Evidence(
            self._family,
            comparable(self._jobs, like),
            self._site_held,
            like.input_mib,
            like.mem_mib or None,
            comparable(self._beside, like),
            at_rest=self.at_rest,
        )


def _in_order(amounts: Iterable[float | None]) -> list[float]:
    return sorted(amount for amount in amounts if amount is not None)


def least_asked(amount: int | None) -> int:
    """Return the least that a past job asked for that counts for a request for this amount; amounts are whole."""
    return amount // COMPARABLE_REQUEST + 1 if amount else 0
