"""What the comparable past jobs of a family show. Pure: no clock, no database.

It is computed once for all requests to which the same jobs are comparable, since a submission waits for it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from models.past.families import Family, describe_family
from models.past.jobs import Learned, PastJob, held_by, shows_need, use_of
from models.past.kills import KILLED_BUMP, Kills, told_by_kills

# A past job counts for a request with up to this many times its input, if both inputs are known; measured
# (docs/decisions/0028).
COMPARABLE_INPUT = 4.0
# A job that needs up to two per cent more than all before it is no surprise.
SURPRISE_LOG = 0.02
# A family is at rest once all its jobs began this many of its longest runs ago: whatever came with them has ended.
# Before that, the jobs that are known first are those that end soon: a burst's small ones.
REST_RUNS = 3
# In a family at rest, WHOLE_JOBS are enough to go by their median, and TOP_JOBS to go by how far apart the highest
# are, which are this share of them.
WHOLE_JOBS, TOP_JOBS = 8, 20
TOP_SHARE = 0.25
# No more results than this are cached for the same jobs at a time.
MOST_WORKED_OUT = 64

Result = TypeVar("Result")


class PastUse(msgspec.Struct, frozen=True, kw_only=True):
    """What past jobs needed of one dimension, in its unit and as logarithms, the oldest first.

    - `needed`: what each needed at least: its use, or more if it was killed for memory. `likely` is the middle one of
      them, `highest` the most.
    - `complete`: how many jobs show their whole need, or that they needed more.
    - `streak`: how many jobs there are since the last surprise, that one included. A surprise needed more than all
      before it, or more than is asked for.
    - `above_median`: the sum of squares by which logarithms exceed their median.
    - `held`: the mean of what was asked for, times seconds.
    - `whole`: these are all jobs that came, the slow ones too, and enough of them to go by their median: at rest,
      none of them beyond the request, and not of cores.
    - `runs`: in a family at rest, how many runs there are since the last that needed more than all before it, that
      one included; None if there is only one, or if the first needed most.
    - `calm`: the same count, also in those two cases, but for memory alone; 0 in a family that is not at rest.
    - `top_excess`: the mean by which the logarithms of the highest (TOP_SHARE) exceed the one below them, if the jobs
      are `whole` and enough; else None.
    - `before`: what was needed before the run that is under way, if that is `whole` and nothing since needed more;
      None in a family at rest.
    - `kills`: why jobs that were killed let nothing be said of memory; '' if it can be said.
    """

    needed: tuple[float, ...]
    likely: float
    highest: float
    complete: int
    streak: int
    highest_log: float
    mean_log: float
    last_log: float
    median_log: float
    spread_log: float
    above_median: float
    held: float
    whole: bool = False
    runs: int | None = None
    calm: int = 0
    top_excess: float | None = None
    before: PastUse | None = None
    kills: Kills = ""

    @property
    def quiet(self) -> int:
        """How many jobs came without a surprise; or how many runs, if a later run surprised a family at rest."""
        return self.streak if self.runs is None else min(self.streak, self.runs)

    @property
    def count(self) -> int:
        """How many jobs show this dimension."""
        return len(self.needed)


def past_use(
    jobs: Iterable[PastJob], dimension: Learned, asked_mib: float | None = None, *, at_rest: bool = False
) -> PastUse | None:
    """Return what jobs needed of a dimension; None if none shows it. `at_rest` is their family's.

    A job that was stopped early, or was sampled too early, counts only if it shows more than all before it. A job
    that used more memory than `asked_mib` and was not killed says nothing of how much may be granted, since the whole
    request would be too little for it as well. But it counts as a surprise.
    """
    needed: list[float] = []
    counted: list[PastJob] = []
    complete = 0
    # How many counted jobs there were before the last that used more than is asked for.
    beyond: int | None = None
    held = highest = 0.0
    most = asked_mib if dimension == "memory" and asked_mib is not None else math.inf
    jobs = tuple(jobs)
    for job in jobs:
        use = use_of(job, dimension)
        if use is None:
            continue
        killed = dimension == "memory" and job.mem_at_least
        if use > most and not killed:
            beyond = len(needed)
            continue
        tells = killed or shows_need(job, dimension)
        if not tells and use <= highest:
            continue
        needed.append(use * KILLED_BUMP if killed else use)
        counted.append(job)
        highest = max(highest, needed[-1])
        complete += tells
        held += held_by(job, dimension)
    if not needed:
        return None
    logs = [math.log(amount) for amount in needed]
    mean = sum(logs) / len(logs)
    ordered = sorted(logs)
    median = middle(ordered)
    calm, runs = runs_since_surprise(counted, logs) if at_rest else (0, 0)
    # For cores, going by the median saved next to nothing and left jobs short (docs/decisions/0022).
    may_be_whole = dimension != "cores" and beyond is None
    whole = at_rest and may_be_whole and len(logs) >= WHOLE_JOBS
    before = _before_this_run(jobs, dimension, asked_mib) if may_be_whole and not at_rest else None
    return PastUse(
        needed=tuple(needed),
        likely=sorted(needed)[len(needed) // 2],
        highest=highest,
        complete=complete,
        streak=streak_of(logs) if beyond is None else min(streak_of(logs), len(logs) - beyond + 1),
        highest_log=ordered[-1],
        mean_log=mean,
        last_log=logs[-1],
        median_log=median,
        spread_log=math.sqrt(sum((value - mean) ** 2 for value in logs) / len(logs)),
        above_median=sum((value - median) ** 2 for value in logs if value > median),
        held=held / len(logs),
        whole=whole,
        runs=calm if calm < runs else None,
        calm=calm if dimension == "memory" else 0,
        top_excess=_top_excess(ordered) if whole and len(logs) >= TOP_JOBS else None,
        before=before if before is not None and before.highest >= highest else None,
        kills=told_by_kills(jobs, asked_mib) if dimension == "memory" else "",
    )


def _before_this_run(jobs: Sequence[PastJob], dimension: Learned, asked_mib: float | None) -> PastUse | None:
    """Return what was needed before the run under way; None if that is not all that came, or not enough."""
    *earlier, _ = runs_of(jobs)
    places = sorted(place for run in earlier for place in run)
    if len(places) < WHOLE_JOBS:
        return None
    use = past_use((jobs[place] for place in places), dimension, asked_mib, at_rest=True)
    return use if use is not None and use.whole else None


def _top_excess(ordered: Sequence[float]) -> float:
    """Return the mean by which the highest of values in rising order exceed the one below them."""
    top = round(TOP_SHARE * len(ordered))
    return sum(ordered[-top:]) / top - ordered[-top - 1]


def rests_from_s(jobs: Sequence[PastJob]) -> float:
    """Return from when on (unix seconds) the family of these jobs is at rest; infinite if they are too few."""
    if len(jobs) < WHOLE_JOBS:
        return math.inf
    began, longest = -math.inf, 0
    for job in jobs:
        began, longest = max(began, job.end_s - job.wall_s), max(longest, job.wall_s)
    return began + REST_RUNS * longest


def runs_since_surprise(jobs: Sequence[PastJob], logs: Sequence[float]) -> tuple[int, int]:
    """Return how many runs there are since the last surprise, that one included; and how many in all.

    A surprising run needed more than all before it. The jobs of one run are much alike: together they tell hardly
    more of the next run than each alone. `logs` are the logarithms of their needs.
    """
    most = [max(logs[place] for place in run) for run in runs_of(jobs)]
    return streak_of(most), len(most)


def runs_of(jobs: Iterable[PastJob]) -> list[list[int]]:
    """Return the places of jobs, run by run: a run is what began before all that began earlier had come to rest."""
    runs: list[list[int]] = []
    rests_s, longest_s = -math.inf, 0
    for began_s, wall_s, place in sorted(
        (job.end_s - job.wall_s, job.wall_s, place) for place, job in enumerate(jobs)
    ):
        if began_s > rests_s:
            runs.append([])
        runs[-1].append(place)
        longest_s = max(longest_s, wall_s)
        rests_s = began_s + REST_RUNS * longest_s
    return runs


class PastGpus(msgspec.Struct, frozen=True):
    """How many GPUs metered jobs kept busy: `likely` is the middle one, `most` the most, at least one.

    `shown` counts the jobs that show their whole need, since the last that needed more than all before it, that one
    included. A job that was stopped early, or whose GPUs were sampled too little, may only raise `most`. `shown` is 0
    if none of them had more GPUs than `most`: a job that we cut can keep no more busy than it was given.
    """

    likely: int
    most: int
    shown: int


def past_gpus(jobs: Iterable[PastJob]) -> PastGpus | None:
    """Return what jobs show of GPUs; None if none was metered."""
    busy: list[int] = []
    most = shown = most_given = 0
    for job in jobs:
        if job.gpus is None:
            continue
        busy.append(job.gpus)
        if max(job.gpus, 1) > most:
            most, shown = max(job.gpus, 1), 0
        if job.complete and not job.gpu_short:
            shown += 1
            most_given = max(most_given, job.given_gpus or job.asked_gpus or 0)
    return PastGpus(sorted(busy)[len(busy) // 2], most, shown if most_given > most else 0) if busy else None


def streak_of(logs: Sequence[float]) -> int:
    """Return how many values there are since the last that exceeded all before it, that one included."""
    streak, highest = 0, -math.inf
    for value in logs:
        streak = 1 if value > highest + SURPRISE_LOG else streak + 1
        highest = max(highest, value)
    return streak


def middle(ordered: Sequence[float]) -> float:
    """Return the median of values in rising order."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


