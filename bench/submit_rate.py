"""What a submission costs with our hook: against no hook and against an empty Lua hook, on a real slurmctld.

    python -m bench.submit_rate [--rounds 2] [--queued 0 10000] [--format table|json|csv]
    python -m bench.submit_rate --curve        what large queues cost any Lua hook (docs/large-queues.md)

Jobs are submitted held, by one and by eight submitters, without a pause (hot) and 100 ms apart, to an empty and to a
full queue. Each hook has its own slurmctld; all start every round from the same queue, and they alternate batch by
batch, so that noise on the machine affects all; what a hook adds is the median over pairs of batches. Latency is what a
submitter sees from connecting to the reply; the mean time per RPC is slurmctld's own (sdiag). With pauses, the first
submission of a batch is not counted: it comes seconds after the previous one, because the others had their turns.

Each job has its own script, of some 4 KiB, as workflow engines write them (bench/task_script.py). New jobs also all
ask for a different amount of memory; alike ones differ in their limit, which no model of this benchmark uses;
repeated ones are ten jobs over and over. For the latter two, the service remembers its answer. Ratios count, not
times. Then the service is removed, and hung (SIGSTOP).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.pool import Pool
from pathlib import Path

from bench.arguments import parser_of
from bench.controller import EMPTY, NO_HOOK, OURS, Controller
from bench.figures import (
    ABSENT,
    GAP_S,
    HUNG,
    MOST_SUBMITTERS,
    RUNNING,
    Cell,
    Figures,
    Jobs,
    Results,
    goals,
    rows,
)
from bench.replay import Load, Measured, Message, submit
from slurm_plugin.cli.orderly_end import orderly_end
from slurm_plugin.cli.output import note, print_rows
from slurm_plugin.sandbox import cluster, daemons, teardown

WARM = 20
# Time for every submitter to get its messages before the first one starts.
HEAD_START_S = 0.15
RARE_S = 1.1
HUNG_GAP_S = 0.5
CURVE = (0, 1_000, 3_000, 10_000)
# As many different jobs as a round submits, so that none is a repetition.
DIFFERENT: dict[Jobs, tuple[str, ...]] = {
    "new": tuple(f"--mem={mib}" for mib in range(16_000, 17_200)),
    "alike": tuple(f"--time={minutes}" for minutes in range(1, 501)),
}
REPEATED = 10


@dataclass(frozen=True)
class Plan:
    """How a cell is measured in a round: the batches for each hook, and each submitter's submissions per batch."""

    submitters: int
    gap_s: float
    jobs: Jobs
    batches: int
    each: int

    def cell(self, queued: int, service: str) -> Cell:
        """Return the cell that is measured with a queue of this size, and the service in this state."""
        return Cell(queued, self.submitters, self.gap_s, self.jobs, service)


# The slower ones come first, because they leave few jobs behind. Their batches are short: other load on the machine
# lasts for seconds, and would decide a p99 if it met only one hook.
PLANS = (
    Plan(1, GAP_S, "new", 20, 8),
    Plan(1, GAP_S, "alike", 20, 8),
    Plan(1, GAP_S, "repeated", 20, 8),
    Plan(1, 0.0, "new", 8, 40),
    Plan(1, 0.0, "alike", 8, 40),
    Plan(1, 0.0, "repeated", 8, 40),
    Plan(MOST_SUBMITTERS, GAP_S, "new", 4, 3),
    Plan(MOST_SUBMITTERS, 0.0, "new", 8, 8),
)
BROKEN_PLANS = (Plan(1, 0.0, "new", 8, 40), Plan(MOST_SUBMITTERS, 0.0, "new", 12, 10))
# slurmctld gives Lua a fresh list of all jobs at most once a second.
CURVE_PLANS = (Plan(1, RARE_S, "new", 10, 2), Plan(1, 0.0, "new", 8, 40))


