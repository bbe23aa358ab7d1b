"""The collector's loop: one pass over all GPUs per tick, one line per job and GPU per window, until stopped.

Bounded: no subprocess, no state beyond one window's, and besides one pass per window no more than MOST_SHARE of a
core, whatever NVML costs. A GPU that fails is left out and tried again each window. So is NVML as a whole, for
example after a driver restart.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from accounting.gpu_collector.attribution import (
    GpuProcess,
    JobHere,
    Load,
    Reading,
    holders,
    samples_of,
)
from accounting.gpu_collector.nvml import Device, NvmlFault
from accounting.gpu_collector.processes import JobProcesses
from accounting.gpu_collector.spool import SpoolWriter
from accounting.gpu_collector.windows import Windows

# A tick that took long is followed by a longer pause.
MOST_SHARE = 0.02
# How long `--job` waits for a job that has no processes yet.
PATIENCE_S = 120.0
STOPPING = (signal.SIGTERM, signal.SIGINT)


class Gpus(Protocol):
    """NVML as the loop uses it: accounting/gpu_collector/nvml.py, or a fake node in tests."""

    def close(self) -> None: ...  # noqa: D102
    def count(self) -> int: ...  # noqa: D102
    def devices_of(self, gpu: int) -> list[Device]: ...  # noqa: D102
    def processes(self, device: Device) -> list[GpuProcess]: ...  # noqa: D102
    def load(self, device: Device, *, memory: bool) -> Load: ...  # noqa: D102
    def process_util_pct(self, device: Device) -> dict[int, float] | None: ...  # noqa: D102


class CollectorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often to sample and to write, in seconds; `job_id` limits this to one job, until it ends."""

    every_s: float = 1.0
    window_s: float = 30.0
    job_id: int | None = None


