"""Steps of a dump in the columns of accounting/frames.py."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting import columns, frames
from accounting.dumps.clock_changes import fitting
from accounting.dumps.fields import Fields
from accounting.dumps.jobs import (
    MOST_NODE_CPUS,
    MOST_NODE_MEM_MIB,
    MOST_NODES,
    DumpSettings,
    believable_j,
    resources_in,
    told_elapsed_s,
)
from accounting.dumps.rows import Rows

_MEASURED = ("mem_max_task_mib", "mem_total_mib", "gpu_mem_mib")


def read_steps(rows: Rows, settings: DumpSettings, elapsed_s: pa.Array) -> pa.Table:
    """Parse all lines of a block as steps (STEPS) and mark the wrong ones; only the results for steps are meaningful.

    `elapsed_s` is that of each line's job. `job` is the number of its group.
    """
    fields = Fields(rows, settings.zone)
    in_max, in_tot, out_tot = (
        columns.usage(fields.resources(thing)) for thing in ("in_max", "in_tot", "out_tot")
    )
    given = resources_in(fields, settings, "alloc_tres")
    nodes = pc.fill_null(fields.number("nodes"), 1)
    untold = pa.nulls(len(rows.lines), pa.int64())
    start_s, end_s = fitting(untold, fields.times("start"), fields.times("end"), told_elapsed_s(fields))
    made = {
        "job": pa.array(rows.group),
        "step_id": pa.nulls(len(rows.lines), pa.string()) if rows.ids is None else rows.ids.step_id,
        "state": fields.words("state"),
        "start_s": pc.fill_null(start_s, 0),
        "end_s": pc.fill_null(end_s, 0),
        "tasks": pc.fill_null(fields.number("tasks"), 1),
        "nodes": nodes,
        "mem_max_task_mib": fields.memory("max_rss", "B"),
        "mem_total_mib": in_tot.mem_mib,
        "cpu_s": fields.duration("total_cpu"),
        "cpu_max_task_s": in_max.cpu_s,
        "gpu_util_pct": in_max.gpu_util_pct,
        "gpu_mem_mib": in_tot.gpu_mem_mib,
        "read_mib": in_tot.moved_mib,
        "written_mib": out_tot.moved_mib,
        "energy_j": believable_j(
            pc.coalesce(fields.number("energy_raw").cast(pa.float64()), in_tot.energy_j), nodes, elapsed_s
        ),
        "alloc_cpus": pc.coalesce(given.cpus, fields.number("alloc_cpus")),
        "alloc_mem_mib": given.mem_mib,
    }
    steps = pa.table([made[field.name].cast(field.type) for field in frames.STEPS], frames.STEPS)
    _doubt(rows, steps, elapsed_s, settings.now_s)
    return steps


def _doubt(rows: Rows, steps: pa.Table, elapsed_s: pa.Array, now_s: int) -> None:
    nodes = pc.max_element_wise(steps["nodes"], 1).cast(pa.float64())
    seconds = pc.add(pc.max_element_wise(elapsed_s, 0).cast(pa.float64(), safe=False), 60.0)
    most_cpu_s = pc.multiply(pc.multiply(nodes, float(MOST_NODE_CPUS)), seconds)
    wrong = [
        (pc.greater(nodes, float(MOST_NODES)), "a step on more nodes than any cluster has"),
        (pc.greater(steps["end_s"], now_s + 86400), "a step ends in the future"),
        (
            pc.and_(pc.greater(steps["end_s"], 0), pc.less(steps["end_s"], steps["start_s"])),
            "a step ends before it starts",
        ),
        *((pc.greater(steps[name], most_cpu_s), f"{name} is more than its nodes can have") for name in _CPU),
        *(
            (
                pc.greater(steps[name], pc.multiply(nodes, float(MOST_NODE_MEM_MIB))),
                f"{name} is more than its nodes can have",
            )
            for name in _MEASURED
        ),
    ]
    is_step = ~rows.is_job
    for mask, reason in wrong:
        rows.mark(is_step & np.asarray(pc.fill_null(mask, False)), reason)


_CPU = ("cpu_s", "cpu_max_task_s")
