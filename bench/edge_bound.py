"""An upper bound on jobs in time, if all were known beforehand, could be cut into pieces and moved freely.

A linear programme over slices of time: the share of each job that is done in a slice, on each kind of device. In a
slice, no kind does more than its available GPUs can, and no job more than if it ran all the time. Real schedules,
which neither cut nor move jobs, nor know what comes, are below this bound, by an unknown distance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy
from scipy.optimize import linprog  # type: ignore[import-untyped]
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

from bench.edge_loads import CLOUD, EDGE, GPUS_A_NODE, EdgeLoad
from models.scheduling.room import MILLI, Floats
from models.simulation.lending import idle_s

SLICE_S = 120.0
DEVICES = (CLOUD, EDGE)


def most_in_time(load: EdgeLoad) -> float:
    """Return a share of jobs in time that no schedule exceeds."""
    jobs = load.jobs
    supply = _supply(load, int(jobs.deadline_s.max() // SLICE_S) + 1)
    entries: list[tuple[int, int, float]] = []
    bounds = [1.0] * len(jobs) + supply.ravel().tolist()
    parts = 0
    for number in range(len(jobs)):
        due_s, came_s = float(jobs.deadline_s[number]), float(jobs.submit_s[number])
        gpus, profile = int(jobs.asked[number, 2]) / MILLI, load.profiles[int(jobs.kind[number])]
        for at in range(int(came_s // SLICE_S), int(due_s // SLICE_S) + 1):
            rows = len(bounds)
            for device, name in enumerate(DEVICES):
                run_s = float(jobs.run_s[number]) / profile[name]
                if run_s <= due_s - came_s:
                    entries += [
                        (number, parts, 1.0),
                        (len(jobs) + device * supply.shape[1] + at, parts, gpus * run_s),
                        (rows, parts, run_s),
                    ]
                    parts += 1
            bounds.append(max(0.0, min(due_s, (at + 1) * SLICE_S) - max(came_s, at * SLICE_S)))
    return _solved(entries, bounds, parts) / max(1, len(jobs))


def _supply(load: EdgeLoad, slices: int) -> Floats:
    """Return the GPU seconds that each kind of device has in each slice."""
    cluster = load.cluster
    found: Floats = numpy.zeros((len(DEVICES), slices))
    for node, device in enumerate(cluster.devices):
        spans = cluster.owners.get(node, ())
        row = found[DEVICES.index(device)]
        row += [GPUS_A_NODE * idle_s(spans, at * SLICE_S, (at + 1) * SLICE_S) for at in range(slices)]
    return found


def _solved(entries: Sequence[tuple[int, int, float]], bounds: list[float], parts: int) -> float:
    if not parts:
        return 0.0
    rows, columns, values = zip(*entries, strict=True)
    matrix = csr_matrix((values, (rows, columns)), shape=(len(bounds), parts))
    answer = linprog(-numpy.ones(parts), A_ub=matrix, b_ub=bounds, bounds=(0, None), method="highs")
    if answer.status:
        raise RuntimeError(f"the bound is not found: {answer.message}")
    return float(-answer.fun)
