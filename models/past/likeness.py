"""Which past jobs of a family tell about a request. Pure.

A request sees those jobs that asked for enough, by as many tasks, with an input like its own. Of all amounts that may
be asked for only a few see other jobs than the next smaller one, so what is seen is worked out once for all between.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

import msgspec

from accounting.request import JobRequest
from models.past.evidence import COMPARABLE_INPUT, Evidence, rests_from_s
from models.past.families import Family, family_keys
from models.past.jobs import Learned, PastJob, use_of

# A past job tells about one that asks for less than this many times as much: who suddenly asks for ten times the memory
# knows something about the input that no history does. Workflow engines ask for twice as much where a task was killed,
# within seconds: before anything is known of that kill here.
COMPARABLE_REQUEST = 2
# Once so many jobs that ran to their end had an input within that factor, those with a far larger one do not count.
ENOUGH_NEAR = 4
# A name stands for a new script too once this many different ones ran under it. Below, a changed script is new work.
VARIED_SCRIPTS = 3


class Likeness(msgspec.Struct, frozen=True):
    """All of a request that decides which past jobs tell about it; amounts are those of the whole job."""

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
    """Return the past jobs that tell about a request: as many tasks, not asking for far less, with an input like it."""
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
    """Return the past jobs whose input was not far smaller; where there are enough like it, not far larger either.

    What was read tells how much is needed only so far, but hardly ever does more need less. A job whose input is not
    known counts, but is not known to be like it: for the sake of such jobs none with a far larger input is left out.
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
    """Whether a family's past tells about a script: it ran the same, one of many, or none that is known."""
    scripts = evidence.scripts
    same = not script_signature or not scripts or scripts == {script_signature}
    return same or len(scripts) >= VARIED_SCRIPTS


# Where a request stands among what the jobs of a family asked for and used: who stands at the same place sees the same.
Place = tuple[int, int, int, int, int, int, float | None]


class FamilyPast:
    """A family's jobs and those `beside` them, the oldest first, and what was `seen` of them from each place.

    It is at rest from `rests_from_s` on (unix seconds); `at_rest` says whether it was when it was looked at.
    """

    def __init__(
        self,
        family: Family,
        jobs: Iterable[PastJob],
        site_held: Mapping[Learned, float] | None = None,
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
        # Who used more than is asked for tells less, unless it was killed (past_use in models/past/evidence.py).
        self._used_mib = _in_order(use_of(job, "memory") for job in self._jobs if not job.mem_at_least)
        # Where one was killed for memory, it counts who asked for less than is asked for now (are_unanswered).
        self._asked_beside_killed = self._asked_mib if any(job.mem_at_least for job in self._jobs) else []
        self.seen: dict[Place, Evidence] = {}

    def place(self, like: Likeness) -> Place:
        """Return where a request stands; of its input, which sites seldom know, each size is a place of its own."""
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
        """Return what a request sees, and every other one at its place."""
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
    """Return what a past job asked for at least of which a request for this amount can be told; amounts are whole."""
    return amount // COMPARABLE_REQUEST + 1 if amount else 0
