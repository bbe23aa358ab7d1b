"""The recent past of every family: what a predictor may look back on. No clock, no database."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from accounting.request import JobRequest
from models.past.beside import Beside, by_end, still_told
from models.past.evidence import Evidence
from models.past.families import Family, cohort_key, family_keys, wide_keys
from models.past.held import HeldByUsers
from models.past.jobs import LEARNED, LEAST_CORES, LEAST_MIB, PastJob, held_by
from models.past.likeness import FamilyPast, Likeness, likeness_of, stands_for

# After this many new looks at families' jobs (FamilyPast.look), all that was computed from them is forgotten.
MOST_LOOKS = 4096
# A user has no more families of each kind than this, and the site no more users and limits. So a user who gives each
# of ten million jobs a new name costs bounded memory, and displaces only the user's own families. The one that was
# not seen for longest goes first.
MOST_FAMILIES = 20_000
NEVER = (0, 0, 0)


class Habit(msgspec.Struct, frozen=True):
    """The mean logarithm of used over asked in a cohort, for memory and for cores; NaN if not known."""

    memory: float
    cores: float


class History:
    """The last `recent_jobs` attempts of each family and cohort."""

    def __init__(self, recent_jobs: int) -> None:
        self.recent_jobs = recent_jobs
        self._jobs: dict[Family, deque[PastJob]] = {}
        # Of the jobs before those, the last of each kind.
        self._beside: dict[Family, Beside] = {}
        # Computed once, and kept until a job is added, or joins that family.
        self._habits: dict[Family, Habit] = {}
        self._pasts: dict[Family, FamilyPast] = {}
        self._looks = 0
        # From when on families are at rest that were not when they were looked at. Kept apart from the pasts, which
        # may be forgotten meanwhile.
        self._rests_from_s: dict[Family, float] = {}
        # When each family last changed: the number of that change among all joins and all families that came to rest.
        self._joined: dict[Family, int] = {}
        self._joins = 0
        # The site's clock: when the last job that is known ended (unix seconds).
        self._now_s = -math.inf
        # The families that share a bound, the one that was not seen for longest first.
        self._seen: dict[Family, OrderedDict[Family, None]] = {}
        # What the site's jobs held, to which a family's weight is relative.
        self.held = {dimension: HeldByUsers() for dimension in LEARNED}

    def add(self, request: JobRequest, job: PastJob) -> None:
        """Count a finished job under every family of its request, under its user and under its limit."""
        for dimension, held in self.held.items():
            # A job without a figure for GPU memory says nothing of the mean GPU job.
            if dimension != "gpu_mem" or job.gpu_mem_mib is not None:
                held.add(request.user, held_by(job, dimension))
        for key in (*family_keys(request), *wide_keys(request)):
            self._append(key, (job,))
            self._note(key)
        # All evidence is relative to what the site's mean job holds, which has changed.
        self._forget_pasts()

    def load(self, family: Family, jobs: Iterable[PastJob], beside: Iterable[PastJob] = ()) -> None:
        """Put jobs, oldest first, and those remembered `beside` them into one family, which keeps the last of all.

        Call `keep_recent` when everything is loaded.
        """
        known, older = self._jobs.pop(family, ()), self._beside.pop(family, ())
        for job in sorted((*older, *beside), key=by_end):
            self._set_beside(family, job)
        self._append(family, sorted((*known, *jobs), key=by_end) if known else jobs)
        self._seen.setdefault(bounded_with(family), OrderedDict())[family] = None

    def keep_recent(self) -> None:
        """Forget loaded families if they are too many: those whose last jobs ended first."""
        for together, families in self._seen.items():
            order = sorted(families, key=lambda family: max(map(by_end, self._jobs[family]), default=NEVER))
            self._seen[together] = OrderedDict.fromkeys(order)
            for family in order[: max(0, len(order) - MOST_FAMILIES)]:
                self._drop(family)

    def discard(self, families: int) -> bool:
        """Forget this many families; return whether there are more.

        To forget millions of jobs at once takes a second.
        """
        for _ in range(min(families, len(self._jobs))):
            family, _jobs = self._jobs.popitem()
            self._beside.pop(family, None)
            self._forget(family)
            self._seen[bounded_with(family)].pop(family)
        return bool(self._jobs)

    def _append(self, family: Family, jobs: Iterable[PastJob]) -> None:
        known = self._jobs.setdefault(family, deque(maxlen=self.recent_jobs))
        for job in jobs:
            if len(known) == self.recent_jobs:
                self._set_beside(family, known[0])
            known.append(job)
        if known:
            self._now_s = max(self._now_s, known[-1].end_s)
        self._forget(family)

    def _set_beside(self, family: Family, job: PastJob) -> None:
        """Remember a job that leaves a family's recent ones; jobs of a user or a limit are not compared."""
        if len(family) > 2:
            self._beside.setdefault(family, Beside()).add(job)

    def join(self, request: JobRequest, job: PastJob, *, corrects: bool = False) -> bool:
        """Count a job that has ended since, once; return whether it was new to any group of its request.

        These groups are its families, its user and its limit. A job that `corrects` what was reported of the same run
        before replaces it.

        Each group holds the last `recent_jobs` of all that ever joined, in the order of their ends, whatever order
        they came in and however often. Only what was computed from these groups is forgotten. The site's mean job
        (`held`), to which a family's weight is relative, stays as it was trained: one job changes it too little to
        change any answer, and to follow it would discard every cached answer.
        """
        put = self._correct_or_place if corrects else self._place
        families = [family for family in (*family_keys(request), *wide_keys(request)) if put(family, job)]
        self._joins += bool(families)
        self._now_s = max(self._now_s, job.end_s)
        for family in families:
            self._joined[family] = self._joins
            self._note(family)
        return bool(families)

    def _correct_or_place(self, family: Family, job: PastJob) -> bool:
        jobs, order = self._jobs.get(family, deque()), by_end(job)
        place = next((place for place, known in enumerate(jobs) if by_end(known) == order), None)
        if place is None:
            beside = self._beside.get(family)
            if beside is None or not beside.correct(job):
                return self._place(family, job)
        elif jobs[place] == job:
            return False
        else:
            jobs[place] = job
        self._forget(family)
        return True

    def _place(self, family: Family, job: PastJob) -> bool:
        jobs = self._jobs.get(family) or deque(maxlen=self.recent_jobs)
        oldest = jobs[0] if len(jobs) == self.recent_jobs else None
        if not place_by_end(jobs, job):
            return False
        if oldest is not None:
            self._set_beside(family, oldest)
        self._jobs[family] = jobs
        self._forget(family)
        return True

    def joined(self, families: Sequence[Family]) -> int:
        """Return a number that rises whenever one of these families changes: a job joins, or it comes to rest.

        No earlier number ever comes back.
        """
        for family in families:
            self._let_rest(family)
        return max((self._joined.get(family, 0) for family in families), default=0)

    def _let_rest(self, family: Family) -> None:
        """Forget what was computed from a family that was not at rest then, and is now."""
        if self._now_s >= self._rests_from_s.get(family, math.inf):
            self._joins += 1
            self._joined[family] = self._joins
            self._forget(family)

    def _note(self, family: Family) -> None:
        """Note that a family was seen; if there are too many, drop the one that was not seen for longest."""
        together = self._seen.setdefault(bounded_with(family), OrderedDict())
        together[family] = None
        together.move_to_end(family)
        if len(together) > MOST_FAMILIES:
            self._drop(next(iter(together)))

    def _drop(self, family: Family) -> None:
        self._forget(family)
        for known in (self._jobs, self._beside, self._joined, self._seen[bounded_with(family)]):
            known.pop(family, None)

    def _forget(self, family: Family) -> None:
        """Forget what was computed from a family's jobs."""
        for known in (self._habits, self._pasts, self._rests_from_s):
            known.pop(family, None)

    def _forget_pasts(self) -> None:
        self._pasts.clear()
        self._looks = 0

    def items(self) -> Iterator[tuple[Family, Sequence[PastJob]]]:
        """Yield every family with its jobs, in the order in which the families were first seen."""
        for family, jobs in self._jobs.items():
            yield family, tuple(jobs)

    def beside(self, family: Family) -> tuple[PastJob, ...]:
        """Return the jobs of each kind that are remembered in addition to a family's recent ones, the oldest first."""
        return tuple(self._beside.get(family, ()))

    def evidence(self, request: JobRequest, enough: int) -> Evidence | None:
        """Return the narrowest family with `enough` complete comparable jobs, else the one with most; None if none."""
        like = likeness_of(request)
        fullest: Evidence | None = None
        for family in like.families:
            evidence = self._seen_by(like, family)
            if evidence is None or not evidence.jobs or not stands_for(evidence, like.script_signature):
                continue
            if evidence.complete >= enough:
                return evidence
            if fullest is None or len(evidence.jobs) > len(fullest.jobs):
                fullest = evidence
        return fullest

    def _seen_by(self, like: Likeness, family: Family) -> Evidence | None:
        """Return what a request sees of a family; None if the family has no jobs."""
        self._let_rest(family)
        past = self._pasts.get(family)
        if past is None:
            jobs = self._jobs.get(family)
            if not jobs:
                return None
            _, user, *_ = family
            site_held = {dimension: partial(held.mean_for, user) for dimension, held in self.held.items()}
            beside = still_told(self.beside(family), jobs[-1].end_s)
            past = self._pasts[family] = FamilyPast(family, jobs, site_held, beside, now_s=self._now_s)
            if not past.at_rest and past.rests_from_s < math.inf:
                self._rests_from_s[family] = past.rests_from_s
        place = past.place(like)
        seen = past.seen.get(place)
        if seen is None:
            if self._looks >= MOST_LOOKS:
                self._forget_pasts()
            self._looks += 1
            seen = past.seen[place] = past.look(like)
        return seen

    def wide_evidence(self, request: JobRequest, enough: int) -> Evidence | None:
        """Return the last jobs of the request's user, else of all with its limit; None if neither has `enough`.

        These jobs need not have asked for anything like it.
        """
        for family in wide_keys(request):
            jobs = self._jobs.get(family, ())
            if sum(job.complete for job in jobs) >= max(1, enough):
                return Evidence(family, tuple(jobs))
        return None

    def user_habit(self, request: JobRequest) -> Habit:
        """Return how much of what they ask for the jobs of the request's user use."""
        cohort = cohort_key(request)
        known = self._habits.get(cohort)
        if known is None:
            known = self._habits[cohort] = habit_of(self._jobs.get(cohort, ()))
        return known


