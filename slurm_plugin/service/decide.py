"""The decision about one job. Pure: the caller provides clock, id and model, and carries the decision out.

The hook's service and `rightsizer predict` both call `decide`, so a prediction on the command line is exactly the
answer that a submission would get. It reads the submission once, into a `Decision` that decides nothing yet.
`fill_in` then decides from what is known: at submission, and again for a job that still waits
(slurm_plugin/advisor/late.py).
"""

from __future__ import annotations

import math

import msgspec

from accounting.decisions.decision import Decision, Fixed, PredictedUnder
from accounting.decisions.token import carried_id, carried_word, format_token
from accounting.request import Dimension, Grant, JobRequest
from models.demand.prediction import ChainSettings, Prediction, Predictor
from slurm_plugin.config.settings import Config
from slurm_plugin.policy.facts import MemoryTerms, Minimum, SiteFacts
from slurm_plugin.policy.forms import kept_by_form
from slurm_plugin.policy.limits import Limits
from slurm_plugin.policy.memory_limits import kept_by_limits
from slurm_plugin.policy.messages import is_misread, user_line
from slurm_plugin.policy.rules import Terms, terms_for
from slurm_plugin.policy.script_floors import read_floors
from slurm_plugin.policy.sizing import OUTNUMBERS, may_move, size
from slurm_plugin.policy.submission import (
    OPTED_OUT,
    ClientSubmission,
    Submission,
    job_request,
    kept_dimensions,
    why_left_alone,
)
from slurm_plugin.service.protocol import VERSION, Reply

