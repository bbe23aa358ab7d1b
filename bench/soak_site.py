"""The private Slurm of the soak, all of our programs next to it, and the faults that are injected."""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import msgspec

from accounting.errors import RightsizerError, SandboxError
from bench.controller import EMPTY_HOOK
from bench.replay import Message, capture
from models.versions import registry
from slurm_plugin.cli.output import note
from slurm_plugin.config.file import load_config, render_config
from slurm_plugin.config.hook import HOOK_SCRIPT, hook_settings
from slurm_plugin.config.settings import Config
from slurm_plugin.demo.recorded import ingest_recording, train_current
from slurm_plugin.demo.workload import JOBS
from slurm_plugin.sandbox import cluster, daemons, teardown
from slurm_plugin.sandbox.environment import command_environment
from slurm_plugin.sandbox.shape import Shape

SCRIPT = JOBS / "align.sbatch"
ASKED = "cpu=8,mem=16000M"
MOST_JOBS = 500_000
# Settings as a site has them, except that ended jobs are forgotten at once: they would only fill slurmctld.
LINES = (f"MaxJobCount={MOST_JOBS}", "MinJobAge=2", "SchedulerParameters=bf_continue")
BESIDE: Mapping[str, tuple[str, ...]] = {
    "ingest": ("ingest", "--watch", "5"),
    "recover": ("recover", "--watch", "--apply"),
    "advise": ("advise", "--watch", "--apply"),
}
AGENT_QUEUE = re.compile(r"DBD Agent queue size:\s*(\d+)")
STOPPED_S, SWITCHED_S, FULL_S = 0.1, 1.0, 1.0
FILL_PATIENCE_S = 30.0
ADVISE_EVERY_S, OVERLAP_S = 5, 120
JOURNAL_SIZE = "2g"
BEFORE = "none yet"
# See mallopt(3). For Slurm's daemons: less of what they have freed stays theirs.
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
# While a slurmctld before 23.11 rereads its configuration, it hangs up on some clients, and for two seconds it
# looks for munged at the default socket to answer others: its threads then read AuthInfo and the like.
RECONFIGURE, RECONFIGURED_S = "reconfigure", 3.0
# How many lines of slurmctld's log are shown for a submission without an answer.
MOST_ERRORS = 3


