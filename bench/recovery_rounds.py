"""What a round of `rightsizer recover` costs with a long queue, against bare `squeue` of that queue in the same run.

    python -m bench.recovery_rounds [--waiting 8000] [--tasks 100000] [--again 400] [--failed 200]
        [--slurm-prefix DIR]

On a private Slurm there are this many pending jobs, half of them with their own `--begin`, one array with this many
tasks, and this many cut jobs that were requeued after a node failure; the failed cut jobs failed for their own
reasons. Every round also looks at pending jobs (of the usual rounds, every ten seconds, the others ask only for
failed jobs), and writes nothing. CPU time is that of this process and of the commands that it runs; the first
rounds look at each job that failed or was requeued once, the last one has nothing new to look at.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import patch

from accounting.decisions.decision import Decision
from accounting.decisions.token import format_token
from accounting.request import Grant, JobRequest
from bench.arguments import parser_of
from slurm_plugin.cli.orderly_end import orderly_end
from slurm_plugin.cli.output import print_rows
from slurm_plugin.config.settings import Recovery
from slurm_plugin.recovery import rounds
from slurm_plugin.recovery.journal import Journal
from slurm_plugin.recovery.rounds import Recoverer
from slurm_plugin.sandbox import cluster
from slurm_plugin.sandbox.cluster import Options
from slurm_plugin.sandbox.shape import NodeShape, Shape
from slurm_plugin.slurm.gateway import RecoveryGate
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue

SUBMITTERS = 4
ASKED_MIB, GIVEN_MIB = 20, 10
# Slurm delays requeued jobs for this long.
WAITS_S = 120.0
Row = dict[str, object]


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--waiting", type=int, default=8_000)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--again", type=int, default=400)
    parser.add_argument("--failed", type=int, default=200)
    parser.add_argument("--slurm-prefix", type=Path)
    arguments = parser.parse_args()
    most = 2 * (arguments.waiting + arguments.tasks + arguments.again + arguments.failed)
    node = NodeShape(cores=arguments.again + 64, memory_mib=2 * ASKED_MIB * (arguments.again + 64))
    lines = (f"MaxJobCount={most}", f"MaxArraySize={arguments.tasks + 1}", "SchedulerParameters=defer")
    with orderly_end(), tempfile.TemporaryDirectory(prefix="rightsizer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        options = Options(
            directory=folder / "site", nodes=1, slurm_prefix=arguments.slurm_prefix, hook=False, serve=False,
            shape=Shape(nodes=(node,), lines=lines),
        )  # fmt: skip
        sandbox = cluster.start(options)
        try:
            with patch.dict(os.environ, sandbox.environment()):
                fail(arguments.failed)
                fill(sandbox.manifest.nodes[0], arguments.waiting, arguments.tasks, arguments.again)
                rows = measure(folder, arguments.again + arguments.failed)
        finally:
            cluster.stop(folder / "site")
        # Removing a long queue's folder takes minutes.
        print_rows(rows, arguments.format, "rounds of recovery, each with a look at what waits")
        sys.stdout.flush()


def fail(jobs: int) -> None:
    """Let cut jobs fail for other reasons than the cut."""
    submit(jobs, "--job-name=fails --mem=1 --hold --wrap=false")
    numbers = marked("fails")
    if numbers:
        run("scontrol", "release", ",".join(numbers))
    until(lambda: in_state("FAILED", "fails") >= len(numbers))


def fill(node: str, waiting: int, tasks: int, again: int) -> None:
    """Fill the queue."""
    script = f"--job-name=again --mem={ASKED_MIB} --wrap='sleep 600'"
    submit(again, script, script)
    until(lambda: in_state("RUNNING") >= again)
    marked("again")
    # The jobs behind them need more than the node has, so that they stay pending.
    submit(waiting, "--mem=1 --exclusive --wrap=true", "--begin=now+86400 --mem=1 --wrap=true")
    run(
        "sbatch",
        "--quiet",
        "--output=/dev/null",
        f"--array=1-{tasks}",
        "--mem=1",
        "--exclusive",
        "--wrap=true",
    )
    run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=bench")
    until(lambda: in_state("PENDING") >= again)


def marked(name: str) -> list[str]:
    """Give all jobs of a name the token of a cut, and return them."""
    numbers = run("squeue", "--noheader", f"--name={name}", "--format=%A").split()
    token = format_token(cut())
    for job in numbers:
        run("scontrol", "update", f"JobId={job}", f"AdminComment={token}")
    return numbers


def in_state(state: str, name: str = "again") -> int:
    """Return how many of the cut jobs are in a state."""
    return run("squeue", "--noheader", f"--name={name}", f"--states={state}").count("\n")


def cut() -> Decision:
    """Return a decision that was carried out."""
    asked = JobRequest(
        user="root", job_name="again", num_tasks=1, cpus_per_task=1, mem_per_node_mib=ASKED_MIB
    )
    return Decision(
        id="bench", time_s=time.time(), mode="enforce", applied=True, reason="cut", request=asked,
        grant=Grant(mem_per_node_mib=GIVEN_MIB),
    )  # fmt: skip


def submit(jobs: int, *kinds: str) -> None:
    """Submit this many jobs with several parallel submitters, each with one of the kinds."""
    each = jobs // SUBMITTERS
    loops = [
        f"for i in $(seq {each}); do sbatch --quiet --output=/dev/null {kinds[n % len(kinds)]} >/dev/null; done"
        for n in range(SUBMITTERS)
    ]
    submitters = [subprocess.Popen(["sh", "-c", loop]) for loop in loops]
    for submitter in submitters:
        submitter.wait()


def measure(folder: Path, looked_at: int) -> list[Row]:
    """Return the cost of squeue, and of each round."""
    floor_s, _, wall_s = cost(lambda: run("squeue", "--all", "--array"))
    rows: list[Row] = [{"what": "bare squeue --array", "wall s": wall_s, "CPU s": floor_s, "of squeue": 1.0}]
    recoverer = Recoverer(
        RecoveryGate(ScontrolQueue(), apply=False), Journal(folder / "journal"), apply=False, most=Recovery().most_jobs
    )  # fmt: skip
    rounds.LOOKS_AGAIN_S = 0.0  # each round looks at pending jobs
    for number in range(looked_at // Recovery().most_jobs + 2):
        cpu_s, commands, wall_s = cost(recoverer.round)
        rows.append(
            {
                "what": f"round {number + 1}", "wall s": wall_s, "CPU s": cpu_s, "of squeue": cpu_s / floor_s,
                "commands": ", ".join(f"{times} {name}" for name, times in sorted(commands.items())),
            }
        )  # fmt: skip
    usage = resource.getrusage(resource.RUSAGE_SELF)
    rows.append({"what": "peak RSS MiB", "wall s": usage.ru_maxrss >> 10})
    return rows


def cost(action: Callable[[], object]) -> tuple[float, Mapping[str, int], float]:
    """Return an action's CPU seconds including its commands, how many of each it ran, and its wall seconds."""
    commands = Counter[str]()
    original = subprocess.run

    def counted(command: list[str], **how: object) -> object:
        commands[command[0]] += 1
        return original(command, **how)  # type: ignore[call-overload]

    before_s, began_s = cpu_s(), time.monotonic()
    with patch("subprocess.run", counted):
        action()
    return cpu_s() - before_s, commands, time.monotonic() - began_s


def cpu_s() -> float:
    """Return the CPU time of this process and of its finished children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run(*command: str) -> str:
    """Run a command and return its stdout."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + WAITS_S
    while not holds():
        if time.monotonic() > end_s:
            raise SystemExit("the queue does not become what it is to be; is this machine very busy?")
        time.sleep(0.5)


if __name__ == "__main__":
    main()
