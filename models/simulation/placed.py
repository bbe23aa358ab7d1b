"""The state of a cluster when a job of a simulation started: what its place was chosen from. Pure."""

from __future__ import annotations

from accounting.errors import ModelError
from models.scheduling.room import Room
from models.simulation.nodes import Cluster
from models.simulation.results import Results, Run


def first_run(results: Results, number: int) -> Run:
    """Return a job's first run; ModelError if there is none."""
    if not 0 <= number < len(results.jobs):
        raise ModelError(
            f"there is no job {number + 1}; give a number from 1 to {len(results.jobs)}, in the order "
            "of arrival"
        )
    for run in results.runs:
        if run.number == number:
            return run
    raise ModelError(f"job {number + 1} never started; give the number of a job that did")


def room_before(cluster: Cluster, results: Results, run: Run) -> Room:
    """Return what was free as a run started, as if no node was down or reserved."""
    room = Room(cluster.capacity.copy(), cluster.total)
    for earlier in results.runs:
        if earlier is run:
            return room
        if earlier.end_s > run.start_s:
            room.take(earlier.parts)
    raise ModelError(f"a run of job {run.number + 1} is not one of this simulation")
