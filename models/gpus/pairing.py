"""Which jobs share a GPU: decides where each waiting job goes, and in a slot which jobs move. Pure.

The first free GPU goes to the waiting job of the first level (see below) that has waited longest. If none is free,
waiting jobs are matched with jobs that are alone on a GPU, by a bipartite matching. Its weights are what two jobs do
together, in GPUs' work, beyond what one alone does, so that the sum over all GPUs is largest (least is lost to
interference). It never pairs two jobs that do not fit, or that together do hardly more than one. It does not ask how
long jobs will run: weights that knew did not do better (docs/decisions/0073). In a slot, jobs that came second to a
GPU are matched again; they move if that gains enough, or to a GPU for which no job waits.

Also in a slot, a job that has run long gives up its GPU to a waiting job that has not, and is then matched again: it
stays next to the newcomer, shares another GPU, or is suspended. So short jobs need not wait for long ones, although
no lengths are known: least attained service first, in two queues (Tiresias, Gu et al. 2019).

No job waits for ever. One that has waited too long, and longer than it has run, comes before all others; in a slot it
takes the GPU even of a job that has not run long. If it can share with no host, it gets a GPU to itself: the host
that has run least takes no second job until a GPU is free.

From G-Share (Lin et al., Computer Engineering & Science 48(3), 2026): the matching, with interference learned off and
on line, in time slots. Its abstract does not say what exactly its weights are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence

import msgspec
import numpy

from accounting.errors import ScheduleError
from models.gpus.interference import Interference
from models.gpus.matching import matched
from models.scheduling.room import Floats, Ints, Mask

# Jobs that have waited too long, that have not run long yet, and that have: each level goes before the next.
OVERDUE, SHORT, LONG = 0, 1, 2
# 2 to 8 h are alike within 2 %; with one hour, too many give way (docs/decisions/0073).
LONG_S = 14_400.0


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job of one GPU: its kind, how long it has waited in all, and how long it has run so far (seconds)."""

    job_id: int
    kind: str
    waited_s: float = 0.0
    ran_s: float = 0.0


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """When two jobs share. Gains are in GPUs' work: 0.2 is a fifth of a GPU more than one job alone does.

    A move must gain `move_gain` more than staying. `trying` is by how many standard deviations of its uncertainty a
    pair is assumed to be better than expected: 0 pairs on evidence alone, and never learns of a pair that is expected
    to lose; 0.5 finds out, from nothing if need be.

    In a slot, a job that has run for `long_s` gives way to a waiting one that has not. A job that has waited for more
    than `most_wait_s`, and longer than it has run, goes before both. With an infinite `long_s` all jobs are alike,
    and none gives way.
    """

    least_gain: float = 0.02
    move_gain: float = 0.05
    trying: float = 0.0
    most_wait_s: float = 43_200.0
    long_s: float = LONG_S

    def __post_init__(self) -> None:
        """Refuse terms by which pairs would lose."""
        if self.least_gain <= 0 or self.move_gain < 0 or self.trying < 0:
            raise ScheduleError(
                "pairs that gain nothing would be made, or moves for nothing: give a least_gain above 0, and no "
                "negative move_gain or trying"
            )

    def level(self, job: Job) -> int:
        """Return the level of a job: OVERDUE, SHORT or LONG; always SHORT if no job gives way."""
        if math.isinf(self.long_s):
            return SHORT
        if job.waited_s > max(self.most_wait_s, job.ran_s):
            return OVERDUE
        return SHORT if job.ran_s < self.long_s else LONG


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job goes, None: it waits; next to which job, None: alone. `left` is the GPU that it leaves.

    `instead_of` is the job that has run long and gives up the GPU to this one: to wait, to move, or to stay next to
    it (its own `left` is its `gpu` then).
    """

    job: Job
    gpu: int | None
    beside: Job | None = None
    left: int | None = None
    instead_of: Job | None = None


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One decision: where each job goes that starts, moves, or waits.

    `hosts` are, by GPU, the jobs that could take a second one (in a slot also those that have one); `kept_free` the
    GPUs that take none, and for which job.
    """

    choices: tuple[Choice, ...]
    hosts: dict[int, Job]
    kept_free: dict[int, Job]


class _Guest(msgspec.Struct, frozen=True, gc=False):
    """A job that seeks a host; `left` is its present GPU, and so is `on` if it may stay there next to another job."""

    job: Job
    left: int | None = None
    on: int | None = None


