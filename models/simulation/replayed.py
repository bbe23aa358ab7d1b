"""The past simulated again next to the past as recorded, in figures that can be compared. Pure.

All rows are computed alike, from runs: which job held what from when to when. A job ends as it did in the past
(completed, killed for memory, cut short), unless a grant changed that.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy

from accounting.labels.energy import J_PER_KWH, MIB_PER_GIB, EnergySite, cores_w, gpus_w, memory_w
from models.scheduling.room import MILLI, Amounts, Floats, Ints, amounts_of
from models.simulation.engine import Hooks, Policy, simulate
from models.simulation.fitting import placement_of
from models.simulation.hooks import Sizing, slowed_by_cpus
from models.simulation.nodes import Cluster
from models.simulation.past import COMPLETED, OUT_OF_MEMORY, TIMEOUT, Past
from models.simulation.results import Moment, Outcome, Results, Run, bounded_slowdowns
from models.simulation.workload import Flags

S_PER_H = 3600.0
# Where a job really ran is not known.
SOMEWHERE = -1


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a replay. Figures are for the jobs that came in the window, wherever they ended; in seconds and hours.

    `resized` are jobs that got less than they take as asked. `completed_in_window` counts those that ended within it.
    `memory_failures` are runs that ended for lack of memory, `by_a_cut` those that had less than their users asked
    for; `lost_core_h` is what all of them held. Shares (0..1, of CPU, memory, GPU) are of the cluster over the
    window, earlier jobs included. Unused is what was held and not kept busy.
    """

    jobs: int
    resized: int
    mean_wait_s: float
    p95_wait_s: float
    slowdown: float
    completed: int
    completed_in_window: int
    memory_failures: int
    by_a_cut: int
    timeouts: int
    lost_core_h: float
    allocated: tuple[float, ...]
    busy: tuple[float, ...]
    unused_core_h: float
    unused_gib_h: float
    energy_kwh: float
    carbon_kg: float
    makespan_h: float


def replay(past: Past, cluster: Cluster, policy: Policy, sizing: Sizing) -> Results:
    """Simulate a past under a policy, whose order, rules of passing and sizing are used; the placement is not.

    A job with fewer cores than its tasks kept busy runs longer; each task counts as busy as the busiest.
    """
    where = msgspec.structs.replace(policy, placement=placement_of(past, cluster))
    run_time = slowed_by_cpus(msgspec.structs.replace(past.jobs, used=past.busiest))
    return simulate(past.jobs, cluster, where, Hooks(sizing=sizing, run_time=run_time))


def recorded(past: Past, cluster: Cluster) -> Results:
    """Return what really became of a past, in the form of a simulation's results.

    A job that was suspended held what it had for as long as it ran: accounting does not say when it was suspended.
    """
    jobs = len(past.jobs)
    held_until_s = _held_until_s(past)
    order = numpy.argsort(past.start_s, kind="stable").tolist()
    return Results(
        jobs=past.jobs,
        total=cluster.total,
        until_s=float(past.end_s.max()),
        outcome=numpy.full(jobs, int(Outcome.COMPLETED), dtype=numpy.int64),
        start_s=past.start_s,
        first_start_s=past.start_s,
        end_s=past.end_s,
        failures=numpy.zeros(jobs, dtype=numpy.int64),
        granted=past.held,
        moments=list(_moments(past)),
        runs=[
            Run(
                number,
                float(past.start_s[number]),
                float(held_until_s[number]),
                ((SOMEWHERE, amounts_of(past.held[number])),),
            )
            for number in order
        ],
        interruptions=numpy.zeros(jobs, dtype=numpy.int64),
    )


def _held_until_s(past: Past) -> Floats:
    """Return until when each job held something, as if it had been suspended only at its end."""
    ran_until_s = past.start_s.clip(0) + past.jobs.run_s
    return numpy.minimum(past.end_s, ran_until_s)


def _moments(past: Past) -> Iterator[Moment]:
    """Yield what was held and used, and how many jobs waited and ran, whenever that changed."""
    nothing, one = (
        numpy.zeros(len(past.jobs), dtype=numpy.int64),
        numpy.ones(len(past.jobs), dtype=numpy.int64),
    )
    rows = numpy.column_stack([past.held, numpy.minimum(past.held, past.jobs.used), -one, one])
    came = numpy.zeros_like(rows)
    came[:, 6] = one
    gone = -rows
    gone[:, 6] = nothing
    at_s = numpy.concatenate([past.jobs.submit_s, past.start_s, _held_until_s(past)]).clip(0)
    changes = numpy.concatenate([came, rows, gone])
    times, which = numpy.unique(at_s, return_inverse=True)
    sums = numpy.zeros((len(times), rows.shape[1]), dtype=numpy.int64)
    numpy.add.at(sums, which.reshape(-1), changes)
    for time_s, row in zip(times.tolist(), sums.cumsum(axis=0).tolist(), strict=True):
        yield Moment(time_s, (row[0], row[1], row[2]), (row[3], row[4], row[5]), row[6], row[7])


