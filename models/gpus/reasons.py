"""Why each job goes where it goes, in words: with which other job, how fast, how sure, and the alternatives. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from models.gpus.interference import Estimate, Interference
from models.gpus.pairing import OVERDUE, Choice, Job, Round, Terms

HOUR_S = 3600.0


def reasons(
    found: Round, known: Interference, terms: Terms | None = None, names: Sequence[str] = ()
) -> list[str]:
    """Return a sentence or two for each choice of a decision, in its order, then one for each GPU kept free.

    GPUs are called by their names, or else by their numbers.
    """

    def called(gpu: int) -> str:
        return names[gpu] if names else f"GPU {gpu}"

    told = [_told(choice, found, known, terms or Terms(), called) for choice in found.choices]
    return told + [
        (
            f"{called(gpu)} takes no second job: {_named(job)} has waited {job.waited_s / HOUR_S:.1f} h and "
            "can share with none of the running jobs"
        )
        for gpu, job in sorted(found.kept_free.items())
    ]


def _told(
    choice: Choice, found: Round, known: Interference, terms: Terms, called: Callable[[int], str]
) -> str:
    job, host = choice.job, choice.beside
    if choice.gpu is None:
        return f"{_named(job)} {_leaves(choice, found, called)}waits: {_why_not(job, found, known, terms)}"
    if choice.instead_of is not None:
        return f"{_named(job)} has {called(choice.gpu)}: {_why_now(job, choice.instead_of, terms)}"
    if host is None:
        comes = "" if choice.left is None else f"; it moves there from {called(choice.left)}"
        return f"{_named(job)} has {called(choice.gpu)}, which was free, to itself{comes}"
    own, others = known.estimate(job.kind, host.kind), known.estimate(host.kind, job.kind)
    moves = "" if choice.left is None else f" It moves there from {called(choice.left)}."
    if choice.left == choice.gpu:
        moves = f" It was there before, and gave up {called(choice.gpu)}."
    return (
        f"{_named(job)} shares {called(choice.gpu)} with {_named(host)}: it runs at {_speed(own)} of "
        f"its speed alone, the other at {_speed(others)}; together they do "
        f"{own.speed + others.speed:.2f} of what one does alone.{moves} "
        f"{_best_other(job, host, found, known)}"
    )


def _leaves(choice: Choice, found: Round, called: Callable[[int], str]) -> str:
    if choice.left is None:
        return ""
    to = [_named(one.job) for one in found.choices if one.gpu == choice.left and one.instead_of is not None]
    return f"leaves {called(choice.left)} {'to ' + to[0] + ' ' if to else ''}and "


def _why_now(job: Job, instead_of: Job, terms: Terms) -> str:
    overdue = terms.level(job) == OVERDUE
    why = f"waited {job.waited_s / HOUR_S:.1f} h" if overdue else f"run {job.ran_s / HOUR_S:.1f} h so far"
    return (
        f"it has {why}, and {_named(instead_of)}, which has run {instead_of.ran_s / HOUR_S:.1f} h, makes room"
    )


def _speed(expected: Estimate) -> str:
    source = f"measured for {expected.seconds / HOUR_S:.1f} h" if expected.seconds else "predicted"
    return f"{expected.speed:.2f} ({expected.low:.2f}–{expected.high:.2f}, {source})"


def _why_not(job: Job, found: Round, known: Interference, terms: Terms) -> str:
    best = _best(job, found, known, without=None)
    if best is None:
        return "no GPU is free, and it cannot share with any job that is alone on one"
    host, together = best
    told = f"with {_named(host)}, its best partner, the two would do {together:.2f} of what one does alone"
    if together < 1 + terms.least_gain:
        return told
    return f"{told}, but a job that gains more, or waits longer, goes first"


def _best_other(job: Job, host: Job, found: Round, known: Interference) -> str:
    best = _best(job, found, known, without=host.kind)
    if best is None:
        return "Alone it would wait; there is no other kind of job that it could share with."
    return (
        f"Alone it would wait; among other kinds of jobs the best partner is {_named(best[0])}: "
        f"{best[1]:.2f}."
    )


def _best(job: Job, found: Round, known: Interference, without: str | None) -> tuple[Job, float] | None:
    """Return the host with which most is done together, and how much; None if the job fits next to none."""
    together = [
        (known.estimate(job.kind, host.kind).speed + known.estimate(host.kind, job.kind).speed, -gpu, host)
        for gpu, host in found.hosts.items()
        if host.kind != without and host != job
    ]
    speed, _, host = max(together, key=lambda one: one[:2], default=(0.0, 0, job))
    return (host, speed) if speed > 0 else None


def _named(job: Job) -> str:
    return f"job {job.job_id} ({job.kind})"
