"""A decision about one submission, as the service journals it and the store keeps it."""

from __future__ import annotations

from typing import Literal

import msgspec

from accounting.damage import UNREADABLE
from accounting.request import Dimension, Grant, JobRequest

Mode = Literal["observe", "advise", "enforce"]

# Precedes the hook's reason if a decision was not carried out.
REFUSED = "refused:"


class DimensionReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why one dimension was set as it was. `asked`, `predicted`, `granted` are totals of the job.

    Memory is in MiB; cores and GPUs are counts. `predicted` is None if there is not enough evidence.
    """

    dimension: Dimension
    asked: float | None
    predicted: float | None
    granted: float | None
    reason: str


class PredictedUnder(msgspec.Struct, frozen=True, array_like=True):
    """The site's settings under which a prediction was made, as in models.demand.prediction.ChainSettings.

    An array in JSON, because every line has it. New fields go to the end, with the earlier behaviour as their default.
    """

    memory_margin: float
    cores_margin: float
    min_evidence: int
    most_failures: float
    most_slowdown: float = 0.0


class Fixed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What only the submission shows, whatever is learned later: floors, and dimensions to keep, each with its reason.

    Floors are MiB of the job, CPUs per task (0 means none), and the GPUs that its nodes need at least.
    `tasks_stay`: the number of tasks on each node is fixed. `session`: somebody works in the job interactively.
    """

    memory_mib: int = 0
    cpus_per_task: int = 0
    gpus: int = 1
    kept: tuple[tuple[Dimension, str], ...] = ()
    tasks_stay: bool = False
    session: bool = False


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was decided about one submission.

    `reason` is a short code for the whole; `grant` is what would be given, `applied` whether it is; `rule` is the
    name of the site's rule that applied, '' for none. `via` is the id of the decision that the job's own client had
    carried out before (docs/decisions/0010), whose request is what was first asked; '' for none. `settings` is None
    if nothing was predicted, and in decisions of earlier releases. `fixed` is None in those too: what their scripts
    fix is not known. `replaces` is the id of the decision that a pending job had until then; '' for none.
    `from_token` says that the journal line is lost, and that everything known comes from the job's token.
    """

    id: str
    time_s: float
    mode: Mode
    applied: bool
    reason: str
    request: JobRequest
    grant: Grant = Grant()
    rule: str = ""
    via: str = ""
    model: str = ""
    settings: PredictedUnder | None = None
    dimensions: tuple[DimensionReason, ...] = ()
    fixed: Fixed | None = None
    replaces: str = ""
    from_token: bool = False


def refused(decision: Decision, reason: str) -> Decision:
    """Return the decision as it stands after the hook refused to carry it out, with the hook's reason."""
    return msgspec.structs.replace(decision, applied=False, reason=REFUSED + reason)


def encode_decision(decision: Decision) -> bytes:
    """Return the journal line of a decision, with its newline."""
    return msgspec.json.encode(decision) + b"\n"


def decode_decision(line: bytes) -> Decision | None:
    """Return the decision in a journal line; None if the line is damaged."""
    try:
        return msgspec.json.decode(line, type=Decision)
    except UNREADABLE:
        return None
