"""EASY backfill here against AccaSim's, start by start, on a made-up SWF trace.

    python -m venv /tmp/accasim && /tmp/accasim/bin/pip install accasim==1.1.3
    python -m bench.easy_cross_check --accasim /tmp/accasim/bin/python [--jobs 2000] [--format table|json|csv]

AccaSim is an independent simulator, and not a dependency of this project: it runs in its own environment. Two
things are fixed in it, from outside. It asks `collections` for names that Python 3.10 no longer has. And its EASY
does not pass reserved nodes to its allocator, so that anything that fits passes, even if it delays the first job;
given a reserved node, the allocator lets nothing pass that would outlast the reservation, not even next to it. So
jobs here need one core, or all: then nothing is ever left next to a reservation. Limits are exact, because AccaSim
never moves a reservation forward. The last row leaves its EASY as published.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.arguments import parser_of
from models.simulation.engine import Policy, simulate
from models.simulation.nodes import Node, cluster_of
from models.simulation.results import Results
from models.simulation.trace import read_trace
from slurm_plugin.cli.output import print_rows

CORES, SEED = 16, 5
LARGE_SHARE = 0.12
ACCASIM = """
import collections, collections.abc, sys
for name in ("Mapping", "MutableMapping", "Sequence", "Iterable", "Callable"):
    setattr(collections, name, getattr(collections.abc, name))
from accasim.base.simulator_class import Simulator
from accasim.base.scheduler_class import EASYBackfilling
from accasim.base.allocator_class import FirstFit
class Reserving(FirstFit):
    def allocating_method(self, es, cur_time, skip=False, reserved_time=None, reserved_nodes=None):
        nodes = ["any"] if reserved_time is not None else reserved_nodes
        return super().allocating_method(es, cur_time, skip=skip, reserved_time=reserved_time, reserved_nodes=nodes)
allocator = Reserving() if sys.argv[1] == "repaired" else FirstFit()
Simulator("trace.swf", "system.json", EASYBackfilling(allocator), scheduling_output=True,
          statistics_output=False, show_statistics=False).start_simulation()
"""


def main() -> None:
    """Run both and print how many starts differ."""
    parser = parser_of(__doc__)
    parser.add_argument("--accasim", type=Path, required=True, help="a Python that has AccaSim 1.1.3")
    parser.add_argument("--jobs", type=int, default=2000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rightsizer-bench-") as name:
        folder = Path(name)
        (folder / "trace.swf").write_text(made_up_trace(arguments.jobs), encoding="ascii")
        (folder / "system.json").write_text(
            f'{{"groups": {{"g": {{"core": {CORES}}}}}, "resources": {{"g": 1}}}}', encoding="ascii"
        )
        jobs = read_trace(folder / "trace.swf").jobs
        ours = simulate(jobs, cluster_of([Node(cpus=CORES, mem_mib=1)]), Policy(start="easy"))
        rows = [
            row(how, ours, accasim_starts_s(arguments.accasim, folder, how))
            for how in ("repaired", "as published")
        ]
    print_rows(rows, arguments.format, "EASY here and in AccaSim 1.1.3")


def made_up_trace(jobs: int) -> str:
    """Return an SWF trace whose jobs need one core, or all of them, and run exactly as long as stated."""
    draw = random.Random(SEED)
    lines, at_s = ["; UnixStartTime: 0"], 100
    for number in range(1, jobs + 1):
        at_s += draw.randint(0, 12)
        cores = CORES if draw.random() < LARGE_SHARE else 1
        run_s = draw.randint(1, 60 if cores == CORES else 200)
        lines.append(f"{number} {at_s} -1 {run_s} {cores} -1 -1 {cores} {run_s} -1 1 1 1 1 1 1 -1 -1")
    return "\n".join(lines) + "\n"


def accasim_starts_s(python: Path, folder: Path, how: str) -> list[float]:
    """Return when AccaSim starts each job, in seconds after the first start, by job number."""
    ran = subprocess.run(
        [python, "-c", ACCASIM, how], cwd=folder, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        sys.exit(f"AccaSim failed; is it installed for {python}? {ran.stderr.strip().splitlines()[-1]}")
    starts: dict[int, float] = {}
    for line in (folder / "results" / "sched-trace.swf").read_text(encoding="utf-8").splitlines():
        job, _, times = line.split("__")
        clock = times.split(";")[0].split()
        days = int(clock[0].split("-")[2]) - 1
        hours, minutes, seconds = (int(part) for part in clock[1].split(":"))
        starts[int(job.split(";")[0])] = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return [starts[number] - starts[1] for number in sorted(starts)]


def row(how: str, ours: Results, theirs_s: list[float]) -> dict[str, object]:
    """Return how many jobs start at a different moment there than here."""
    pairs = list(zip((ours.start_s - ours.start_s[0]).tolist(), theirs_s, strict=True))
    return {
        "AccaSim's EASY": how,
        "jobs": len(pairs),
        "waited here": int((ours.start_s > ours.jobs.submit_s).sum()),
        "most waiting": max(moment.waiting for moment in ours.moments),
        "other starts": sum(here != there for here, there in pairs),
    }


if __name__ == "__main__":
    main()