class Bench:
    """Controllers under load, one for each hook."""

    def __init__(self, controllers: Mapping[str, Controller], pool: Pool) -> None:
        self.controllers = controllers
        self._pool = pool
        note(f"capturing {sum(map(len, DIFFERENT.values())):,} different submissions for each hook")
        self._messages: dict[tuple[str, Jobs], tuple[Message, ...]] = {
            (hook, jobs): controller.capture(options)
            for hook, controller in controllers.items()
            for jobs, options in DIFFERENT.items()
        }
        self._next = dict.fromkeys(self._messages, 0)

    def start(self, queued: int) -> None:
        """Start every slurmctld afresh with a queue of this size, and a service that remembers no answer."""
        for hook, controller in self.controllers.items():
            controller.start(queued)
            if hook == OURS:
                cluster.stop_service(controller.sandbox.directory)
                cluster.start_service(controller.sandbox.directory)
            self.load(hook, Plan(1, 0.0, "new", 1, WARM))

    def load(self, hook: str, plan: Plan, for_s: float | None = None) -> tuple[Measured, ...]:
        """Let submitters submit one batch, or for `for_s` seconds, and return what each saw."""
        return self.loads([hook], plan, for_s)

    def loads(self, hooks: Sequence[str], plan: Plan, for_s: float | None = None) -> tuple[Measured, ...]:
        """Load several controllers at the same time."""
        start_s = time.time() + HEAD_START_S
        loads = [
            Load(
                port=self.controllers[hook].port,
                munge_socket=self.controllers[hook].munge_socket,
                messages=self._take(hook, plan),
                count=plan.each,
                gap_s=plan.gap_s,
                start_s=start_s,
                until_s=None if for_s is None else start_s + for_s,
            )
            for hook in hooks
            for _ in range(plan.submitters)
        ]
        return tuple(self._pool.map(submit, loads, chunksize=1))

    def _take(self, hook: str, plan: Plan) -> tuple[Message, ...]:
        """Return a submitter's next jobs: ones not yet submitted in this round, or the repeated ones."""
        if plan.jobs == "repeated":
            return self._messages[hook, "new"][:REPEATED]
        messages, first = self._messages[hook, plan.jobs], self._next[hook, plan.jobs]
        self._next[hook, plan.jobs] = (first + plan.each) % len(messages)
        return (messages[first:] + messages[:first])[: plan.each]

    def measure(self, plan: Plan, cell: Cell, hooks: Sequence[str], results: Results) -> None:
        """Measure a cell once, as planned, and add the result to `results`."""
        order = list(hooks)
        figures = {hook: results.setdefault((cell, hook), Figures()) for hook in hooks}
        for hook in hooks:
            self.controllers[hook].reset_counters()
        for _ in range(plan.batches):
            for hook in order:
                self._measure_batch(hook, plan, figures[hook])
            order.append(order.pop(0))
        for hook in hooks:
            rpcs, rpc_us = self.controllers[hook].submissions()
            figures[hook].rpcs += rpcs
            figures[hook].rpc_us += rpc_us

    def _measure_batch(self, hook: str, plan: Plan, figures: Figures) -> None:
        uncounted = 1 if plan.gap_s else 0
        measured = self.load(hook, replace(plan, each=uncounted + plan.each))
        if any(one.refused for one in measured):
            sys.exit(f"slurmctld refused submissions ({hook}): the figures would be wrong")
        span_s = max(one.ended_s for one in measured) - min(one.began_s for one in measured)
        figures.batches_s.append(tuple(s for one in measured for s in one.latencies_s[uncounted:]))
        figures.rates.append(sum(len(one.latencies_s) for one in measured) / span_s)

    def make_queues(self, sizes: Sequence[int]) -> None:
        """Make and save queues of held jobs of each size (none for 0): as separate records, not one array."""
        for queued in sorted(set(sizes) - {0}):
            note(f"queueing {queued:,} jobs for each hook")
            for hook, controller in self.controllers.items():
                controller.begin_queue(queued)
                self.load(hook, Plan(4, 0.0, "repeated", 1, -(-queued // 4)))
                controller.save_queue(queued)


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--queued", type=int, nargs="+", default=[0, 10_000])
    parser.add_argument("--deadline-ms", type=int, default=25, help="the hook's deadline")
    parser.add_argument("--hung-s", type=float, default=30.0, help="how long the service hangs")
    parser.add_argument("--curve", action="store_true", help="large queues: no hook and an empty one alone")
    arguments = parser.parse_args()
    with ExitStack() as undo:
        # Forked while this process is small and single-threaded.
        pool = undo.enter_context(multiprocessing.get_context("fork").Pool(MOST_SUBMITTERS))
        undo.enter_context(orderly_end())
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="rightsizer-bench-")))
        folder.chmod(0o755)
        controllers: dict[str, Controller] = {}
        for number, hook in enumerate((NO_HOOK, EMPTY) if arguments.curve else (NO_HOOK, EMPTY, OURS)):
            note(f"starting a private Slurm: {hook}")
            controllers[hook] = Controller(folder / str(number), hook, arguments.deadline_ms)
            undo.callback(controllers[hook].stop)
        bench = Bench(controllers, pool)
        if arguments.curve:
            results = take_turns(bench, CURVE, CURVE_PLANS, arguments.rounds)
            print_rows(rows(results), arguments.format, "What large queues cost any Lua hook")
        else:
            print_all(bench, arguments)


