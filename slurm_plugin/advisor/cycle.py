"""One cycle of the advisor: read, estimate, plan, reorder, journal; or only watch.

It decides in which order these are done and what is kept for the next cycle. It changes Slurm only through the
gateway. Any failure raises an error: the queue then stays as it is, and earlier changes end with their lease.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from accounting.errors import RightsizerError, SlurmError
from accounting.journal.advice import Cycle
from models.planning import planning
from models.planning.checks import check
from models.planning.interval_calibration import UNCALIBRATED, Calibration, calibrated_plan
from models.planning.problem import Bounds, Coming, Plan, Problem
from slurm_plugin.advisor.changes import changes_of, writable
from slurm_plugin.advisor.evidence import cycle_of
from slurm_plugin.advisor.expectation import Expectations
from slurm_plugin.advisor.fitness import is_untold, unfit
from slurm_plugin.advisor.journal import append_cycle
from slurm_plugin.advisor.lending import Lending
from slurm_plugin.advisor.lots import block_of, is_control
from slurm_plugin.advisor.problem import problem_of
from slurm_plugin.advisor.sizing import LateSizing
from slurm_plugin.advisor.state_file import State, read_state, write_state
from slurm_plugin.advisor.unmoved import unmoved
from slurm_plugin.config.settings import Advisor as Settings
from slurm_plugin.log_lines import SaidOnce
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.slurm.gateway import Gateway
from slurm_plugin.slurm.queue import FactorChange, Written
from slurm_plugin.slurm.snapshot import Snapshot

log = logging.getLogger(__name__)

# Returns samples of the jobs to come, given a snapshot.
Forecast = Callable[[Snapshot], Sequence[Sequence[Coming]]]
# Returns what became of earlier predictions of starts, as of a snapshot.
PastStarts = Callable[[Snapshot], Calibration]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a cycle saw, planned and did."""

    snapshot: Snapshot
    problem: Problem
    plan: Plan
    changes: tuple[FactorChange, ...]
    written: tuple[Written, ...]
    cycle: Cycle
    relisted: tuple[Written, ...] = ()


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What an advisor works with.

    `keeps` says whether cycles are journalled, and whether the queue as it would be without us is kept: a mere look
    does neither.
    """

    settings: Settings
    cluster: str
    gateway: Gateway
    model: CurrentModel
    apply: bool
    keeps: bool
    forecast: Forecast | None = None
    past_starts: PastStarts | None = None
    late_sizing: LateSizing | None = None
    lending: Lending | None = None


class Advisor:
    """Runs one cycle after another."""

    def __init__(self, means: Means) -> None:
        self.means = means
        self._folder = Path(means.settings.directory)
        self._expectations = Expectations(None)
        self._state = read_state(self._folder) if means.keeps else State()
        self._failures = SaidOnce()
        self._forgetful = SaidOnce()

    def cycle(self) -> Outcome:
        """Run one cycle; any error means that nothing further was changed in it."""
        settings, gateway = self.means.settings, self.means.gateway
        # An advisor that never acts has nothing to compare with.
        control = (self.means.apply and self.means.keeps) and is_control(
            self.means.cluster, block_of(time.time(), settings.block_s), settings.control_share
        )
        acts = self.means.apply and not control
        if control and gateway.has_changed():
            gateway.undo()
        snapshot = gateway.read()
        if wrong := unfit(snapshot):
            raise SlurmError(
                "the queue cannot be reordered with this configuration of Slurm. Required: "
                f"{'; '.join(wrong)}"
            )
        if is_untold(snapshot):
            raise SlurmError(
                "the queue is left unchanged until slurmdbd says which QOS preempts which; check that "
                "it runs, and that `sacctmgr show qos` answers here"
            )
        known = self._told_of()
        shadow, problem = unmoved(self._state.shadow, snapshot, self._problem(snapshot), settings.horizon_s)
        self._state = State(shadow=shadow)
        rolled = writable(planning.plan(problem, bounds_of(settings)), problem)
        plan = calibrated_plan(rolled, self._calibration(snapshot))
        changes = changes_of(plan)
        written = gateway.reorder(changes) if acts else []
        if not self.means.apply:
            gateway.reorder(changes)  # a dry run: only logs what it would do
        cycle = self._written_down(snapshot, problem, plan, written, known, acts=acts, control=control)
        if acts:
            self._size_late(snapshot, rolled)
        relisted = self._lend(snapshot, problem, rolled, control=control)
        return Outcome(
            snapshot=snapshot,
            problem=problem,
            plan=plan,
            changes=tuple(changes),
            written=tuple(written),
            cycle=cycle,
            relisted=tuple(relisted),
        )

    def _lend(self, snapshot: Snapshot, problem: Problem, plan: Plan, *, control: bool) -> list[Written]:
        """Let waiting jobs onto idle nodes of others. Control blocks learn about those nodes too, but let no job in."""
        if self.means.lending is None:
            return []
        self.means.lending.see(snapshot)
        return [] if control else self.means.lending.run(snapshot, problem, plan, self.means.gateway)

    def _problem(self, snapshot: Snapshot) -> Problem:
        """Return what there is to plan, according to the model in use."""
        self.means.model.refresh()
        self.means.model.catch_up()
        if self.means.model.predictor is not self._expectations.predictor:
            self._expectations = Expectations(self.means.model.predictor)
        problem = problem_of(
            snapshot,
            self._expectations.run_time,
            ours=self.means.gateway.ours(),
            reach=self.means.settings.most_factor,
        )
        return self._with_forecast(problem, snapshot)

    def _with_forecast(self, problem: Problem, snapshot: Snapshot) -> Problem:
        """Return the problem with the jobs to come; without them if the forecast fails or makes no sense."""
        if self.means.forecast is None:
            return problem
        try:
            coming = tuple(tuple(sample) for sample in self.means.forecast(snapshot))
            foreseen = msgspec.structs.replace(problem, coming=coming)
            check(foreseen)
        except RightsizerError as error:
            if self._failures.is_new(str(error)):
                log.warning("plans go without a forecast: %s", error)
            return problem
        self._failures.over()
        return foreseen

    def _calibration(self, snapshot: Snapshot) -> Calibration:
        """Return how intervals are to be calibrated; not at all if the results of earlier ones cannot be read."""
        if self.means.past_starts is None:
            return UNCALIBRATED
        try:
            found = self.means.past_starts(snapshot)
        except RightsizerError as error:
            if self._forgetful.is_new(str(error)):
                log.warning("intervals of expected starts are not calibrated: %s", error)
            return UNCALIBRATED
        self._forgetful.over()
        return found

    def _told_of(self) -> Collection[int]:
        """Return the records that waited in the last cycle, which has journalled them."""
        return self._state.shadow.begun if self._state.shadow else ()

    def _size_late(self, snapshot: Snapshot, plan: Plan) -> None:
        """Size waiting jobs again, except those that are about to start in this cycle."""
        if self.means.late_sizing is not None:
            soon = frozenset(job.job_id for job in plan.jobs if job.low_s <= self.means.settings.period_s)
            self.means.late_sizing.refresh()
            self.means.late_sizing.run(snapshot, self.means.gateway, soon)

    def _written_down(
        self,
        snapshot: Snapshot,
        problem: Problem,
        plan: Plan,
        written: Sequence[Written],
        known: Collection[int],
        *,
        acts: bool,
        control: bool,
    ) -> Cycle:
        cycle = cycle_of(
            snapshot,
            problem,
            plan,
            cycle_id=secrets.token_hex(8),
            cluster=self.means.cluster,
            objective=self.means.settings.objective,
            applied=acts,
            control=control,
            written=written,
            seen=known,
        )
        if self.means.keeps:
            write_state(self._folder, self._state)
            append_cycle(self._folder, cycle)
        return cycle


def bounds_of(settings: Settings) -> Bounds:
    """Return the site's bounds, whose names in the configuration are those that a plan has for them."""
    return msgspec.convert(settings, Bounds, from_attributes=True)
