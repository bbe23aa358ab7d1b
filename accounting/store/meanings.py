"""The meaning and unit of every column of the store: for the schema of exports, and for docs/store.md.

A test fails if a column of schema.py is not described here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa
from sqlalchemy import Table

from accounting.store import schema
from accounting.store.batches import arrow_type


class Meaning(msgspec.Struct, frozen=True):
    """A column's unit ('' for none) and meaning, in words."""

    unit: str
    text: str


_IDENTITY = {
    "cluster": Meaning("", "name of the cluster, as slurmdbd has it"),
    "job_id": Meaning("", "Slurm's raw job id; each task of an array has its own"),
    "submit_s": Meaning("unix s", "when it was submitted"),
}
_INPUT = (
    "the size of the files that its script names as input; null where nobody looked (docs/input-sizes.md)"
)
_QUALITY = "how far it can be trusted: exact, sampled, short, censored, contaminated, absent"

ATTEMPTS: Mapping[str, Meaning] = {
    **_IDENTITY,
    "start_s": Meaning("unix s", "when this attempt started; 0 where it never did"),
    "end_s": Meaning("unix s", "when it ended"),
    "elapsed_s": Meaning("s", "Slurm's elapsed time, without the time it was suspended"),
    "display_id": Meaning("", "the id as Slurm shows it: 668_1 of an array, 669+0 of a heterogeneous job"),
    "user": Meaning("", "whose job it is"),
    "account": Meaning("", "the account that it ran under"),
    "partition": Meaning("", "the partition that it ran in"),
    "qos": Meaning("", "its quality of service"),
    "job_name": Meaning("", "the name that its user gave it"),
    "comment": Meaning("", "its user's comment, where Slurm stores it (AccountingStoreFlags=job_comment)"),
    "admin_comment": Meaning(
        "",
        "the admin comment, with our token where the hook answered; `known=journal` in it if slurmdbd has lost it",
    ),
    "state": Meaning("", "Slurm's final state, such as COMPLETED or CANCELLED by 1000"),
    "limit_s": Meaning("s", "its wall limit; null for none"),
    "nodes": Meaning("nodes", "how many nodes it held"),
    "req_cpus": Meaning("CPUs", "ReqTRES of the whole job: what was left after our own rewrite"),
    "req_mem_mib": Meaning("MiB", "ReqTRES of the whole job: what was left after our own rewrite"),
    "req_gpus": Meaning("GPUs", "ReqTRES of the whole job: what was left after our own rewrite"),
    "alloc_cpus": Meaning("CPUs", "AllocTRES of the whole job: what it held"),
    "alloc_mem_mib": Meaning("MiB", "AllocTRES of the whole job: what it held"),
    "alloc_gpus": Meaning("GPUs", "AllocTRES of the whole job: what it held"),
    "num_tasks": Meaning("tasks", "how many tasks it asked for; else the most that one of its steps ran"),
    "asked_cpus": Meaning("CPUs", "what its user asked for the whole job, before any rewrite"),
    "asked_mem_mib": Meaning("MiB", "what its user asked for the whole job, before any rewrite"),
    "asked_gpus": Meaning("GPUs", "what its user asked for the whole job, before any rewrite"),
    "decision_id": Meaning("", "the decision that was made on it, in the table decisions; '' for none"),
    "script_signature": Meaning("", "a digest of what its batch script does; '' where it is not known"),
    "outcome": Meaning("", "completed, out_of_memory, timeout or cut_short"),
    "peak_mem_mib": Meaning("MiB", "the peak of the whole job; null where it is not known"),
    "peak_node_mib": Meaning(
        "MiB", "the most that any of its nodes can have held; null where it is not known"
    ),
    "memory_quality": Meaning("", f"of the memory peaks: {_QUALITY}"),
    "cores": Meaning("cores", "the mean number of busy cores while it ran; null where it is not known"),
    "cores_per_task": Meaning("cores", "the same of its busiest task; null where it is not known"),
    "cores_quality": Meaning("", f"of the busy cores: {_QUALITY}"),
    "wall_s": Meaning("s", "how long it ran"),
    "wall_quality": Meaning("", f"of the time it ran: {_QUALITY}"),
    "gpus": Meaning("GPUs", "how many GPUs were ever busy, over all nodes; null where nobody metered them"),
    "gpu_mem_mib": Meaning("MiB", "the most that was used of the memory of any one of its GPUs"),
    "gpu_quality": Meaning("", f"of the GPUs and their memory: {_QUALITY}"),
    "gpu_source": Meaning("", "who metered its GPUs; '' for nobody"),
    "read_mib": Meaning("MiB", "what all its tasks read"),
    "written_mib": Meaning("MiB", "what all its tasks wrote"),
    "io_quality": Meaning("", f"of what was read and written: {_QUALITY}"),
    "energy_j": Meaning("J", "the energy that Slurm recorded for all its nodes; null for none"),
    "energy_quality": Meaning("", f"of the energy: {_QUALITY}"),
    "slurm_release": Meaning("", "the Slurm that measured it, such as 24.11; '' where nobody told"),
    "gather": Meaning("", "the plugins that measured it, such as jobacct_gather/cgroup cgroup/v2"),
    "record_digest": Meaning("", "a digest of the record as it was read; null where it is to be read again"),
    "input_mib": Meaning("MiB", _INPUT),
    "step_cpus": Meaning("CPUs", "the most that steps which asked for a part of the job held at one time"),
    "step_mem_mib": Meaning("MiB", "the most that steps which asked for a part of the job held at one time"),
}

