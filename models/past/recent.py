"""A job that has ended, as a line: what a reader of accounting passes to a predictor. Pure."""

from __future__ import annotations

import msgspec

from accounting.damage import UNREADABLE
from accounting.records import Attempt
from accounting.request import JobRequest
from models.past.attempts import past_job, request_of
from models.past.jobs import PastJob
from models.past.trials import Trial, trial_of


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has ended: what its user had asked for, what became of it, and when that was reported (unix seconds).

    `trial` is what it says for or against cutting requests; None if that is nothing. `corrects`: it was reported
    before, and more is known of it now.
    """

    told_s: float
    request: JobRequest
    job: PastJob
    trial: Trial | None = None
    corrects: bool = False


def finished(attempt: Attempt, told_s: float, *, corrects: bool = False) -> Finished | None:
    """Return an attempt as a finished job; None if it never ran, since it shows nothing then."""
    if not attempt.ran:
        return None
    return Finished(
        told_s=told_s,
        request=request_of(attempt),
        job=past_job(attempt),
        trial=trial_of(attempt),
        corrects=corrects,
    )


def encode_finished(one: Finished) -> bytes:
    """Return the line of a finished job, with its newline."""
    return msgspec.json.encode(one) + b"\n"


def decode_finished(line: bytes) -> Finished | None:
    """Return the finished job of a line; None if the line is damaged."""
    try:
        return msgspec.json.decode(line, type=Finished)
    except UNREADABLE:
        return None
