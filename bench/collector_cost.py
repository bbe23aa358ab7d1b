"""What the collector takes of one core: eight GPUs, looked at once a second, two processes of one job on each.

Run it with `python -m bench.collector_cost [SECONDS]`. The floor is a loop that only wakes up once a second, for the
same time and at the same time. On a machine with a GPU, NVML is real, and one GPU read eight times stands for eight;
elsewhere a stand-in with the same functions (bench/nvml_stand_in.c) answers at once, without the driver's own cost.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from accounting.gpu_collector.attribution import GpuProcess
from accounting.gpu_collector.loop import Collector, CollectorSettings, run, until_signalled
from accounting.gpu_collector.nvml import Device, Nvml, NvmlFault
from accounting.gpu_collector.processes import JobProcesses
from accounting.gpu_collector.spool import SpoolWriter
from bench import nvml_stand_in
from bench.figures import goal

GPUS = 8
PROCESSES_A_GPU = 2
SECONDS = 60.0
GOAL_PCT = 0.5
COLLECTOR, FLOOR, CALLS = "--collector", "--floor", "calls"


class EightGpus(Nvml):
    """NVML with any number of GPUs: the existing ones, repeated.

    Our processes (one group per GPU) are added to those really there, so that the cost of finding their jobs is
    included.
    """

    def __init__(self) -> None:
        super().__init__()
        self._real = super().count()
        groups = os.environ["BENCH_PIDS"].split(";")
        self._ours = [[GpuProcess(int(pid), 1000.0) for pid in group.split(",")] for group in groups]

    def count(self) -> int:
        """Return the wanted number; NVML is asked all the same."""
        return max(GPUS, super().count())

    def devices_of(self, gpu: int) -> list[Device]:
        """Return one of the existing GPUs under its own number."""
        found = super().devices_of(gpu % self._real)
        return [Device(gpu, one.instance, one.uuid, one.handle, one.parent) for one in found]

    def processes(self, device: Device) -> list[GpuProcess]:
        """Return the real processes, and ours if NVML does not name them."""
        found = super().processes(device)
        named = {process.pid for process in found}
        return found + [process for process in self._ours[device.gpu % GPUS] if process.pid not in named]


def main() -> None:
    """Measure and print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with tempfile.TemporaryDirectory(prefix="rightsizer-") as name, jobs() as pids:
        folder = Path(name)
        what, environment = nvml(folder, pids)
        environment |= {"BENCH_PIDS": pids}
        print(f"{what}; {GPUS} GPUs, {GPUS * PROCESSES_A_GPU} processes, {seconds:g} s")
        command = [sys.executable, "-m", "bench.collector_cost"]
        children = {
            kind: subprocess.Popen(
                [*command, kind, name, str(seconds)], env=environment, stdout=subprocess.PIPE, text=True
            )
            for kind in (COLLECTOR, FLOOR)
        }
        shares = {kind: float(child.communicate()[0].split()[-1]) for kind, child in children.items()}
        lines = [file.read_bytes() for file in sorted((folder / "spool").iterdir())]
        print(f"the floor takes {shares[FLOOR]:.4f} % of a core, the collector {shares[COLLECTOR]:.4f} %")
        size = sum(map(len, lines))
        print(f"the spool grew by {size:,} bytes, {size * 86400 / seconds / 1e6:.1f} MB a day")
        if (folder / CALLS).exists():
            print(f"NVML was called {int((folder / CALLS).read_text()) / seconds:.0f} times a second")
    row = goal("share of a core (%)", f"{GPUS} GPUs at 1 Hz", shares[COLLECTOR], GOAL_PCT, at_most=True)
    print(", ".join(f"{key}: {value}" for key, value in row.items()))


def nvml(folder: Path, pids: str) -> tuple[str, dict[str, str]]:
    """Return which NVML is used, in words, and the environment in which it is found."""
    try:
        real = Nvml()
    except NvmlFault:
        built = nvml_stand_in.build(folder)
        if built is None:
            sys.exit("there is neither a GPU nor a C compiler here: nothing to measure with")
        settings = {"gpus": str(GPUS), "pids": pids, "calls": str(folder / CALLS)}
        return "a stand-in for NVML (no GPU here)", nvml_stand_in.environment(built, **settings)
    count = real.count()
    real.close()
    again = "" if count >= GPUS else f", {count} of them there, read again and again for {GPUS}"
    return f"real NVML{again}", dict(os.environ)


@contextlib.contextmanager
def jobs() -> Iterator[str]:
    """Start processes that name their jobs, and yield their ids: `101,102;201,202` for two GPUs."""
    with contextlib.ExitStack() as running:
        groups = []
        for gpu in range(GPUS):
            named = {**os.environ, "SLURM_JOB_ID": str(gpu + 1)}
            group = [subprocess.Popen(["sleep", "3600"], env=named) for _ in range(PROCESSES_A_GPU)]
            for process in group:
                running.callback(process.wait)
                running.callback(process.kill)
            groups.append(",".join(str(process.pid) for process in group))
        yield ";".join(groups)


def used_s() -> float:
    """Return this process's CPU seconds, in user and system time."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(kind: str, folder: Path, seconds: float) -> None:
    """Run the collector, or the floor, for `seconds`, and print its share of a core in per cent."""
    wait = until_signalled()
    if kind == FLOOR:
        begin_s, until_s = used_s(), time.monotonic() + seconds
        while time.monotonic() < until_s:
            wait(1.0)
    else:
        processes = JobProcesses("bench")
        for gpu in range(GPUS):
            processes.trust(gpu + 1, os.getuid())
        settings = CollectorSettings()
        writer = SpoolWriter(folder / "spool", "bench", 2**28, print)
        collector = Collector(EightGpus, processes, writer, settings, print)
        collector.open()
        begin_s, until_s = used_s(), time.monotonic() + seconds
        run(collector, processes, settings, lambda pause: wait(pause) or time.monotonic() >= until_s)
    print(100 * (used_s() - begin_s) / seconds)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in (COLLECTOR, FLOOR):
        measure(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
    else:
        main()
