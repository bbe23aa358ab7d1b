"""The past of each form's family, as ingest would have stored it, so that a release needs no hour of real jobs."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence

import msgspec

from accounting.records import Attempt, Use
from models.past.families import script_signature
from tests.builders import job_row
from tests.cluster.matrix.form import Form

JOBS = 8
# It makes two CPUs, whatever was requested; a use of one core would make one.
USED_CORES = 1.5
USED_GPUS = 1
# The request of past jobs. No row requests twice as much, so that they are evidence for every row.
ASKED_CPUS, ASKED_MIB, ASKED_GPUS = 32, 32000, 4
RAN_S = 100


def script_of(form: Form) -> str:
    """Return the commands of a form's job: a plain `srun` must work in it if it works in that form at all."""
    if form.is_direct:
        # As a client reads it: words without the shell's quotes.
        return " ".join(shlex.split(form.script))
    if form.script:
        return form.script
    if not form.srun:
        return "hostname\n"
    return "srun sh -c 'echo gpus=$CUDA_VISIBLE_DEVICES'\n" if form.wants_gpus else "srun hostname\n"


def past_of(forms: Sequence[Form], user: str) -> list[Attempt]:
    """Return eight attempts of each form's family, the last one ended minutes ago."""
    before_s = int(time.time()) - 1000 * JOBS * len(forms) - 600
    return [
        _attempt(form, user, before_s + 1000 * number, number + 1)
        for number, form in enumerate(form for _ in range(JOBS) for form in forms)
    ]


def _attempt(form: Form, user: str, submit_s: int, job_id: int) -> Attempt:
    row = job_row(
        # No job of the sandbox has an id as high as this.
        job_id=10_000_000 + job_id,
        display_id=str(10_000_000 + job_id),
        user=user,
        job_name=form.name,
        submit_s=submit_s,
        start_s=submit_s + 10,
        end_s=submit_s + 10 + RAN_S,
        elapsed_s=RAN_S,
    )
    use = Use(
        outcome="completed",
        peak_mem_mib=form.used_mib,
        memory_quality="sampled",
        cores=USED_CORES * form.tasks,
        cores_per_task=USED_CORES,
        wall_s=RAN_S,
        gpus=USED_GPUS if form.wants_gpus else None,
        gpu_source="nvml" if form.wants_gpus else "",
    )
    return Attempt(
        row=msgspec.structs.replace(row, req_cpus=ASKED_CPUS, req_mem_mib=ASKED_MIB),
        num_tasks=form.tasks,
        asked_cpus=ASKED_CPUS,
        asked_mem_mib=ASKED_MIB,
        asked_gpus=ASKED_GPUS if form.wants_gpus else None,
        decision_id="",
        script_signature=script_signature(script_of(form)),
        use=use,
    )