NO_FACTS = SiteFacts()
NO_MEMORY_TERMS = MemoryTerms()
NOTHING_FIXED = Fixed()
KEPT_BY_SESSION: dict[Dimension, str] = dict.fromkeys(
    ("memory", "cores", "gpus"), "somebody works in the session that the script starts"
)
# The form by which the hook and the clients name --overcommit.
OVERCOMMITS = "min_cpus"
# The forms by which GPUs of several types in one list are named: how many there are is not known.
SEVERAL_TYPES = frozenset({"gres", "tres_per_job"})
BY_CLIENT = "decided-for-its-client"
# What Slurm allows was never read, or not since the job's partition was made: a job that is cut below it would wait for
# ever.
SITE_NOT_KNOWN = "site-not-known"
# The job would be cut but for a brake (slurm_plugin/brakes).
BRAKED = "braked"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, the prediction that it rests on (None if none was made), and the line for the user."""

    decision: Decision
    prediction: Prediction | None
    message: str


def decide(
    submission: Submission,
    predictor: Predictor | None,
    config: Config,
    decision_id: str,
    now_s: float,
    facts: SiteFacts = NO_FACTS,
    input_mib: float | None = None,
) -> Answer:
    """Decide what a submission gets.

    It keeps everything as asked if there is no model, if Slurm's limits are needed and not known, or if its form is
    not handled.
    """
    request = job_request(submission, input_mib)
    return decide_request(submission, request, predictor, config, decision_id, now_s, facts)


def decide_request(
    submission: Submission,
    request: JobRequest,
    predictor: Predictor | None,
    config: Config,
    decision_id: str,
    now_s: float,
    facts: SiteFacts,
) -> Answer:
    """Decide what a submission gets, if its `job_request` is known already."""
    undecided = Decision(
        id=decision_id,
        time_s=now_s,
        mode="observe",
        applied=False,
        reason="",
        request=request,
        via=via(submission),
        fixed=fixed_by(submission, request),
    )
    command = "sbatch " if submission.batch else ""
    answer = fill_in(undecided, submission.comment, predictor, config, facts, command)
    if answer.message and is_misread(submission.script):
        return msgspec.structs.replace(answer, message="")
    return answer


def fill_in(
    undecided: Decision,
    comment: str,
    predictor: Predictor | None,
    config: Config,
    facts: SiteFacts,
    command: str = "sbatch ",
) -> Answer:
    """Decide mode, reason and grant from what is known now about a job whose request is known, and what fixes it.

    `comment` is the job's. `command` is the command with which the user can resubmit the job and keep the request
    (used only for the message).
    """
    request, fixed = undecided.request, undecided.fixed or NOTHING_FIXED
    terms = terms_for(request, config, facts)
    memory, cpus_step = facts.memory_for(request) or NO_MEMORY_TERMS, facts.cpus_step_for(request)
    kept: dict[Dimension, str] = {
        **(KEPT_BY_SESSION if fixed.session and not terms.limits.cut_sessions else {}),
        **kept_by_form(facts.forms_of(request)),
        **kept_by_limits(request, memory, cpus_step, overcommits=("cores", OVERCOMMITS) in fixed.kept),
        **dict(fixed.kept),
    }
    decision = msgspec.structs.replace(undecided, mode=terms.mode, rule=terms.rule)
    reason = BY_CLIENT if decision.via else why_left_alone(comment, request, kept)
    reason = reason or ("" if predictor else "no-model")
    if not reason and config.service.limits_needed and facts.do_not_tell(request):
        reason = SITE_NOT_KNOWN
    if reason or predictor is None:
        left_alone = msgspec.structs.replace(decision, reason=reason)
        return Answer(decision=left_alone, prediction=None, message="")
    limits = with_floors(terms.limits, request, fixed, facts.minimum_for(request), cpus_step)
    limits = with_memory_terms(limits, memory, known=facts.memory is not None)
    prediction = predictor.predict(request)
    sized = size(request, prediction, limits, kept)
    unknown = prediction.memory is None and prediction.cores is None and prediction.gpus is None
    decision = msgspec.structs.replace(
        decision,
        applied=terms.mode == "enforce" and bool(sized.grant),
        reason=_reason(terms, sized.grant, unknown=unknown),
        grant=sized.grant,
        model=prediction.model,
        settings=recorded_settings(predictor.settings),
        dimensions=sized.reasons,
    )
    message = user_line(decision, grounds(prediction, sized.grant), command)
    return Answer(decision=decision, prediction=prediction, message=message)


def _reason(terms: Terms, grant: Grant, *, unknown: bool) -> str:
    """Return why a job gets what it gets, as one word."""
    if not grant:
        return "no-evidence" if unknown else "fits"
    return "resized" if terms.brake is None else BRAKED


def fixed_by(submission: Submission, request: JobRequest) -> Fixed:
    """Return what only the submission shows: what its script fixes, and what its form keeps.

    GPUs of the whole job must be at least one for each of the nodes that it may be on: with fewer, an srun in it fails
    (22.05), or the tasks on some node have none (24.11, 26.05).
    """
    script = read_floors(submission.script, request.num_tasks)
    by_script = dict(script.kept)
    if script.tasks_by_fit and submission.num_tasks is None and submission.ntasks_per_node is None:
        by_script.setdefault("cores", "an srun in the script starts as many tasks as fit")
    if script.on_each_node and not submission.tasks_stay:
        by_script.setdefault("cores", "the script says how many ranks are on each node")
    if script.on_nodes and submission.nodes is None:
        by_script.setdefault("cores", "an srun in the script takes several nodes")
    # Where ranks on each node are numbered, and the job's tasks are not, its CPUs stay.
    on_node = math.ceil(script.cpus_per_node / (submission.ntasks_per_node or 1))
    if submission.mem_per_cpu_mib is not None and 0 < script.least_part < (submission.cpus_per_task or 1):
        by_script.setdefault("memory", "an srun in the script has the memory of its own CPUs")
    if submission.mem_per_gpu_mib is not None and "gpus" in by_script:
        by_script.setdefault("memory", "an srun in the script has the memory of its own GPUs")
    by_form = kept_dimensions(submission)
    if not SEVERAL_TYPES.isdisjoint(submission.other) and may_move(request, tasks_stay=submission.tasks_stay):
        by_form.setdefault("cores", OUTNUMBERS)
    return Fixed(
        memory_mib=script.memory_mib,
        cpus_per_task=max(script.cpus_per_task, on_node),
        gpus=submission.most_nodes if request.gpus_per_job is not None else 1,
        kept=tuple({**by_script, **by_form}.items()),
        tasks_stay=submission.tasks_stay,
        session=script.session,
    )


def via(submission: Submission) -> str:
    """Return the id of the decision that a direct job's client has carried out already; '' if there is none."""
    by_hook = not submission.batch and not isinstance(submission, ClientSubmission)
    return carried_id(submission.comment) if by_hook else ""


