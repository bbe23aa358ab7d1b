"""Explain why a simulated job was placed on one node and not on another, as rows and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from slurm_plugin.cli.output import note

if TYPE_CHECKING:
    from models.simulation.nodes import Cluster
    from models.simulation.results import Results

NODES_SHOWN = 5


def explain_rows(number: int, cluster: Cluster, ran: Mapping[str, Results]) -> list[dict[str, object]]:
    """Return the nodes that were considered for a job under each policy; the chosen node comes first."""
    from models.gpus.explanation import weighed
    from models.gpus.fragmentation import usual_of
    from models.gpus.placing import Gradient
    from models.scheduling.room import amounts_of
    from models.simulation.placed import first_run, room_before

    rows: list[dict[str, object]] = []
    for name, results in ran.items():
        run = first_run(results, number)
        demand = amounts_of(results.granted[number])
        room, usual = room_before(cluster, results, run), usual_of(results.jobs.asked)
        choices = Gradient(usual).choices(room, demand)
        found = [weighed(room, demand, choice, usual) for choice in choices[:NODES_SHOWN]]
        cpu_milli, mem_mib, gpu_milli = demand
        note(
            f"{name}: job {number + 1} ({cpu_milli / 1000:g} CPUs, {mem_mib:,} MiB, {gpu_milli / 1000:g} "
            f"GPUs) started on node {run.parts[0][0]}, {run.start_s:,.0f} s after the first job "
            f"arrived. This makes {found[0].cost:.2f} idle GPUs unusable for the usual jobs, the least "
            f"of {len(choices)} nodes"
        )
        rows += [
            {
                "policy": name,
                "node": each.node,
                "GPU": each.gpu,
                "costs (GPUs)": round(each.cost, 3),
                "taken": round(each.taken, 3),
                "lost for CPUs": round(each.for_cpus, 3) + 0.0,
                "lost for memory": round(each.for_memory, 3) + 0.0,
                "lost for GPUs": round(each.for_gpus, 3) + 0.0,
                "kept empty": round(each.empty, 3),
                "fit no more %": round(100 * each.fits_no_more, 1),
            }
            for each in found
        ]
    return rows
