"""What a job that still waits is to get, now that more is known than when it was submitted. Pure.

It has no sizing rules of its own: policy, floors, what the script fixes, opt-outs and the prediction are those of a
submission, by the very function that answers one (service/decide.py). It decides whether a job may be changed at all,
and whether what a submission would get now is worth writing: less than the job has, by the site's `min_saving`; or
more, because similar jobs have needed more since it was cut; or all that it asked for, if a brake has stopped cutting
jobs like it. GPUs, and memory that comes with them, stay as granted at submission.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from accounting.decisions.decision import Decision, DimensionReason, Fixed
from accounting.decisions.token import Token, find_token, format_token, replace_token
from accounting.request import Dimension, Grant, JobRequest, granted
from models.past.job_names import normal_name
from slurm_plugin.advisor.standing import (
    CPUS_STAY,
    FIELDS,
    KINDS,
    Standing,
    cpus_stay_of,
    standing_of,
    stays,
)
from slurm_plugin.brakes.words import words_of
from slurm_plugin.policy.braked import Brake
from slurm_plugin.policy.messages import changes_in_words
from slurm_plugin.policy.rules import Terms
from slurm_plugin.policy.submission import NOT_BATCH, OPTED_OUT, opts_out
from slurm_plugin.service.decide import BRAKED, BY_CLIENT, NOTHING_FIXED, Answer
from slurm_plugin.slurm.job_lines import is_held_again
from slurm_plugin.slurm.queue import Resize
from slurm_plugin.slurm.snapshot import QueuedJob

NOT_OURS = "no-token"
STARTS_NOW = "starts-now"
FITS = "fits"
RECOVERED = "recovered"
# Recovery is handling it, and may not have marked it yet.
HELD_AGAIN = "held-again"
# Without the decision at submission it is not known what the script fixes: such a job may only get more.
SCRIPT_NOT_KNOWN = "script-not-known"
# Other clusters would run it as it is here: their modes and limits are not known, nor what they had granted.
FEDERATED = "federation"

# Decides again about a job whose request is known, and what fixes it: service/decide.py, with what is known now.
Decide = Callable[[Decision, str], Answer]


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job's change, and the decision to record once slurmctld has it. `raises`: the job gets more."""

    change: Resize
    decision: Decision
    raises: bool


def size_again(
    job: QueuedJob,
    decisions: Mapping[str, Decision],
    decide: Decide,
    terms_for: Callable[[JobRequest], Terms],
    decision_id: str,
    now_s: float,
    *,
    cpus_stay: bool,
) -> Again | str:
    """Return the change of one waiting record, or why it is left as it is.

    `decisions` are the journalled ones by id, `terms_for` returns what the site's rules and brakes say now, and
    `cpus_stay` says that no CPUs may be changed on this release.
    """
    token = find_token(job.admin_comment)
    reason = why_left(job, token)
    if reason or token is None:
        return reason
    standing = standing_of(job, token, decisions)
    if isinstance(standing, str):
        return standing
    kept = stays(standing.request, cpus=CPUS_STAY if cpus_stay else cpus_stay_of(job))
    terms = terms_for(standing.request)
    fresh = undecided(standing, kept, token, decision_id, now_s)
    if terms.brake is not None:
        return given_back(job, standing, kept, fresh, terms.brake)
    if job.has_siblings:
        return FEDERATED
    answer = decide(fresh, job.comment)
    if answer.decision.mode != "enforce":
        return f"mode-{answer.decision.mode}"
    if answer.prediction is None or answer.decision.reason == "no-evidence":
        return answer.decision.reason
    decision = as_standing(answer.decision, standing, kept)
    before, after = granted(standing.request, standing.grant), granted(standing.request, decision.grant)
    raises = _total(after) > _total(before) or after.cpus > before.cpus
    if not raises and not saves(before, after, terms.limits.min_saving):
        return SCRIPT_NOT_KNOWN if decision.fixed is None else FITS
    return Again(
        change=change_of(job, before, after, decision, f"based on {answer.prediction.basis}"),
        decision=decision,
        raises=raises,
    )


def given_back(
    job: QueuedJob, standing: Standing, kept: Mapping[Dimension, str], fresh: Decision, brake: Brake
) -> Again | str:
    """Return the change that gives a record all it asked for, as far as possible; BRAKED if the record has it.

    The mode stays `enforce`: a write that is interrupted after its token is repeated, and once the brake is released
    the job is sized again.
    """
    request, why = standing.request, f"cutting {words_of(brake)} is stopped"
    asked: tuple[tuple[Dimension, int | None], ...] = (
        ("memory", request.mem_mib),
        ("cores", request.cpus_per_task and request.cpus),
        ("gpus", request.gpus),
    )
    reasons = tuple(
        DimensionReason(
            dimension=name, asked=amount, predicted=None, granted=amount, reason=kept.get(name, why)
        )
        for name, amount in asked
        if amount is not None
    )
    whole = msgspec.structs.replace(fresh, mode="enforce", dimensions=reasons)
    decision = msgspec.structs.replace(as_standing(whole, standing, kept), reason=BRAKED)
    before, after = granted(request, standing.grant), granted(request, decision.grant)
    if before == after:
        return BRAKED
    return Again(change=change_of(job, before, after, decision, f"as {why}"), decision=decision, raises=True)


