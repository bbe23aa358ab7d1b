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

# Its node failed while it ran, or did not come up for it in the first place.
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
# slurm.h: the low byte is the state; of the flags above it those that sacct prints instead, in its order.
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


# Why jobs that are over are not taken.
UNKNOWN_STATE = "it is over, in a state that is not known here"
RESIZED = "it is over in state RESIZING: the rest of it ran with other resources"
WENT_ON = "its size was changed while it ran: what it used before that is in another record"
NO_PARTITION = "no partition: its record had not been written whole"


def is_known(state: str) -> bool:
    """Whether Slurm has such a state, final or not."""
    word = _word(state)
    return word in _OUTCOMES or word in _UNFINISHED


def is_resized(state: str) -> bool:
    """Whether it is that of a job's record from before its size was changed: it ends there, and another goes on."""
    return _word(state) == "RESIZING"


def is_failed_node(state: str) -> bool:
    """Whether it ended because its node failed, or never came up."""
    return _word(state) in _OF_NODE


def _word(state: str) -> str:
    return state.split(" ", 1)[0].rstrip("+")


def state_of_number(number: int) -> str | None:
    """Return the state that slurmdbd's tables hold as a number, in sacct's word; None where Slurm has none such."""
    flagged = next((word for flag, word in _BY_FLAG.items() if number & flag), None)
    base = number & 0xFF
    return flagged or (_BY_NUMBER[base] if base < len(_BY_NUMBER) else None)


def outcome_of(state: str) -> Outcome:
    """Return what a state says of an attempt; a state that is not final, or not known, is `unfinished`.

    `CANCELLED by 1000` counts as CANCELLED; a `+` that sacct prints for a cut column is dropped.
    """
    return _OUTCOMES.get(_word(state), "unfinished")