STEPS: Mapping[str, Meaning] = {
    **_IDENTITY,
    "submit_s": Meaning("unix s", "when its job was submitted"),
    "attempt_start_s": Meaning("unix s", "when its attempt started: start_s in the table attempts"),
    "step_id": Meaning("", "batch, extern, interactive, or the step's number"),
    "state": Meaning("", "Slurm's final state of the step"),
    "start_s": Meaning("unix s", "when the step started"),
    "end_s": Meaning("unix s", "when the step ended; 0 where it was cut off with its node"),
    "tasks": Meaning("tasks", "how many tasks it ran"),
    "mem_max_task_mib": Meaning("MiB", "the peak of its largest task (MaxRSS)"),
    "mem_total_mib": Meaning("MiB", "the sum of the peaks of all its tasks"),
    "cpu_s": Meaning("s", "CPU time of all its tasks"),
    "cpu_max_task_s": Meaning("s", "CPU time of its busiest task"),
    "nodes": Meaning("nodes", "how many nodes it ran on"),
    "gpu_util_pct": Meaning("%", "GPU utilisation of its busiest task"),
    "gpu_mem_mib": Meaning("MiB", "GPU memory of all its tasks"),
    "read_mib": Meaning("MiB", "what all its tasks read"),
    "written_mib": Meaning("MiB", "what all its tasks wrote"),
    "energy_j": Meaning("J", "the energy that Slurm recorded for it"),
    "alloc_cpus": Meaning("CPUs", "AllocTRES of the step: the part of the job's CPUs that it held"),
    "alloc_mem_mib": Meaning("MiB", "AllocTRES of the step: the part of the job's memory that it held"),
}

GPU_USE: Mapping[str, Meaning] = {
    "cluster": Meaning("", "name of the job's cluster; '' where nobody told"),
    "job_id": _IDENTITY["job_id"],
    "node": Meaning("", "the node that the GPU is in"),
    "gpu": Meaning("", "the GPU's number on that node"),
    "instance": Meaning("", "the MIG instance; -1 for the whole GPU"),
    "source": Meaning("", "who metered it: nvml, slurm, or simulated on a sandbox"),
    "first_s": Meaning("unix s", "the first sample"),
    "last_s": Meaning("unix s", "the last sample"),
    "samples": Meaning("samples", "how many samples it comes from"),
    "util_max_pct": Meaning("%", "the highest utilisation seen; null where it is not known (MIG, MPS)"),
    "util_mean_pct": Meaning("%", "the mean utilisation; null where it is not known (MIG, MPS)"),
    "mem_max_mib": Meaning("MiB", "the most GPU memory that was seen used"),
    "power_mean_w": Meaning("W", "the mean power of the whole GPU; null where it is shared or not metered"),
}

DECISIONS: Mapping[str, Meaning] = {
    "id": Meaning("", "the decision's id, as in the job's token"),
    "time_s": Meaning("unix s", "when it was made"),
    "mode": Meaning("", "observe, advise or enforce"),
    "applied": Meaning("", "1 where it was carried out, else 0"),
    "reason": Meaning("", "why, as one word for the whole"),
    "user": Meaning("", "whose submission it was"),
    "job_name": Meaning("", "the name of what was submitted"),
    "model": Meaning("", "the version of the model that predicted"),
    "document": Meaning("", "the whole decision as JSON: request, grant, and the reasons of each dimension"),
    "input_mib": Meaning("MiB", _INPUT),
}

# What can be exported, by its word on the command line.
EXPORTED: Mapping[str, tuple[Table, Mapping[str, Meaning]]] = {
    "attempts": (schema.attempts, ATTEMPTS),
    "steps": (schema.steps, STEPS),
    "gpu-use": (schema.gpu_use, GPU_USE),
    "decisions": (schema.decisions, DECISIONS),
}


def export_schema(what: str) -> pa.Schema:
    """Return the columns of an export, with unit and meaning in the metadata `unit` and `description`."""
    table, meanings = EXPORTED[what]
    return pa.schema(
        [
            pa.field(
                column.name,
                arrow_type(column.type),
                nullable=bool(column.nullable),
                metadata={"unit": meanings[column.name].unit, "description": meanings[column.name].text},
            )
            for column in table.columns
        ],
        metadata={"what": f"slurm-rightsizer {what}"},
    )


def described_in_words() -> Iterator[str]:
    """Yield the lines of the tables in docs/store.md."""
    for what, (table, meanings) in EXPORTED.items():
        yield from ("", f"## {what}", "")
        yield from ("| column | type | unit | meaning |", "|---|---|---|---|")
        for column in table.columns:
            meaning = meanings[column.name]
            key = " (key)" if column.primary_key else ""
            kind = f"{arrow_type(column.type)}{key}"
            yield f"| `{column.name}` | {kind} | {meaning.unit} | {meaning.text} |"
