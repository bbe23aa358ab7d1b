"""Job states as sacct prints them, reduced to what each tells about a job's use of resources."""

from __future__ import annotations

from typing import Literal

Outcome = Literal["completed", "out_of_memory", "timeout", "cut_short", "unfinished"]

_OUTCOMES: dict[str, Outcome] = {
    "COMPLETED": "completed",
    "OUT_OF_MEMORY": "out_of_memory",
    "TIMEOUT": "timeout",
    "DEADLINE": "cut_short",
    "BOOT_FAIL": "cut_short",
    "CANCELLED": "cut_short",
    "FAILED": "cut_short",
    "NODE_FAIL": "cut_short",
    "PREEMPTED": "cut_short",
    "REQUEUED": "cut_short",
    "REVOKED": "cut_short",
}


def outcome_of(state: str) -> Outcome:
    """Return what a state says of an attempt; a state that is not final, or not known, is `unfinished`.

    `CANCELLED by 1000` counts as CANCELLED; a `+` that sacct prints for a cut column is dropped.
    """
    word = state.split(" ", 1)[0].rstrip("+")
    return _OUTCOMES.get(word, "unfinished")