def why_left(job: QueuedJob, token: Token | None) -> str:
    """Return why a record may not be changed, whatever is known of similar jobs; '' if it may."""
    if token is None:
        return NOT_OURS
    reasons = (
        (not job.waits, "started"),
        (not job.batch, NOT_BATCH),
        (bool(job.het_job_id), "het_job"),
        (job.exclusive, "exclusive"),
        (token.mode != "enforce", f"mode-{token.mode}"),
        (bool(token.refused), f"refused:{token.refused}"),
        (bool(token.via), BY_CLIENT),
        (token.recovered_at is not None, RECOVERED),
        (is_held_again(job), HELD_AGAIN),
        (token.reason == OPTED_OUT or opts_out(job.comment), OPTED_OUT),
    )
    return next((reason for holds, reason in reasons if holds), "")


def undecided(
    standing: Standing, kept: Mapping[Dimension, str], token: Token, decision_id: str, now_s: float
) -> Decision:
    """Return the decision that is to be made."""
    request, earlier = standing.request, standing.earlier
    fixed = (earlier.fixed if earlier else None) or NOTHING_FIXED
    return Decision(
        id=decision_id,
        time_s=now_s,
        mode="observe",
        applied=False,
        reason="",
        request=request,
        fixed=msgspec.structs.replace(fixed, kept=(*fixed.kept, *kept.items())),
        replaces=token.decision_id,
    )


def as_standing(decision: Decision, standing: Standing, kept: Mapping[Dimension, str]) -> Decision:
    """Return a new decision that keeps what stays from the one before, and all of it if the script is not known."""
    earlier, request = standing.earlier, standing.request
    new: dict[str, Any] = msgspec.structs.asdict(decision.grant)
    new |= {name: getattr(standing.grant, name) for dimension in kept for name in FIELDS[dimension]}
    fixed: Fixed | None = earlier.fixed if earlier else None
    if fixed is None:
        before, after = granted(request, standing.grant), granted(request, decision.grant)
        for kind in KINDS:
            asked, had, wanted = (getattr(one, kind) for one in (request, before, after))
            most = None if asked is None else max(had, wanted)
            new[kind] = None if most == asked else most
    grant = Grant(**new)
    return msgspec.structs.replace(
        decision,
        grant=grant,
        applied=bool(grant),
        reason="resized" if grant else FITS,
        fixed=fixed,
        dimensions=tuple(_reason(reason, granted(request, grant), earlier) for reason in decision.dimensions),
    )


def _reason(reason: DimensionReason, given: JobRequest, earlier: Decision | None) -> DimensionReason:
    """Return why a dimension is as it is now; for GPUs, the reason given at submission."""
    if reason.dimension == "gpus":
        return next(
            (one for one in (earlier.dimensions if earlier else ()) if one.dimension == "gpus"), reason
        )
    amount = given.mem_mib if reason.dimension == "memory" else given.cpus
    return msgspec.structs.replace(reason, granted=None if reason.asked is None else amount)


def saves(before: JobRequest, after: JobRequest, least: float) -> bool:
    """Whether a job holds less by at least this share of its memory or of its CPUs."""
    pairs = ((_total(before), _total(after)), (before.cpus, after.cpus))
    return any(had > has and had - has >= had * least for had, has in pairs)


def _total(request: JobRequest) -> int:
    return request.mem_mib or 0


def change_of(job: QueuedJob, before: JobRequest, after: JobRequest, decision: Decision, why: str) -> Resize:
    """Return what is to be written: what differs, and the new token in place of the old one."""
    fields = {kind: getattr(after, kind) for kind in KINDS if getattr(after, kind) != getattr(before, kind)}
    if after.mem_per_cpu_mib is not None:
        # Slurm makes more CPUs of memory per CPU above MaxMemPerCPU: neither can be judged, or set, without the
        # other.
        fields |= {"cpus_per_task": after.cpus_per_task or 1, "mem_per_cpu_mib": after.mem_per_cpu_mib}
    words = ", ".join(changes_in_words(decision.request, decision.grant)) or "what was asked for"
    return Resize(
        job_id=job.job_id,
        uid=job.uid,
        num_tasks=job.num_tasks,
        reason=f"gets {words}, {why}",
        admin_comment=replace_token(job.admin_comment, format_token(decision)),
        before=job.admin_comment,
        seen=job,
        **fields,
    )


def alike(decision: Decision) -> tuple[JobRequest, Fixed | None]:
    """Return what else a decision rests on, besides what is known: the same for jobs whose names differ by numbers."""
    request = decision.request
    return msgspec.structs.replace(request, job_name=normal_name(request.job_name)), decision.fixed