def gains(known: Interference, trying: float = 0.0) -> Floats:
    """Return what each two kinds do together beyond one alone, in GPUs' work; −1 if they do not fit."""
    speeds = known.hoped(trying)
    return numpy.where(known.fits, speeds + speeds.T, 0.0) - 1.0


def pair(
    gpus: Sequence[Sequence[Job]],
    waiting: Sequence[Job],
    known: Interference,
    terms: Terms | None = None,
    *,
    moving: bool = False,
) -> Round:
    """Return which job goes where. `gpus` has the up to two jobs on each; with `moving`, some of them move.

    The order in which waiting jobs are given does not matter.
    """
    terms = terms or Terms()
    gain = gains(known, terms.trying)
    queue = sorted(waiting, key=lambda job: (terms.level(job), -job.waited_s, job.job_id))
    on = [sorted(jobs, key=lambda job: (terms.level(job), -job.ran_s, job.job_id)) for jobs in gpus]
    free = [gpu for gpu, jobs in enumerate(on) if not jobs]
    first = [Choice(job=job, gpu=gpu) for job, gpu in zip(queue, free, strict=False)]
    given_up = _given_up(on, queue[len(first) :], terms) if moving else {}
    first += [Choice(job=job, gpu=gpu, instead_of=on[gpu][0]) for gpu, job in given_up.items()]
    queue = queue[len(first) :]
    hosts = {gpu: jobs[0] for gpu, jobs in enumerate(on) if len(jobs) == 1}
    hosts |= {choice.gpu: choice.job for choice in first if choice.gpu is not None}
    kept_free = _kept_free(hosts, queue, known, gain, terms)
    for gpu in kept_free:
        del hosts[gpu]
    seeking: list[_Guest] = []
    if moving:
        hosts |= {gpu: jobs[0] for gpu, jobs in enumerate(on) if len(jobs) > 1 and gpu not in given_up}
        seeking = list(_seeking(on, hosts, given_up, known, gain))
    apart = _apart(seeking, hosts, free[len(first) :], known, gain, terms)
    hosts |= {choice.gpu: choice.job for choice in apart if choice.gpu is not None}
    left = {choice.left for choice in apart}
    guests = [*map(_Guest, queue), *(guest for guest in seeking if guest.left not in left)]
    later = list(_matched(hosts, guests, known, gain, terms))
    going = {choice.job.job_id for choice in later}
    stay = [
        Choice(job=guest.job, gpu=guest.on, beside=hosts[guest.on], left=guest.on)
        for guest in seeking
        if guest.on in given_up and guest.job.job_id not in going
    ]
    return Round(choices=(*first, *apart, *later, *stay), hosts=hosts, kept_free=kept_free)


def _given_up(on: Sequence[Sequence[Job]], queue: Sequence[Job], terms: Terms) -> dict[int, Job]:
    """Return the GPUs that are given up, and to which waiting jobs; the job that has run longest gives way first."""
    longest = sorted(
        (gpu for gpu, jobs in enumerate(on) if jobs),
        key=lambda gpu: (-terms.level(on[gpu][0]), -on[gpu][0].ran_s, gpu),
    )
    pairs = zip(queue, longest, strict=False)
    return {gpu: job for job, gpu in pairs if terms.level(job) < terms.level(on[gpu][0])}


def _seeking(
    on: Sequence[Sequence[Job]],
    hosts: dict[int, Job],
    given_up: Container[int],
    known: Interference,
    gain: Floats,
) -> Iterator[_Guest]:
    """Yield the running jobs that seek a host anew: those that came second, and all on a GPU that is given up."""
    for gpu, jobs in enumerate(on):
        if gpu not in given_up:
            yield from (_Guest(job, gpu, gpu) for job in jobs[1:])
            continue
        host = hosts.get(gpu)
        # Of two jobs that give way, one may stay: the one that does more next to the newcomer.
        stays = host and max(jobs, key=lambda job: gain[known.number(job.kind), known.number(host.kind)])
        yield from (_Guest(job, gpu, gpu if job is stays else None) for job in jobs)


def _apart(
    sharing: Sequence[_Guest],
    hosts: dict[int, Job],
    free: Sequence[int],
    known: Interference,
    gain: Floats,
    terms: Terms,
) -> list[Choice]:
    """Return which jobs move to GPUs for which no job waits, first those that do least next to another."""
    together = [
        (float(gain[known.number(guest.job.kind), known.number(hosts[guest.on].kind)]), number)
        for number, guest in enumerate(sharing)
        if guest.on is not None
    ]
    # Each on its own GPU, two jobs do two GPUs' work.
    worth = sorted(one for one in together if 1 - one[0] >= terms.move_gain)
    moved = [(sharing[number], gpu) for (_, number), gpu in zip(worth, free, strict=False)]
    return [Choice(job=guest.job, gpu=gpu, left=guest.on) for guest, gpu in moved]