class Collector:
    """Passes over the GPUs of this host. `say` is called once for each fault, and once for its end."""

    def __init__(
        self,
        open_gpus: Callable[[], Gpus],
        jobs: JobProcesses,
        spool: SpoolWriter,
        settings: CollectorSettings,
        say: Callable[[str], None],
    ) -> None:
        self._open_gpus = open_gpus
        self._gpus: Gpus | None = None
        self._jobs = jobs
        self._spool = spool
        self._settings = settings
        self._say = say
        self._windows = Windows()
        self._devices: dict[int, list[Device]] = {}
        self._split: set[int] = set()
        self._faults: dict[str, str] = {}
        self._told: set[str] = set()

    def open(self) -> int:
        """Open NVML and return the number of GPUs; NvmlFault if NVML is not available."""
        self._gpus = self._open_gpus()
        return self._gpus.count()

    def look_again(self) -> None:
        """Find the GPUs, their MIG instances and the running jobs, as they are now."""
        self._jobs.look_again()
        self._tell_what_is_not_seen()
        self._devices.clear()
        try:
            count = self._gpus.count() if self._gpus else self.open()
            for gpu in range(count):
                self._find_devices(gpu)
        except NvmlFault as fault:
            self._fault("NVML", fault)
        else:
            self._fine("NVML")

    def _tell_what_is_not_seen(self) -> None:
        """Report once what a node service cannot see here, and why."""
        if self._settings.job_id is not None:
            return
        if self._jobs.outside is not None:
            self._tell_once(
                "cgroups",
                f"a process on a GPU says that it belongs to job {self._jobs.outside}, but Slurm has "
                "made no cgroup for any job here, so nothing is recorded for it. If ProctrackType is "
                "not proctrack/cgroup, set it to that, or run `rightsizer collect --job` for each job",
            )
        if self._jobs.kept_out:
            self._tell_once(
                "environments",
                "the kernel does not let this user read the environment of jobs' processes, so the "
                "collector sees neither GPUs that a job leaves idle nor processes outside their job's "
                "cgroup: give it CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, as "
                "etc/systemd/rightsizer-collect.service does",
            )

    def _tell_once(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._say(text)

    def _find_devices(self, gpu: int) -> None:
        if self._gpus is None:
            return
        try:
            self._devices[gpu] = self._gpus.devices_of(gpu)
            self._split -= {gpu}
            if not any(device.instance < 0 for device in self._devices[gpu]):
                self._split.add(gpu)
        except NvmlFault as fault:
            if fault.everywhere:
                raise
            self._fault(f"GPU {gpu}", fault)
        else:
            self._fine(f"GPU {gpu}")

    def tick(self, now_s: int) -> None:
        """Read every GPU once."""
        seen: set[int] = set()
        for gpu, devices in list(self._devices.items()):
            try:
                for device in devices:
                    seen |= self._read(device, now_s)
            except NvmlFault as fault:
                self._fault("NVML" if fault.everywhere else f"GPU {gpu}", fault)
                # Until the next look: a GPU that is gone takes long to report it.
                self._devices.pop(gpu)
        self._jobs.keep(seen)

    def _read(self, device: Device, now_s: int) -> set[int]:
        if self._gpus is None:
            return set()
        processes = self._gpus.processes(device)
        pids = {process.pid for process in processes}
        jobs = self._jobs.jobs_of(pids)
        held = holders(
            processes,
            jobs,
            self._jobs.claimants(self._slurm_index(device), device.uuid),
        )
        if held and self._wanted(held):
            unknown = any(one.mem_mib is None for one in held.values())
            load = self._gpus.load(device, memory=unknown)
            util_pct = self._gpus.process_util_pct(device) if len(held) > 1 else {}
            nobodys = tuple(pid for pid, job in jobs.items() if job is None)
            reading = Reading(device.gpu, device.instance, held, load, util_pct, nobodys)
            for sample in samples_of(reading):
                if self._settings.job_id in (None, sample.job.job_id):
                    self._windows.add(sample, now_s)
        return pids

    def _slurm_index(self, device: Device) -> int | None:
        """Return Slurm's number for a GPU; None for an instance, and after a GPU whose instances Slurm numbers."""
        return device.gpu if all(device.gpu < gpu for gpu in self._split) else None

    def _wanted(self, held: Iterable[JobHere]) -> bool:
        return self._settings.job_id is None or any(job.job_id == self._settings.job_id for job in held)

    def flush(self, now_s: float) -> None:
        """Write the contents of the windows."""
        self._spool.write(self._windows.flush(), now_s)

    def close(self) -> None:
        """Close NVML."""
        if self._gpus is not None:
            self._gpus.close()
            self._gpus = None

    def _fault(self, what: str, fault: NvmlFault) -> None:
        if fault.everywhere:
            self.close()
        if fault.stale:
            raise fault
        if self._faults.get(what) != fault.reason:
            self._faults[what] = fault.reason
            self._say(
                f"{what} does not answer ({fault.reason}); asking again every {self._settings.window_s:g} s"
            )

    def _fine(self, what: str) -> None:
        if self._faults.pop(what, None) is not None:
            self._say(f"{what} answers again")


def run(
    collector: Collector,
    jobs: JobProcesses,
    settings: CollectorSettings,
    stopped: Callable[[float], bool],
    clock: Callable[[], float] = time.time,
    elapsed: Callable[[], float] = time.monotonic,
    cpu: Callable[[], float] = time.process_time,
) -> None:
    """Collect until `stopped(seconds)` is true or the one watched job has ended; then write the rest.

    `stopped` waits for that many seconds, or until it is time to end. Raises NvmlFault if the driver was replaced,
    so that only a new process can continue.
    """
    begin_s = elapsed()
    next_s, look_s, lived = begin_s, begin_s, False
    try:
        while True:
            if elapsed() >= look_s:
                collector.flush(clock())
                collector.look_again()
                look_s = elapsed() + settings.window_s
                if settings.job_id is not None:
                    lives = jobs.lives(settings.job_id)
                    if not lives and (lived or elapsed() - begin_s > PATIENCE_S):
                        return
                    lived = lives
            spent_s = cpu()
            collector.tick(int(clock()))
            pause_s = (cpu() - spent_s) / MOST_SHARE
            # Missed passes are not made up for.
            next_s = max(next_s + settings.every_s, elapsed() + min(pause_s, settings.window_s))
            if stopped(max(0.0, next_s - elapsed())):
                return
    finally:
        collector.flush(clock())
        collector.close()


def until_signalled() -> Callable[[float], bool]:
    """Block SIGTERM and SIGINT from now on, and return the wait that ends when one of them arrives."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    return lambda seconds: signal.sigtimedwait(STOPPING, seconds) is not None