def print_all(bench: Bench, arguments: argparse.Namespace) -> None:
    """Measure and print everything."""
    results = take_turns(bench, arguments.queued, PLANS, arguments.rounds)
    without_service(bench, results)
    measured_goals = goals(results, hung_lock_ms(bench, arguments.hung_s), arguments.hung_s)
    if arguments.format == "table":
        print_rows(measured_goals, "table", "Goals")
    else:
        for goal in measured_goals:
            note(", ".join(f"{key}: {value}" for key, value in goal.items()))
    print_rows(rows(results), arguments.format, "Submissions to a real slurmctld")


def take_turns(bench: Bench, queues: Sequence[int], plans: Sequence[Plan], rounds: int) -> Results:
    """Measure all plans with every size of queue."""
    bench.make_queues(queues)
    results: Results = {}
    for number in range(rounds):
        for queued in queues:
            note(f"round {number + 1} of {rounds}, {queued:,} queued")
            bench.start(queued)
            for plan in plans:
                bench.measure(plan, plan.cell(queued, RUNNING), list(bench.controllers), results)
            if OURS in bench.controllers:
                check_resized(bench, plans)
    return results


def check_resized(bench: Bench, plans: Sequence[Plan]) -> None:
    """End the benchmark if our hook did not really do its work."""
    newest = sum(plan.batches * plan.each * plan.submitters for plan in plans)
    resized = bench.controllers[OURS].share_resized(newest)
    if resized < 0.95:
        sys.exit(
            f"only {resized:.1%} of our submissions were resized: the figures do not show what that costs"
        )


def without_service(bench: Bench, results: Results) -> None:
    """Measure our hook without a service, and with a hung one after the first calls have failed."""
    directory = bench.controllers[OURS].sandbox.directory
    for state in (ABSENT, HUNG):
        note(f"service {state}")
        bench.start(0)
        if state == ABSENT:
            cluster.stop_service(directory)
        else:
            signal_service(bench, signal.SIGSTOP)
        bench.load(OURS, Plan(1, 0.0, "new", 1, WARM))
        for plan in BROKEN_PLANS:
            bench.measure(plan, plan.cell(0, state), (EMPTY, OURS), results)
        if state == HUNG:
            signal_service(bench, signal.SIGCONT)


def hung_lock_ms(bench: Bench, hung_s: float) -> float:
    """Return how many ms a service that hangs for `hung_s` adds to slurmctld's own time, at two jobs a second.

    That is the difference to an empty hook's slurmctld, which gets submissions at the very same moments.
    """
    note(f"a hung service for {hung_s:g} s")
    bench.start(0)
    signal_service(bench, signal.SIGSTOP)
    for hook in (EMPTY, OURS):
        bench.controllers[hook].reset_counters()
    bench.loads((EMPTY, OURS), Plan(1, HUNG_GAP_S, "new", 1, 10**6), for_s=hung_s)
    (_, empty_us), (count, ours_us) = (bench.controllers[hook].submissions() for hook in (EMPTY, OURS))
    signal_service(bench, signal.SIGCONT)
    note(
        f"{count} submissions took slurmctld {ours_us / 1000:.0f} ms, {empty_us / 1000:.0f} with an empty hook"
    )
    return (ours_us - empty_us) / 1000


def signal_service(bench: Bench, number: signal.Signals) -> None:
    """Send the service a signal."""
    record = teardown.running_record(bench.controllers[OURS].sandbox.layout, daemons.SERVE)
    if record is None:
        sys.exit("the service does not run any more: look into its log")
    os.kill(record.pid, number)


if __name__ == "__main__":
    main()
