"""What `rightsizer replay` costs: a store of made-up jobs, read, replayed as asked and with the service.

    python -m bench.replay_rate [--jobs 100000] [--before 20000] [--nodes 22] [--format table|json|csv]

For each step, seconds of CPU time and jobs per second, on one core, and the process's peak memory so far. The jobs
are those of bench/site_rows.py: 3,000 families, four a minute, on nodes of 64 CPUs, 128,000 MiB and 4 GPUs.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TypeVar

import msgspec

from accounting.store.bulk import upsert_attempts
from accounting.store.database import open_store, writing
from bench.arguments import parser_of
from bench.site_rows import MEAN_GAP_S, T0, chunk
from models.simulation.hooks import AsAsked
from models.simulation.nodes import Node, cluster_of
from models.simulation.policies import POLICIES
from models.simulation.replayed import replay
from slurm_plugin.cli.output import print_rows
from slurm_plugin.cli.simulation.replay import learned
from slurm_plugin.cli.simulation.replay_past import Window, read_past
from slurm_plugin.config.settings import Config, Store

EACH = 20_000
NODE = Node(cpus=64, mem_mib=128_000, gpus=4)
KIB_A_MIB = 1024
Found = TypeVar("Found")
Row = dict[str, object]


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--before", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=22)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Config(store=Store(url=f"sqlite:///{folder}/store.db"))
        fill(config, arguments.jobs + arguments.before)
        rows = measure(config, arguments.jobs, arguments.before, arguments.nodes)
    print_rows(rows, arguments.format, "rightsizer replay, step by step")


def fill(config: Config, jobs: int) -> None:
    """Make a store with this many jobs."""
    engine = open_store(config.store.url, create=True)
    for number in range(-(-jobs // EACH)):
        attempts, steps = chunk(number, EACH)
        with writing(engine) as connection:
            upsert_attempts(connection, attempts.slice(0, jobs - number * EACH), steps.slice(0, 0))
    engine.dispose()


def measure(config: Config, jobs: int, before: int, nodes: int) -> list[Row]:
    """Return a row for each step."""
    rows: list[Row] = []

    def timed(step: str, done: int, work: Callable[[], Found]) -> Found:
        begun_s = time.process_time()
        found = work()
        cpu_s = time.process_time() - begun_s
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_A_MIB
        rows.append(
            {
                "step": step,
                "jobs": done,
                "CPU (s)": round(cpu_s, 1),
                "jobs/s": round(done / cpu_s),
                "peak memory (MiB)": round(peak_mib),
            }
        )
        return found

    since = datetime.fromtimestamp(T0 + before * MEAN_GAP_S, timezone.utc)
    window = Window(since, None, round(2 * before * MEAN_GAP_S), None, None)
    past = timed("read", jobs + before, lambda: read_past(config, window))
    where = cluster_of([msgspec.structs.replace(NODE, count=nodes)])
    timed("as asked", jobs, lambda: replay(past, where, POLICIES["easy"], AsAsked(past.jobs)))
    sizing = timed("learn from before", before, lambda: learned(past, config))
    timed("with the service", jobs, lambda: replay(past, where, POLICIES["easy"], sizing))
    return rows


if __name__ == "__main__":
    main()
