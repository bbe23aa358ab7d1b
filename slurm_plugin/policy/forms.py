"""Every way of asking, and which dimensions it keeps as asked. The table is the whole rule.

The hook names each way of asking that has no field of its own on the wire (`other`); those that follow from a job's
partitions come from Slurm (facts.py). A name keeps the dimensions listed here as the user asked for them; a name that
is not listed keeps all three. docs/forms.md is the same table for people, and a test keeps the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from accounting.request import Dimension

ALL: Final[frozenset[Dimension]] = frozenset({"memory", "cores", "gpus"})
CORES: Final[frozenset[Dimension]] = frozenset({"cores"})
CORES_AND_GPUS: Final[frozenset[Dimension]] = frozenset({"cores", "gpus"})
MEMORY_AND_CORES: Final[frozenset[Dimension]] = frozenset({"memory", "cores"})
GPUS: Final[frozenset[Dimension]] = frozenset({"gpus"})
NOTHING: Final[frozenset[Dimension]] = frozenset()

KEEPS: Final[dict[str, frozenset[Dimension]]] = {
    # Whole nodes: other jobs cannot use what a cut would free.
    "exclusive": ALL,
    "exclusive_user": ALL,
    "exclusive_partition": ALL,
    "select_linear": ALL,
    # With AllowSpecResourcesUsage, Slurm gives such a job whole nodes (seen on 26.05, for both options).
    "core_spec": ALL,
    "thread_spec": ALL,
    # Less of anything is less billing, and below its QOS's minimum a job waits for ever.
    "min_billing": ALL,
    "min_share": ALL,
    # With CR_Socket others cannot use the freed CPUs, and an srun would start as many tasks as fit all of them.
    "whole_sockets": CORES,
    # A job may use only as many of its node's cores as come with its GPUs: with fewer GPUs, Slurm refuses it.
    "restricted_cores": GPUS,
    # An srun that says no number of tasks starts one on each node: with fewer GPUs there would be fewer nodes, or
    # nodes without any, if the job has several for another reason than its GPUs.
    "gpus_of_nodes": GPUS,
    "counted_features": GPUS,
    # One decision for each component could tear the job apart.
    "het_job": ALL,
    # What a person is going to type says nothing about what is needed.
    "interactive": ALL,
    # The job's programs, and the sruns in it, see variables by which its client asks: they would say too much.
    "exported": ALL,
    # The site's rules or limits depend on a name that slurmctld fills in only after the client has asked.
    "default_account": ALL,
    "default_qos": ALL,
    # Without -p, a job runs in the partition of its reservation, which only the hook knows.
    "reserved_partition": ALL,
    # Slurm gives as many nodes as it can. With less of anything, more of them fit, and an srun has more tasks.
    "node_range": ALL,
    "spread_job": ALL,
    # All of the node's memory; CPUs would have to follow it.
    "mem_all": MEMORY_AND_CORES,
    "mem_unreadable": ALL,
    # CPUs, tasks or memory that are not counted by tasks and nodes.
    "cpus_per_tres": CORES_AND_GPUS,
    "ntasks_per_tres": CORES_AND_GPUS,
    "mem_per_tres": ALL,
    # GPUs in a form that is not one count.
    "gres": GPUS,
    "tres_per_job": GPUS,
    "tres_per_task": CORES_AND_GPUS,
    "tres_per_socket": CORES_AND_GPUS,
    "tres_bind": CORES_AND_GPUS,
    "tres_freq": GPUS,
    "gres_flags": CORES_AND_GPUS,
    # CPUs tied to the shape of nodes, or given as a number of their own.
    "threads_per_core": CORES,
    "cores_per_socket": CORES,
    "sockets_per_node": CORES,
    "sockets_per_board": CORES,
    "boards_per_node": CORES,
    "ntasks_per_core": CORES,
    "ntasks_per_socket": CORES,
    "ntasks_per_board": CORES,
    "min_cpus": CORES,
    "max_cpus": CORES,
    "pn_min_cpus": CORES,
    "oversubscribe": CORES,
    # How busy their CPUs were shows what other jobs left to them, not what they would use.
    "shared_cpus": CORES,
    "cpu_bind": CORES,
    # Slurm would raise the CPUs again by itself.
    "max_mem_per_cpu": CORES,
    # Slurm refuses the job as asked, or lets it wait for ever. Memory that comes with CPUs shrinks with them.
    "max_mem_per_node": MEMORY_AND_CORES,
    "max_cpus_per_node": MEMORY_AND_CORES,
    "qos_maximum": ALL,
    "beyond_nodes": ALL,
    # These say where a job may run, not how much it gets: if it fits there with more, it fits with less.
    "batch_features": NOTHING,
    "burst_buffer": NOTHING,
    "contiguous": NOTHING,
    "exc_nodes": NOTHING,
    "features": NOTHING,
    "licenses": NOTHING,
    "prefer": NOTHING,
    "req_nodes": NOTHING,
    "req_switch": NOTHING,
    "reservation": NOTHING,
    "segment_size": NOTHING,
    "use_min_nodes": NOTHING,
}


def kept_by_form(names: Sequence[str]) -> dict[Dimension, str]:
    """Return the dimensions that the named ways of asking keep, each with the first name that keeps it."""
    kept: dict[Dimension, str] = {}
    for name in names:
        for dimension in KEEPS.get(name, ALL):
            kept.setdefault(dimension, name)
    return kept