def bounded_with(family: Family) -> Family:
    """Return what a family shares its bound with: its user's families of this kind; all users; or all limits."""
    return family[:2] if len(family) > 2 else family[:1]


def place_by_end(jobs: deque[PastJob], job: PastJob) -> bool:
    """Insert a job among the last ones, in the order of their ends; return False if it is known or too old."""
    if not jobs or job.end_s > jobs[-1].end_s:
        jobs.append(job)
        return True
    order = by_end(job)
    if any(by_end(known) == order for known in jobs):
        return False
    place = sum(by_end(known) < order for known in jobs)
    if len(jobs) == jobs.maxlen:
        if place == 0:
            return False
        jobs.popleft()
        place -= 1
    jobs.insert(place, job)
    return True


def habit_of(jobs: Iterable[PastJob]) -> Habit:
    """Return the mean logarithm of used over asked; NaN if nothing was asked or nothing is known."""
    memory, cores = [], []
    for job in jobs:
        if job.asked_mem_mib and job.mem_mib is not None and not job.mem_short:
            memory.append(math.log(max(job.mem_mib, LEAST_MIB) / job.asked_mem_mib))
        if job.asked_cpus and job.cores_per_task is not None:
            cores.append(math.log(max(job.cores_per_task, LEAST_CORES) * job.num_tasks / job.asked_cpus))
    return Habit(_mean(memory), _mean(cores))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