def with_floors(
    limits: Limits,
    request: JobRequest,
    fixed: Fixed,
    least: Minimum,
    cpus_step: int,
) -> Limits:
    """Raise the site's floors to what the job fixes, to the least that its QOS allows, and to whole cores."""
    return msgspec.structs.replace(
        limits,
        memory_floor_mib=max(limits.memory_floor_mib, fixed.memory_mib, least.mem_mib),
        min_cpus_per_task=max(
            limits.min_cpus_per_task, fixed.cpus_per_task, math.ceil(least.cpus / request.num_tasks)
        ),
        min_gpus=max(limits.min_gpus, least.gpus, fixed.gpus),
        cpus_step=max(limits.cpus_step, cpus_step),
        tasks_stay=fixed.tasks_stay,
    )


def with_memory_terms(limits: Limits, memory: MemoryTerms, *, known: bool) -> Limits:
    """Add Slurm's memory configuration; if the site's own sets another default, the smaller one applies."""
    defaults = [memory.default_per_cpu_mib if known else None, limits.def_mem_per_cpu_mib]
    said = [default for default in defaults if default is not None]
    return msgspec.structs.replace(
        limits,
        max_mem_per_cpu_mib=memory.max_per_cpu_mib,
        looser_mem_per_cpu_mib=memory.looser_per_cpu_mib,
        def_mem_per_node_mib=memory.default_per_node_mib,
        mem_limit_share=memory.limit_percent / 100 or 1.0,
        def_mem_per_cpu_mib=min(filter(None, said), default=0) if said else None,
    )


def memory_comes_with_cpus(request: JobRequest, config: Config, facts: SiteFacts) -> bool:
    """Whether such a job, if it asks for no memory, gets a fixed amount for each CPU and is limited to it."""
    limits, memory = terms_for(request, config, facts).limits, facts.memory_for(request) or NO_MEMORY_TERMS
    limits = with_memory_terms(limits, memory, known=facts.memory is not None)
    return bool(limits.def_mem_per_cpu_mib) and not memory.is_uncounted


def grounds(prediction: Prediction, grant: Grant) -> str:
    """Return in words what a grant rests on; names the meter of the GPUs if any GPUs are cut."""
    if grant.gpus_per_node is None and grant.gpus_per_job is None and grant.gpus_per_task is None:
        return prediction.basis
    return f"{prediction.basis}, GPUs by {prediction.gpu_source} meter"


def reply_to(request_id: str, answer: Answer) -> Reply:
    """Return the reply to the hook: the grant only if it is applied, the token always."""
    decision = answer.decision
    token = format_token(decision)
    if decision.applied:
        return Reply(v=VERSION, id=request_id, grant=decision.grant, token=token, message=answer.message)
    return Reply(v=VERSION, id=request_id, token=token, message=answer.message)


def reply_to_client(request_id: str, answer: Answer) -> Reply:
    """Return the reply to a client: the word for the job's comment takes the place of the hook's token.

    A job that opted out does not get even that.
    """
    decision = answer.decision
    grant = decision.grant if decision.applied else Grant()
    word = "" if decision.reason == OPTED_OUT else carried_word(decision.id)
    return Reply(v=VERSION, id=request_id, grant=grant, token=word, message=answer.message)


def chain_settings_of(config: Config) -> ChainSettings:
    """Return the site's settings for predictions in the form that the chains use."""
    return ChainSettings(
        memory_margin=config.policy.memory_margin,
        cores_margin=config.policy.cores_margin,
        min_evidence=config.models.min_evidence,
        most_failures=config.policy.most_failures,
        most_slowdown=config.policy.most_slowdown,
    )


def recorded_settings(settings: ChainSettings) -> PredictedUnder:
    """Return the site's settings for predictions as a decision records them."""
    return PredictedUnder(**msgspec.structs.asdict(settings))


def chain_settings_then(recorded: PredictedUnder) -> ChainSettings:
    """Return the site's settings under which a decision was made."""
    return ChainSettings(**msgspec.structs.asdict(recorded))
