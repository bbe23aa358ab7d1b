"""Job states as sacct prints them, reduced to what each says about a job's use of resources."""

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

# The job's node failed during the run, or never booted for it.
_OF_NODE = frozenset({"NODE_FAIL", "BOOT_FAIL"})
_UNFINISHED = frozenset(
    {
        *(
            "COMPLETING",
            "CONFIGURING",
            "EXPEDITING",
            "PENDING",
            "POWER_UP_NODE",
            "RECONFIG_FAIL",
            "REQUEUE_FED",
        ),
        *("REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT"),
        *("STOPPED", "SUSPENDED", "UPDATE_DB"),
    }
)
# From slurm.h: the low byte is the base state. Of the flags above it, these are printed by sacct instead, in
# this order.
_BY_NUMBER = (
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
)  # fmt: skip
_BY_FLAG = {
    1 << 15: "COMPLETING",
    1 << 23: "STAGE_OUT",
    1 << 14: "CONFIGURING",
    1 << 13: "RESIZING",
    1 << 10: "REQUEUED",
    1 << 20: "REQUEUE_FED",
    1 << 11: "REQUEUE_HOLD",
    1 << 12: "SPECIAL_EXIT",
    1 << 16: "STOPPED",
    1 << 19: "REVOKED",
    1 << 21: "RESV_DEL_HOLD",
    1 << 22: "SIGNALING",
}


# Why ended jobs are rejected.
UNKNOWN_STATE = "it has ended, in an unknown state"
RESIZED = "it ended in state RESIZING: the rest of it ran with other resources"
WENT_ON = "its size was changed while it ran: its use before that is in another record"
NO_PARTITION = "no partition: its record was not completely written"


def is_known(state: str) -> bool:
    """Whether Slurm has such a state, final or not."""
    word = _word(state)
    return word in _OUTCOMES or word in _UNFINISHED


def is_resized(state: str) -> bool:
    """Whether it marks the record of a job before a resize: that record ends there, and another one continues."""
    return _word(state) == "RESIZING"


def is_failed_node(state: str) -> bool:
    """Whether the job ended because its node failed, or never booted."""
    return _word(state) in _OF_NODE


def _word(state: str) -> str:
    return state.split(" ", 1)[0].rstrip("+")


def state_of_number(number: int) -> str | None:
    """Return sacct's word for a state number in slurmdbd's tables; None if Slurm has no such state."""
    flagged = next((word for flag, word in _BY_FLAG.items() if number & flag), None)
    base = number & 0xFF
    return flagged or (_BY_NUMBER[base] if base < len(_BY_NUMBER) else None)


def outcome_of(state: str) -> Outcome:
    """Return the outcome of an attempt in this state; `unfinished` if the state is not final or not known.

    `CANCELLED by 1000` counts as CANCELLED; the `+` that sacct prints for a truncated column is dropped.
    """
    return _OUTCOMES.get(_word(state), "unfinished")