class Evidence:
    """The comparable past jobs of the family that was found for a request, the oldest first.

    - `site_held`: what the site's mean job holds of each dimension, times seconds, from what the family's does.
    - `input_mib`: the size of the request's input, None if not known.
    - `asked_mib`: the request's memory, None if it does not ask for any.
    - `at_rest`: no job of the family can be missing because it is slow.
    - `beside`: some earlier jobs of each kind (beside.py), to compare jobs that were cut with jobs that were not.
      They say nothing of what is needed.

    Requests that see the same of a family share it (models/past/likeness.py).
    """

    def __init__(
        self,
        family: Family,
        jobs: Sequence[PastJob],
        site_held: Mapping[Learned, Callable[[float], float]] | None = None,
        input_mib: float | None = None,
        asked_mib: float | None = None,
        beside: Sequence[PastJob] = (),
        *,
        at_rest: bool = False,
    ) -> None:
        self.family = family
        self.jobs = tuple(jobs)
        self.beside = tuple(beside)
        self.input_mib = input_mib
        self.asked_mib = asked_mib
        self.at_rest = at_rest
        self._site_held = site_held or {}
        self._uses: dict[Learned, PastUse | None] = {}
        self._gpus: tuple[PastGpus | None] | None = None
        # What models/demand/ has computed from the jobs, for requests that it cannot tell apart.
        self.worked_out: dict[Hashable, Any] = {}

    def use(self, dimension: Learned) -> PastUse | None:
        """Return what the jobs used of a dimension; None if none shows it."""
        if dimension not in self._uses:
            self._uses[dimension] = past_use(self.jobs, dimension, self.asked_mib, at_rest=self.at_rest)
        return self._uses[dimension]

    def once(self, key: Hashable, work_out: Callable[[], Result]) -> Result:
        """Return the cached result for `key`, which must be the same for all callers that use this key."""
        if key not in self.worked_out:
            if len(self.worked_out) >= MOST_WORKED_OUT:
                self.worked_out.clear()
            self.worked_out[key] = work_out()
        found: Result = self.worked_out[key]
        return found

    @property
    def compared(self) -> tuple[PastJob, ...]:
        """The jobs and those beside them, the oldest first."""
        return (*self.beside, *self.jobs)

    @property
    def gpus(self) -> PastGpus | None:
        """What the jobs show of GPUs; None if none was metered."""
        if self._gpus is None:
            self._gpus = (past_gpus(self.jobs),)
        return self._gpus[0]

    @functools.cached_property
    def complete(self) -> int:
        """How many of the jobs ran to their end."""
        return sum(job.complete for job in self.jobs)

    @functools.cached_property
    def scripts(self) -> frozenset[str]:
        """The scripts that the jobs ran, if known."""
        return frozenset(job.script for job in self.jobs if job.script)

    @functools.cached_property
    def gpu_sources(self) -> str:
        """The meters that measured the jobs' GPUs, joined by `+`; '' if none did."""
        return "+".join(sorted({job.gpu_source for job in self.jobs if job.gpu_source}))

    @functools.cached_property
    def words(self) -> str:
        """Whose jobs they are, and the size of their input if that tells them from others."""
        words = describe_family(self.family)
        inputs = [job.input_mib for job in self.jobs if job.input_mib is not None]
        if self.input_mib is None or not inputs:
            return words
        least_mib, most_mib = self.input_mib / COMPARABLE_INPUT, self.input_mib * COMPARABLE_INPUT
        if max(inputs) <= most_mib:
            return f"{words} with {_mib(least_mib)} to {_mib(most_mib)} MiB of input"
        return f"{words} with {_mib(least_mib)} MiB of input or more"

    def weight(self, dimension: Learned) -> float:
        """Return how much of a dimension the family's mean job holds, in mean jobs of the site; 1 if not known."""
        past, site_held = self.use(dimension), self._site_held.get(dimension)
        site = site_held(past.held) if past and site_held else 0.0
        return past.held / site if past and site else 1.0


def _mib(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:.2g}"
