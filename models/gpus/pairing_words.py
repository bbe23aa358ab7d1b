"""Why a job shares a GPU with that one, or waits, in words. Pure."""

from __future__ import annotations

from models.gpus.interference import Estimate, Interference
from models.gpus.pairing import Choice

HOUR_S = 3600.0


def in_words(choice: Choice, known: Interference) -> str:
    """Return what was decided of a job, by which speeds, and on what these rest."""
    job, beside = choice.job, choice.beside
    named = f"job {job.job_id} ({job.kind})"
    away = "" if choice.left is None else f", away from GPU {choice.left}"
    if choice.gpu is None:
        return f"{named} waits{away}: no GPU is free, and with nobody who is alone on one it would gain"
    if beside is None:
        return f"{named} has GPU {choice.gpu} to itself{away}"
    own, other = known.estimate(job.kind, beside.kind), known.estimate(beside.kind, job.kind)
    return (
        f"{named} shares GPU {choice.gpu} with job {beside.job_id} ({beside.kind}){away}: it is expected at "
        f"{_speed(own)} of its speed alone, the other at {_speed(other)}; together they do "
        f"{own.speed + other.speed:.2f} of what one GPU does alone, {_rests_on(own)}"
    )


def _speed(found: Estimate) -> str:
    return f"{found.speed:.2f} ({found.low:.2f} to {found.high:.2f})"


def _rests_on(found: Estimate) -> str:
    if not found.seconds:
        return "predicted from how each of the two gets on with others"
    return f"as seen side by side for {found.seconds / HOUR_S:.1f} h"