def _kept_free(
    hosts: dict[int, Job], queue: Sequence[Job], known: Interference, gain: Floats, terms: Terms
) -> dict[int, Job]:
    """Return the GPUs that take no second job, each for a job that has waited too long and can share with no host."""
    kinds = sorted({known.number(job.kind) for job in hosts.values()})
    shares: Mask = numpy.any(gain[:, kinds] >= terms.least_gain, axis=1)
    overdue = [
        job for job in queue if job.waited_s > terms.most_wait_s and not shares[known.number(job.kind)]
    ]
    # The host that has run least is likeliest to end soon if run times differ as much as those of training do.
    soonest = sorted(hosts, key=lambda gpu: (hosts[gpu].ran_s, gpu))
    return dict(zip(soonest, overdue, strict=False))


def _matched(
    hosts: dict[int, Job], guests: Sequence[_Guest], known: Interference, gain: Floats, terms: Terms
) -> Iterator[Choice]:
    """Yield where each guest goes, except those that stay."""
    by_kind: defaultdict[int, list[int]] = defaultdict(list)
    for gpu in sorted(hosts, key=lambda gpu: (-hosts[gpu].ran_s, gpu)):
        by_kind[known.number(hosts[gpu].kind)].append(gpu)
    # Guests are alike if they are of one kind and, if they run, next to the same kind. −1 is nobody.
    alike: defaultdict[tuple[int, int], list[_Guest]] = defaultdict(list)
    for guest in guests:
        beside = -1 if guest.on is None else known.number(hosts[guest.on].kind)
        alike[known.number(guest.job.kind), beside].append(guest)
    kinds, classes = sorted(by_kind), sorted(alike)
    values = _values(kinds, classes, gain, terms)
    number_of_hosts = numpy.array([len(by_kind[kind]) for kind in kinds], dtype=numpy.int64)
    number_of_guests = numpy.array([len(alike[one]) for one in classes], dtype=numpy.int64)
    found = matched(values, number_of_hosts, number_of_guests)
    yield from _carried_out(found, hosts, [by_kind[kind] for kind in kinds], kinds, alike)


def _values(kinds: list[int], classes: list[tuple[int, int]], gain: Floats, terms: Terms) -> Floats:
    """Return what a guest of each class (column) is worth next to a host of each kind (row); 0: they do not share."""
    of_guests = [kind for kind, _ in classes]
    values = (
        gain[numpy.ix_(kinds, of_guests)] if kinds and classes else numpy.zeros((len(kinds), len(classes)))
    )
    stays = numpy.array([[beside == kind for _, beside in classes] for kind in kinds]).reshape(values.shape)
    worth = values + numpy.where(stays, terms.move_gain, 0.0)
    allowed: Floats = numpy.where(worth >= terms.least_gain, worth, 0.0)
    return allowed


def _carried_out(
    found: Ints,
    hosts: dict[int, Job],
    gpus: list[list[int]],
    kinds: list[int],
    alike: dict[tuple[int, int], list[_Guest]],
) -> Iterator[Choice]:
    """Yield which job goes to which GPU, given how many of each class go next to how many of each kind."""
    seeking = {one: list(guests) for one, guests in alike.items()}
    taken: set[int] = set()
    rows = {kind: row for row, kind in enumerate(kinds)}
    for column, one in enumerate(sorted(alike)):
        staying = int(found[rows[one[1]], column]) if one[1] >= 0 else 0
        taken |= {guest.on for guest in seeking[one][:staying] if guest.on is not None}
        del seeking[one][:staying]
    open_gpus = [iter([gpu for gpu in of_kind if gpu not in taken]) for of_kind in gpus]
    for column, one in enumerate(sorted(alike)):
        going = iter(seeking[one])
        for row, kind in enumerate(kinds):
            for _ in range(0 if kind == one[1] else int(found[row, column])):
                guest, gpu = next(going), next(open_gpus[row])
                yield Choice(job=guest.job, gpu=gpu, beside=hosts[gpu], left=guest.left)
        yield from (Choice(job=guest.job, gpu=None, left=guest.left) for guest in going)
