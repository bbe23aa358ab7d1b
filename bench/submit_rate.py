"""What a submission costs with our hook: against no hook and against an empty Lua hook, on a real slurmctld.

    python -m bench.submit_rate [--rounds 1] [--submits 300] [--queued 0 10000] [--format table|json|csv]
    python -m bench.submit_rate --curve        what large queues cost any Lua hook (docs/large-queues.md)

Jobs are submitted held, by one and by eight submitters, without a pause (hot) and 100 ms apart, to an empty and to a
full queue. Every measurement starts from a fresh slurmctld with the same saved queue; the hooks take turns, so that a
noisy machine is noisy for all. Latency is what a submitter sees from connecting to the reply; the mean time per RPC is
slurmctld's own (sdiag). The queue grows by what is submitted: by the same number for every hook.

Submissions differ from each other (`--different`), since the service remembers its answer to a question that it has
just been asked; where it is asked more often than that it answers from memory, as it would on a cluster.

Ratios count, not times. Then the service is taken away, and hung (SIGSTOP).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.pool import Pool
from pathlib import Path

from bench.controller import EMPTY, NO_HOOK, OURS, Controller
from bench.figures import ABSENT, GAP_S, HUNG, MOST_SUBMITTERS, Cell, Figures, Results, goals, rows
from bench.replay import Load, Measured, Message, submit
from slurm_plugin.cli.output import note, print_rows
from slurm_plugin.sandbox import cluster, daemons, teardown

WARM = 20
# Time for every submitter to have its messages before the first one starts.
HEAD_START_S = 0.15
RARE_S = 1.1
HUNG_GAP_S = 0.5
CURVE = (0, 1_000, 3_000, 10_000)
HOOKS = (NO_HOOK, EMPTY, OURS)


class Bench:
    """A controller under load."""

    def __init__(self, controller: Controller, pool: Pool, different: int) -> None:
        self.controller = controller
        self._pool = pool
        self.messages: tuple[Message, ...] = controller.capture(different)

    def load(
        self, submitters: int, each: int, gap_s: float = 0.0, for_s: float | None = None
    ) -> tuple[Measured, ...]:
        """Let submitters submit `each` jobs, or for so many seconds."""
        start_s = time.time() + HEAD_START_S
        stride = max(1, len(self.messages) // submitters)
        loads = [
            Load(
                port=self.controller.port,
                munge_socket=self.controller.munge_socket,
                messages=self.messages[number * stride :] + self.messages[: number * stride],
                count=each,
                gap_s=gap_s,
                start_s=start_s,
                until_s=None if for_s is None else start_s + for_s,
            )
            for number in range(submitters)
        ]
        return tuple(self._pool.map(submit, loads, chunksize=1))

    def measure(self, cell: Cell, each: int, figures: Figures) -> None:
        """Measure a cell once and add what comes out to its figures."""
        self.load(1, WARM)
        self.controller.reset_counters()
        measured = self.load(cell.submitters, each, cell.gap_s)
        if any(one.refused for one in measured):
            sys.exit(f"slurmctld refused submissions ({cell.load}, {cell.hook}): the figures would be wrong")
        span_s = max(one.ended_s for one in measured) - min(one.began_s for one in measured)
        latencies = [latency for one in measured for latency in one.latencies_s]
        rpcs, rpc_us = self.controller.submissions()
        figures.latencies_s += latencies
        figures.rates.append(len(latencies) / span_s)
        figures.rpcs += rpcs
        figures.rpc_us += rpc_us

    def make_queue(self, sizes: Sequence[int]) -> None:
        """Make and save a queue of held jobs of each size (none for 0): as many records, not one array."""
        for queued in sorted(set(sizes) - {0}):
            note(f"queueing {queued:,} jobs")
            self.controller.begin_queue(queued)
            self.load(4, -(-queued // 4))
            self.controller.save_queue(queued)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--submits", type=int, default=320, help="without a pause, in a cell and round")
    parser.add_argument(
        "--gap-submits", type=int, default=25, help="100 ms apart, a submitter, cell and round"
    )
    parser.add_argument("--queued", type=int, nargs="+", default=[0, 10_000])
    parser.add_argument("--different", type=int, default=100, help="how many different jobs are submitted")
    parser.add_argument("--deadline-ms", type=int, default=25, help="the hook's deadline")
    parser.add_argument("--hung-s", type=float, default=30.0, help="how long the service hangs")
    parser.add_argument("--curve", action="store_true", help="large queues: no hook and an empty one alone")
    parser.add_argument("--format", default="table", choices=["table", "json", "csv"])
    arguments = parser.parse_args()
    # Forked while this process is small and has one thread.
    with (
        multiprocessing.get_context("fork").Pool(MOST_SUBMITTERS) as pool,
        tempfile.TemporaryDirectory(prefix="rightsizer-bench-") as name,
    ):
        folder = Path(name)
        folder.chmod(0o755)
        note("starting a private Slurm")
        controller = Controller(folder / "bench", arguments.deadline_ms)
        try:
            bench = Bench(controller, pool, arguments.different)
            if arguments.curve:
                print_curve(bench, arguments)
            else:
                print_all(bench, arguments)
        finally:
            controller.stop()


def print_curve(bench: Bench, arguments: argparse.Namespace) -> None:
    """Measure and print what large queues cost an empty Lua hook."""
    results = take_turns(bench, (NO_HOOK, EMPTY), CURVE, arguments, (rare_and_hot,))
    print_rows(rows(results), arguments.format, "What large queues cost any Lua hook")


def print_all(bench: Bench, arguments: argparse.Namespace) -> None:
    """Measure and print everything."""
    cluster.start_service(bench.controller.sandbox.directory)
    results = take_turns(bench, HOOKS, arguments.queued, arguments, (alone, together))
    without_service(bench, results, arguments)
    extra_us = hung_lock_us(bench, results, arguments.hung_s)
    measured_goals = goals(results, extra_us / arguments.hung_s)
    if arguments.format == "table":
        print_rows(measured_goals, "table", "Goals")
    else:
        for goal in measured_goals:
            note(", ".join(f"{key}: {value}" for key, value in goal.items()))
    print_rows(rows(results), arguments.format, "Submissions to a real slurmctld")


def alone(hook: str, queued: int) -> tuple[Cell, ...]:
    """Return the cells of one submitter; the slower one first, since it leaves few jobs behind."""
    return Cell(hook, queued, 1, GAP_S), Cell(hook, queued, 1, 0.0)


def together(hook: str, queued: int) -> tuple[Cell, ...]:
    """Return the cells of eight submitters."""
    return Cell(hook, queued, MOST_SUBMITTERS, GAP_S), Cell(hook, queued, MOST_SUBMITTERS, 0.0)


def rare_and_hot(hook: str, queued: int) -> tuple[Cell, ...]:
    """Return the cells of the curve: slurmctld shows Lua a fresh list of all jobs once a second at most."""
    return Cell(hook, queued, 1, RARE_S), Cell(hook, queued, 1, 0.0)


def take_turns(
    bench: Bench,
    hooks: Sequence[str],
    queues: Sequence[int],
    arguments: argparse.Namespace,
    groups: Sequence[Callable[[str, int], tuple[Cell, ...]]],
) -> Results:
    """Measure all cells, hook after hook in each round; the cells of a group share one slurmctld."""
    bench.make_queue(queues)
    results: Results = {}
    for number in range(arguments.rounds):
        for queued in queues:
            note(f"round {number + 1} of {arguments.rounds}, {queued:,} queued")
            for group in groups:
                for hook in hooks:
                    bench.controller.start(hook, queued)
                    for cell in group(hook, queued):
                        each = arguments.gap_submits if cell.gap_s else arguments.submits // cell.submitters
                        bench.measure(cell, each, results.setdefault(cell, Figures()))
                    if hook == OURS:
                        check_resized(bench, arguments.submits)
    return results


def check_resized(bench: Bench, newest: int) -> None:
    """End the benchmark where our hook did not really do its work."""
    resized = bench.controller.share_resized(newest)
    if resized < 0.95:
        sys.exit(
            f"only {resized:.1%} of our submissions were resized: the figures do not show what that costs"
        )


def without_service(bench: Bench, results: Results, arguments: argparse.Namespace) -> None:
    """Measure our hook without a service, and with a hung one once the first calls have failed."""
    directory = bench.controller.sandbox.directory
    for state in (ABSENT, HUNG):
        note(state)
        if state == ABSENT:
            cluster.stop_service(directory)
        else:
            cluster.start_service(directory)
            signal_service(bench, signal.SIGSTOP)
        for submitters in (1, MOST_SUBMITTERS):
            cell = Cell(state, 0, submitters, 0.0)
            bench.controller.start(OURS, 0)
            bench.measure(cell, arguments.submits // submitters, results.setdefault(cell, Figures()))
    signal_service(bench, signal.SIGCONT)


def hung_lock_us(bench: Bench, results: Results, hung_s: float) -> float:
    """Return the µs that submissions wait because the service hangs, in `hung_s` seconds of two jobs a second.

    That is what they take beyond the median of the same run (with the breaker open almost none meets the service),
    or beyond that of an empty hook where this is less: without a breaker every one is late. Few submissions, so that
    little noise is summed up.
    """
    note(f"a hung service for {hung_s:g} s")
    bench.controller.start(OURS, 0)
    bench.load(1, WARM)
    signal_service(bench, signal.SIGSTOP)
    bench.controller.reset_counters()
    (measured,) = bench.load(1, 1_000_000, HUNG_GAP_S, for_s=hung_s)
    rpcs, rpc_us = bench.controller.submissions()
    signal_service(bench, signal.SIGCONT)
    note(f"slurmctld's own time for these {rpcs} submissions: {rpc_us / 1000:.0f} ms")
    empty_s = statistics.median(results[Cell(EMPTY, 0, 1, GAP_S)].latencies_s)
    usual_s = min(empty_s, statistics.median(measured.latencies_s))
    return sum(latency - usual_s for latency in measured.latencies_s) * 1e6


def signal_service(bench: Bench, number: signal.Signals) -> None:
    """Send the service a signal."""
    record = teardown.running_record(bench.controller.sandbox.layout, daemons.SERVE)
    if record is None:
        sys.exit("the service does not run any more: look into its log")
    os.kill(record.pid, number)


if __name__ == "__main__":
    main()
