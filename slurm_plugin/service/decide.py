"""The decision about one submission. Pure: the caller brings clock, id and model, and does with it what it must.

The hook's service and `rightsizer predict` both call `decide`, so a prediction on the command line is the very
answer that a submission would get.
"""

from __future__ import annotations

import msgspec

from accounting.decisions import Decision
from accounting.request import Grant
from accounting.token import format_token
from models.demand.prediction import ChainSettings, Prediction, Predictor
from slurm_plugin.config import Config
from slurm_plugin.policy.messages import user_line
from slurm_plugin.policy.sizing import Limits, size
from slurm_plugin.policy.submission import Submission, job_request, why_left_alone
from slurm_plugin.service.protocol import VERSION, Reply


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, the prediction it rests on (None where none was made), and the line for the user."""

    decision: Decision
    prediction: Prediction | None
    message: str


def decide(
    submission: Submission, predictor: Predictor | None, config: Config, decision_id: str, now_s: float
) -> Answer:
    """Decide what a submission gets. Without a model, or in a form that is not handled, it gets what it asked."""
    request = job_request(submission)
    kept = Decision(id=decision_id, time_s=now_s, mode=config.mode, applied=False, reason="", request=request)
    left_alone = why_left_alone(submission)
    if left_alone is not None:
        return Answer(decision=msgspec.structs.replace(kept, reason=left_alone), prediction=None, message="")
    if predictor is None:
        return Answer(decision=msgspec.structs.replace(kept, reason="no-model"), prediction=None, message="")
    prediction = predictor.predict(request)
    sized = size(request, prediction, limits_of(config))
    unknown = prediction.memory is None and prediction.cores is None and prediction.gpus is None
    decision = msgspec.structs.replace(
        kept,
        applied=config.mode == "enforce" and bool(sized.grant),
        reason="resized" if sized.grant else "no-evidence" if unknown else "fits",
        grant=sized.grant,
        model=prediction.model,
        dimensions=sized.reasons,
    )
    return Answer(
        decision=decision,
        prediction=prediction,
        message=user_line(decision, grounds(prediction, sized.grant)),
    )


def grounds(prediction: Prediction, grant: Grant) -> str:
    """Return in words what a grant rests on; who metered the GPUs is told wherever GPUs are cut."""
    if grant.gpus_per_node is None:
        return prediction.basis
    return f"{prediction.basis}, GPUs by {prediction.gpu_source} meter"


def reply_to(request_id: str, answer: Answer) -> Reply:
    """Return what goes back to the hook: the grant only where it is applied, the token always."""
    decision = answer.decision
    token = format_token(decision)
    if decision.applied:
        return Reply(v=VERSION, id=request_id, grant=decision.grant, token=token, message=answer.message)
    return Reply(v=VERSION, id=request_id, token=token, message=answer.message)


def limits_of(config: Config) -> Limits:
    """Return the site's bounds as the sizing rules take them."""
    return Limits(
        memory_floor_mib=config.policy.memory_floor_mib,
        memory_step_mib=config.policy.memory_step_mib,
        min_saving=config.policy.min_saving,
        def_mem_per_cpu_mib=config.policy.def_mem_per_cpu_mib,
    )


def chain_settings_of(config: Config) -> ChainSettings:
    """Return the site's wishes for predictions as the chains take them."""
    return ChainSettings(
        memory_margin=config.policy.memory_margin,
        cores_margin=config.policy.cores_margin,
        min_evidence=config.models.min_evidence,
    )