class _Runs(msgspec.Struct, frozen=True):
    """Runs in columns: whose, from when to when (seconds), what was held and used (runs × resources), failed or not."""

    number: Ints
    start_s: Floats
    end_s: Floats
    held: Ints
    used: Ints
    failed: Flags

    @property
    def hours(self) -> Floats:
        """How many hours each run lasted."""
        found: Floats = (self.end_s - self.start_s) / S_PER_H
        return found

    def part(self, rows: Flags) -> _Runs:
        """Return some of the runs."""
        return _Runs(*(getattr(self, name)[rows] for name in self.__struct_fields__))


def _runs_of(results: Results) -> _Runs:
    number = numpy.array([run.number for run in results.runs], dtype=numpy.int64)
    held = numpy.array([_sum(run) for run in results.runs], dtype=numpy.int64)
    last = numpy.zeros(len(number), dtype=numpy.bool_)
    last[list({run.number: at for at, run in enumerate(results.runs)}.values())] = True
    return _Runs(
        number,
        numpy.array([run.start_s for run in results.runs]),
        numpy.array([run.end_s for run in results.runs]),
        held,
        numpy.minimum(held, results.jobs.used[number]),
        # A job that came back had too little memory.
        ~last | (results.outcome[number] == Outcome.FAILED),
    )


def _sum(run: Run) -> Amounts:
    if len(run.parts) == 1:
        return run.parts[0][1]
    return (
        sum(part[0] for _, part in run.parts),
        sum(part[1] for _, part in run.parts),
        sum(part[2] for _, part in run.parts),
    )


def compare(past: Past, results: Results, site: EnergySite) -> Comparison:
    """Return a row of figures. Waits last until the first start; slowdowns until the end, over the recorded run."""
    all_runs, counted = _runs_of(results), past.counted
    runs = all_runs.part(counted[all_runs.number])
    waits_s = (results.first_start_s - past.jobs.submit_s)[counted]
    stayed_s = (results.end_s - past.jobs.submit_s)[counted]
    was = numpy.array(past.outcome)
    as_recorded = counted & (results.outcome == Outcome.COMPLETED)
    completed = as_recorded & (was == COMPLETED)
    # A job that was killed for memory with all it had asked for is killed again, at its end.
    killed = runs.failed | (as_recorded & (was == OUT_OF_MEMORY))[runs.number]
    late = (as_recorded & (was == TIMEOUT)) | (counted & (results.outcome == Outcome.TIMEOUT))
    held, used = runs.held / (MILLI, 1, MILLI), runs.used / (MILLI, 1, MILLI)
    unused = (runs.hours[:, None] * (held - used)).sum(axis=0)
    energy_kwh = float((_watts(held, used, site) * runs.hours).sum()) * S_PER_H / J_PER_KWH
    grams_per_kwh = site.carbon.mean(past.since_s, past.since_s + past.window_s)
    return Comparison(
        jobs=int(counted.sum()),
        resized=len(set(runs.number[(runs.held < past.jobs.asked[runs.number]).any(axis=1)].tolist())),
        mean_wait_s=float(waits_s.mean()),
        p95_wait_s=float(numpy.percentile(waits_s, 95)),
        slowdown=float(bounded_slowdowns(stayed_s, past.jobs.run_s[counted]).mean()),
        completed=int(completed.sum()),
        completed_in_window=int((completed & (results.end_s <= past.window_s)).sum()),
        memory_failures=int(killed.sum()),
        by_a_cut=int(runs.failed.sum()),
        timeouts=int(late.sum()),
        lost_core_h=float((held[:, 0] * runs.hours)[killed].sum()),
        allocated=_shares(all_runs, all_runs.held, results.total, past.window_s),
        busy=_shares(all_runs, all_runs.used, results.total, past.window_s),
        unused_core_h=float(unused[0]),
        unused_gib_h=float(unused[1]) / MIB_PER_GIB,
        energy_kwh=energy_kwh,
        carbon_kg=energy_kwh * site.pue * grams_per_kwh / 1000,
        makespan_h=float(results.end_s[counted].max()) / S_PER_H,
    )


def _watts(held: Floats, used: Floats, site: EnergySite) -> Floats:
    """Return the power of each run's hardware (watts) by the site's table, as accounting/labels/energy.py has it."""
    idle = held - used
    drawn_w: Floats = cores_w(used[:, 0], idle[:, 0], site) + gpus_w(used[:, 2], idle[:, 2], site)
    return drawn_w + memory_w(held[:, 1], site)


def _shares(runs: _Runs, amounts: Ints, total: Amounts, window_s: float) -> tuple[float, ...]:
    """Return which share of the cluster runs took of each resource, over the window."""
    within_s = (numpy.minimum(runs.end_s, window_s) - numpy.maximum(runs.start_s, 0.0)).clip(0.0)
    taken = within_s @ amounts.astype(numpy.float64)
    shares: list[float] = (
        taken / window_s / numpy.maximum(numpy.array(total, dtype=numpy.float64), 1.0)
    ).tolist()
    return tuple(shares)