class SoakSite:
    """An enforcing sandbox with one node, a trained model, a journal of limited size, and our other programs."""

    def __init__(self, directory: Path, deadline_ms: int, *, empty_hook: bool) -> None:
        options = cluster.Options(
            directory=directory, nodes=1, mode="enforce", serve=False, shape=Shape(lines=LINES)
        )
        with patch.dict(os.environ, ONE_ARENA):
            self.sandbox = cluster.start(options)
        self.layout = self.sandbox.layout
        self.config = self._configured()
        own = msgspec.structs.replace(self.config.hook, deadline_ms=deadline_ms)
        settings = hook_settings(msgspec.structs.replace(self.config, hook=own))
        (self.layout.etc / "rightsizer_site.lua").write_text(settings, encoding="utf-8")
        if empty_hook:
            script = self.layout.etc / HOOK_SCRIPT
            script.unlink()
            script.write_text(EMPTY_HOOK, encoding="utf-8")
        self.models = Path(self.config.models.directory)
        self.journal = Path(self.config.service.journal)
        attempts = ingest_recording(self.config, self.layout.rightsizer)
        self._versions = tuple(train_current(self.config, attempts) for _ in range(2))
        self._starting = threading.Lock()

    def _configured(self) -> Config:
        """Configure enough advisor cycles to reveal a leak, and the sizing of pending jobs.

        What ingest reads again is two minutes: with an hour, it would hold ever more as long as the soak lasts.
        """
        file = self.layout.rightsizer_toml
        found = load_config(str(file))
        advisor = msgspec.structs.replace(found.advisor, period_s=ADVISE_EVERY_S, late_sizing=True)
        accounting = msgspec.structs.replace(found.accounting, overlap_s=OVERLAP_S)
        config = msgspec.structs.replace(found, advisor=advisor, accounting=accounting)
        file.write_text(render_config(config), encoding="utf-8")
        return config

    def capture(self, different: int) -> tuple[Message, ...]:
        """Return submissions that all have different time limits, so that no two are the same question."""
        commands = [
            ("sbatch", "--output=/dev/null", f"--time={minutes}", str(SCRIPT))
            for minutes in range(1, different + 1)
        ]
        environment = command_environment(self.layout, self.sandbox.cluster.path_first)
        return capture(commands, environment, self.port, self.munge_socket, self.layout.run)

    @property
    def port(self) -> int:
        """The port of slurmctld."""
        return self.sandbox.manifest.ports.slurmctld

    @property
    def munge_socket(self) -> str:
        """The socket of this sandbox's munged."""
        return str(self.layout.munge_socket)

    def pid(self, daemon: str) -> int | None:
        """Return the pid of a daemon; None if it is not running."""
        record = teardown.running_record(self.layout, daemon)
        return record.pid if record else None

    def start_service(self) -> None:
        """Start the service if it is not running, as systemd would."""
        with self._starting:
            cluster.start_service(self.sandbox.directory)

    def signal_service(self, number: signal.Signals) -> None:
        """Send the service a signal, if it is running."""
        pid = self.pid(daemons.SERVE)
        if pid is not None:
            os.kill(pid, number)

    @contextlib.contextmanager
    def programs(self) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
        """Run our other programs next to the service; they end with the block."""
        running: dict[str, subprocess.Popen[bytes]] = {}
        environment = {**os.environ, **self.sandbox.environment()}
        try:
            for name, arguments in BESIDE.items():
                with (self.layout.log / f"{name}.out").open("ab") as log:
                    argv = ["rightsizer", *arguments]
                    running[name] = subprocess.Popen(argv, env=environment, stdout=log, stderr=log, cwd="/")
            yield running
        finally:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait()

    @contextlib.contextmanager
    def journal_mounted(self) -> Iterator[None]:
        """Put the journal on its own file system, which can be made too small."""
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={JOURNAL_SIZE},mode=755", "tmpfs", str(self.journal)],
            check=True,
        )
        try:
            yield
        finally:
            cluster.stop_service(self.sandbox.directory)
            subprocess.run(["umount", "--lazy", str(self.journal)], check=True)

    def fill_node(self) -> None:
        """Let a job take the whole node, so that all others stay pending: sacct would not report held ones."""
        argv = ("sbatch", "--comment=rightsize=off", "--exclusive", "--time=600", "--output=/dev/null")
        self.sandbox.command(*argv, "--wrap=sleep 36000")
        until_s = time.monotonic() + FILL_PATIENCE_S
        while not self.sandbox.command("squeue", "--noheader", "--states=RUNNING").strip():
            if time.monotonic() > until_s:
                raise SandboxError(
                    "the job that is to fill the node does not start; look into the sandbox's log"
                )
            time.sleep(0.2)

    def unsent(self) -> int:
        """Return how many messages slurmctld has not sent to slurmdbd yet."""
        found = AGENT_QUEUE.search(self.sandbox.command("sdiag", patience_s=60.0))
        return int(found[1]) if found else 0

    def waiting(self) -> int:
        """Return how many jobs are pending; sdiag's own count is half a minute old."""
        argv = ("squeue", "--noheader", "--states=PENDING", "--format=%i")
        return len(self.sandbox.command(*argv, patience_s=60.0).split())

    def errors(self, from_s: float, to_s: float) -> list[str]:
        """Return the first errors that slurmctld logged between two moments (unix)."""
        with (self.layout.log / "slurmctld.log").open(encoding="utf-8", errors="replace") as lines:
            return errors_between(lines, from_s, to_s)

    def cancel_waiting(self) -> None:
        """Cancel all pending jobs: this is how jobs leave the queue."""
        argv = [self.sandbox.cluster.program("scancel"), "--quiet", "--state=PENDING", "--partition=main"]
        environment = command_environment(self.layout, self.sandbox.cluster.path_first)
        subprocess.run(argv, env=environment, capture_output=True, check=False, cwd="/")

    def stop_briefly(self) -> None:
        """Stop the service for a moment, by SIGSTOP."""
        self.signal_service(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        self.signal_service(signal.SIGCONT)

    def kill_service(self) -> None:
        """Kill the service by SIGKILL and start it again."""
        self.signal_service(signal.SIGKILL)
        time.sleep(STOPPED_S)
        self.start_service()

    def swap_model(self) -> None:
        """Make the other of two versions current."""
        first, second = self._versions
        registry.promote(self.models, second if registry.current_version(self.models) == first else first)

    def flip_switch(self) -> None:
        """Create the kill switch, and remove it a moment later."""
        switch = Path(self.config.hook.kill_switch)
        switch.touch()
        time.sleep(SWITCHED_S)
        switch.unlink()

    def fill_journal(self) -> None:
        """Fill the journal's file system for a moment."""
        held = os.statvfs(self.journal)
        # A size of 0 would mean no limit, and could not be set again.
        used = max(1, held.f_blocks - held.f_bfree) * held.f_frsize
        with contextlib.suppress(
            subprocess.CalledProcessError
        ):  # a decision came in between: there is room left
            self._remount(str(used))
            time.sleep(FULL_S)
        self._remount(JOURNAL_SIZE)

    def _remount(self, size: str) -> None:
        argv = ["mount", "-o", f"remount,size={size}", str(self.journal)]
        subprocess.run(argv, check=True, capture_output=True)

    def remove_socket(self) -> None:
        """Unlink the service's socket, and restart the service a moment later."""
        Path(self.config.service.socket).unlink(missing_ok=True)
        time.sleep(SWITCHED_S)
        with self._starting:
            cluster.stop_service(self.sandbox.directory)
        self.start_service()

    def reconfigure(self) -> None:
        """Let slurmctld reread its configuration."""
        self.sandbox.command("scontrol", "reconfigure", patience_s=60.0)

    def reload_script(self) -> None:
        """Let slurmctld load the hook into a fresh Lua state."""
        os.utime(self.layout.etc / HOOK_SCRIPT)


def errors_between(lines: Iterable[str], from_s: float, to_s: float) -> list[str]:
    """Return the first errors in a Slurm log between two moments (unix); the log is in local time."""
    here = (
        datetime.fromtimestamp(at_s, timezone.utc).astimezone().replace(tzinfo=None)
        for at_s in (from_s, to_s)
    )
    begin, end = (at.isoformat(timespec="milliseconds") for at in here)
    parts = (line.removeprefix("[").partition("] ") for line in lines)
    found = (said.strip() for at, _, said in parts if begin <= at <= end and "error" in said)
    return list(islice(found, MOST_ERRORS))


def since_s(began_s: Sequence[tuple[float, str]], fault: str, moment_s: float) -> float:
    """Return how long before a moment (unix) a fault was last injected (seconds; infinite if never)."""
    return moment_s - max(
        (at_s for at_s, name in began_s if name == fault and at_s <= moment_s), default=-math.inf
    )


def blame(began_s: Sequence[tuple[float, str]], sent_s: float, ended_s: float) -> str:
    """Return the fault blamed for a submission without an answer, given when each began, in order; all times are unix.

    It is a reconfigure shortly before the submission's end, even if after it was sent; else the last other fault
    before that.
    """
    if since_s(began_s, RECONFIGURE, ended_s) <= RECONFIGURED_S:
        return RECONFIGURE
    others = [name for at_s, name in began_s if at_s <= sent_s and name != RECONFIGURE]
    return others[-1] if others else BEFORE


class Faults:
    """Injects a random fault from time to time until stopped; `began_s` says when (unix) each began.

    Faults that end the service come only in the first `restarting_s`: a process that lives for a minute shows no leak.
    """

    def __init__(self, site: SoakSite, every_s: float, restarting_s: float, seed: int) -> None:
        lasting = (
            site.stop_briefly,
            site.swap_model,
            site.flip_switch,
            site.fill_journal,
            site.reconfigure,
            site.reload_script,
        )
        self._lasting: tuple[Callable[[], None], ...] = lasting
        self._all: tuple[Callable[[], None], ...] = (*lasting, site.kill_service, site.remove_socket)
        self._every_s, self._restarting_s = every_s, restarting_s
        self._draw = random.Random(seed)
        self.began_s: list[tuple[float, str]] = []
        self.failed: list[str] = []

    def rows(self, blamed: Counter[str]) -> list[dict[str, object]]:
        """Return how often each fault was injected, and how many submissions without an answer are blamed on it."""
        times = Counter(name for _, name in self.began_s)
        names = [fault.__name__ for fault in self._all] + ([BEFORE] if blamed[BEFORE] else [])
        return [{"fault": name, "times": times[name], "no answer for it": blamed[name]} for name in names]

    def run(self, stop: threading.Event) -> None:
        """Run until stopped."""
        began_s = time.monotonic()
        while not stop.wait(self._every_s):
            restarting = time.monotonic() - began_s < self._restarting_s
            fault = self._draw.choice(self._all if restarting else self._lasting)
            self.began_s.append((time.time(), fault.__name__))
            try:
                fault()
            except (
                RightsizerError,
                OSError,
                subprocess.SubprocessError,
            ) as error:  # the soak continues; faults that failed are reported at its end
                self.failed.append(f"{fault.__name__}: {error}")
                note(self.failed[-1])
