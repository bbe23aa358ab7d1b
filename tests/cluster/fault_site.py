"""The private Slurm that the fault campaign breaks: submissions are timed, and every part is within reach.

The hook is installed as copies, so that it can be broken without touching the checkout. The service uses a model
trained on the demo's recording, so that the same job is cut while all is well: «unchanged» then means more than that
nothing was known about it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from accounting.decisions.decision import decode_decision
from slurm_plugin.config.file import CONFIG_VARIABLE, load_config, render_config
from slurm_plugin.config.hook import HOOK_SCRIPT, hook_settings, lua_folder
from slurm_plugin.config.settings import Config
from slurm_plugin.demo.recorded import ingest_recording, train_current
from slurm_plugin.demo.workload import JOBS
from slurm_plugin.sandbox import cluster, daemons, teardown
from slurm_plugin.sandbox.cluster import Options, Sandbox
from slurm_plugin.sandbox.daemons import Cluster, Daemon
from slurm_plugin.sandbox.files import closed_parent
from tests.cluster.matrix.prefixes import chosen_prefix
from tests.waiting import wait_until

JOB = JOBS / "align.sbatch"
ASKED = "cpu=8,mem=16000M"
DEADLINE_MS = 25
# A deadline costs nothing if it is not reached: a machine may be slow, and stand still for a while.
SUBMIT_PATIENCE_S = 120.0
PATIENCE_S = 120.0
LEFT_ALONE = re.compile(
    r"rightsizer: job left as it was submitted: (\w+)|rightsizer: (every job passes unchanged)"
)


@dataclass(frozen=True)
class Submitted:
    """One sbatch: `job` is None if it was not accepted, `tres` the CPUs and memory that slurmctld has for it."""

    job: int | None
    tres: str
    took_s: float
    said: str


# Debian's packages create the first; a Slurm from a prefix may have no user of its own.
UNPRIVILEGED = ("slurm", "daemon", "nobody")


def ordinary_user() -> str:
    """Return a user for slurmctld to whom permissions apply, if root runs this; '' if another user does.

    Also '' if such a user could not reach the Slurm that is to be run.
    """
    prefix = chosen_prefix()
    if os.geteuid() != 0 or (prefix is not None and closed_parent(prefix.absolute())):
        return ""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in UNPRIVILEGED if name in known), "")


class FaultSite:
    """A sandbox of one node in enforce mode with a trained model; `cut` is what the job gets while all is well.

    Its slurmctld runs as an ordinary user, even if root starts it.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.config: Config = load_config(str(sandbox.layout.rightsizer_toml))
        self.models = Path(self.config.models.directory)
        self.journal = Path(self.config.service.journal)
        self.socket = Path(self.config.service.socket)
        self.kill_switch = Path(self.config.hook.kill_switch)
        self.hook = sandbox.layout.etc
        self.script = self.hook / HOOK_SCRIPT
        self._loaded_s = int(time.time())
        self._log = sandbox.layout.log / "slurmctld.log"
        self._log_read = 0
        self.cut = ""

    @classmethod
    def start(cls, directory: Path) -> FaultSite:
        """Start the sandbox, train, and find out what a healthy service gives the job."""
        options = Options(
            directory=directory,
            nodes=1,
            slurm_prefix=chosen_prefix(),
            mode="enforce",
            serve=False,
            slurm_user=ordinary_user(),
        )
        site = cls(cluster.start(options))
        train_current(site.config, ingest_recording(site.config, site.sandbox.layout.rightsizer))
        shutil.copytree(site.models, site.spare_models, symlinks=True)
        site.mend()
        site.start_service()
        # The first answer may be late on a busy machine: it has to load what later answers find in memory.
        cuts: set[str] = set()

        def is_cut() -> bool:
            site.reload()
            cuts.update({site.submit().tres for _ in range(3)} - {ASKED})
            return bool(cuts)

        site.wait_for(is_cut, "a healthy service does not cut the job")
        assert len(cuts) == 1, f"a healthy service cuts the job in several ways: {cuts}"
        site.cut = cuts.pop()
        site.cancel_all()
        return site

    @property
    def spare_models(self) -> Path:
        """Return the folder with an untouched copy of the models."""
        return self.models.with_name("models-spare")

    def mend(self, deadline_ms: int = DEADLINE_MS) -> None:
        """Put the hook and its settings back as they were; the service is not touched."""
        modules = self.hook / "rightsizer"
        if modules.is_symlink():  # as `sandbox up` left it
            modules.unlink()
        else:
            shutil.rmtree(modules)
        shutil.copytree(lua_folder() / "rightsizer", modules)
        self.script.unlink()
        shutil.copyfile(lua_folder() / HOOK_SCRIPT, self.script)
        self.write_settings(deadline_ms)

    def write_settings(self, deadline_ms: int = DEADLINE_MS, first: str = "") -> None:
        """Write the hook's site file, with a line of Lua before it; `reload` makes slurmctld read it."""
        hook = msgspec.structs.replace(self.config.hook, deadline_ms=deadline_ms)
        text = hook_settings(msgspec.structs.replace(self.config, hook=hook))
        (self.hook / "rightsizer_site.lua").write_text(f"{first}\n{text}", encoding="utf-8")

    @contextlib.contextmanager
    def service_settings(self, **changes: object) -> Iterator[None]:
        """Give a service that is started within the block other settings."""
        file = self.sandbox.layout.rightsizer_toml
        service = msgspec.structs.replace(self.config.service, **changes)
        before = file.read_text(encoding="utf-8")
        file.write_text(
            render_config(msgspec.structs.replace(self.config, service=service)), encoding="utf-8"
        )
        try:
            yield
        finally:
            file.write_text(before, encoding="utf-8")

    def restore_models(self) -> None:
        """Put the models back as training left them."""
        shutil.rmtree(self.models, ignore_errors=True)
        shutil.copytree(self.spare_models, self.models, symlinks=True)

    def reload(self) -> None:
        """Make the next submission load the script into a fresh Lua state (and so close the breaker).

        slurmctld compares whole seconds with the time of its last load, and would load a script from the future
        at every submission: so this waits for the next second. The time is given, since the kernel's own stamps
        lag some milliseconds behind the clock.
        """
        while int(now_s := time.time()) <= self._loaded_s:
            time.sleep(0.02)
        os.utime(self.script, (now_s, now_s))

    def replace_script(self, text: str) -> None:
        """Write another script; the next submission tries to load it."""
        self.script.write_text(text, encoding="utf-8")
        self.reload()

    def submit(self) -> Submitted:
        """Submit the job, held, with plain sbatch."""
        argv = ["sbatch", "--parsable", "--hold", "--output=/dev/null", str(JOB)]
        began_s = time.monotonic()
        answer = subprocess.run(
            argv,
            env={**os.environ, **self.sandbox.environment()},
            capture_output=True,
            text=True,
            timeout=SUBMIT_PATIENCE_S,
            check=False,
            cwd="/",
        )
        took_s = time.monotonic() - began_s
        self._loaded_s = int(time.time())
        if answer.returncode != 0:
            return Submitted(None, "", took_s, answer.stderr.strip())
        job = int(answer.stdout.partition(";")[0])
        return Submitted(job, self.tres(job), took_s, answer.stderr.strip())

    def tres(self, job: int) -> str:
        """Return the CPUs and memory of a pending job as slurmctld has them now."""
        shown = self.sandbox.command("scontrol", "show", "job", str(job))
        found = re.search(r"^\s+(?:Req)?TRES=(cpu=\d+,mem=\w+)", shown, re.MULTILINE)
        return found[1] if found else ""

    def cancel_all(self) -> None:
        """Cancel what was submitted."""
        self.sandbox.command("scancel", "--partition=main")

    def new_reasons(self) -> list[str]:
        """Return why jobs were left alone since the last call, by slurmctld's log."""
        with self._log.open("rb") as log:
            log.seek(self._log_read)
            fresh = log.read()
        self._log_read += len(fresh)
        return [one or other for one, other in LEFT_ALONE.findall(fresh.decode("utf-8", errors="replace"))]

    def lock_time_us(self) -> tuple[int, int]:
        """Return slurmctld's count of submissions and the time it spent on them, in µs, since `reset_counters`."""
        shown = self.sandbox.command("sdiag")
        found = re.search(
            r"REQUEST_SUBMIT_BATCH_JOB\s*\(\s*\d+\)\s*count:(\d+)\s+ave_time:\d+\s+total_time:(\d+)", shown
        )
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def reset_counters(self) -> None:
        """Reset slurmctld's counters."""
        self.sandbox.command("sdiag", "--reset")

    def start_service(self) -> None:
        """Start the service if it does not run; SandboxError if it does not start."""
        self.remove_socket_path()
        cluster.start_service(self.sandbox.directory)

    def stop_service(self) -> None:
        """End the service if it runs, and leave no socket behind."""
        cluster.stop_service(self.sandbox.directory)
        self.remove_socket_path()

    def let_slurmctld_in(self) -> None:
        """Let every user connect to what another process than the service put at the place of the socket."""
        self.socket.chmod(0o666)

    def remove_socket_path(self) -> None:
        """Remove whatever is at the place of the socket, unless a running service owns it."""
        if self.service_pid() is not None:
            return
        if self.socket.is_dir() and not self.socket.is_symlink():
            self.socket.rmdir()
        self.socket.unlink(missing_ok=True)

    def journal_file(self) -> Path:
        """Return today's file of decisions."""
        return self.journal / time.strftime("decisions-%Y%m%d.jsonl", time.gmtime())

    def assert_journals_again(self) -> None:
        """Submit once more and find that decision whole at the end of the journal, whatever was cut off before."""
        before = self.journal_file().stat().st_size
        self.submit()
        # The service journals a moment after it answers.
        self.wait_for(lambda: self.journal_file().stat().st_size > before, "nothing is journalled any more")
        *_, last = self.journal_file().read_bytes().splitlines()
        assert decode_decision(last) is not None, f"a damaged decision: {last[:80]!r}"

    def assert_cut_again(self) -> None:
        """Check that a job is cut within a moment, by a hook that has forgotten what it met."""

        def is_cut() -> bool:
            self.reload()
            return self.submit().tres == self.cut

        self.wait_for(is_cut, "jobs are not cut again")

    def wait_for(self, what: Callable[[], bool], why: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until `what` holds; AssertionError with `why` if that takes too long."""
        wait_until(what, f"{why} ({patience_s:g} s)", patience_s=patience_s)

    def daemon_pid(self, name: str) -> int | None:
        """Return the pid of a daemon of the sandbox; None if it does not run."""
        record = teardown.running_record(self.sandbox.layout, name)
        return record.pid if record else None

    def signal_daemon(self, name: str, number: signal.Signals) -> None:
        """Send a running daemon a signal."""
        pid = self.daemon_pid(name)
        assert pid is not None, f"{name} does not run"
        os.kill(pid, number)

    def bring_up(self, daemon: Callable[[Cluster], Daemon]) -> None:
        """Start again a daemon that has ended."""
        cluster.bring_up([daemon(self.sandbox.cluster)], self.sandbox.cluster, lambda _: None)

    @contextlib.contextmanager
    def program(self, *arguments: str, config: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """Run `rightsizer` with these arguments while the block runs, and check that it has ended afterwards."""
        named = {} if config is None else {CONFIG_VARIABLE: str(config)}
        with self.program_log.open("ab") as log:
            process = subprocess.Popen(
                ["rightsizer", *arguments],
                env={**os.environ, **self.sandbox.environment(), **named},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(SUBMIT_PATIENCE_S)

    @property
    def program_log(self) -> Path:
        """Return the output of our programs that a fault started."""
        return self.sandbox.layout.log / "programs.out"

    def service_pid(self) -> int | None:
        """Return the pid of the service; None if it does not run."""
        return self.daemon_pid(daemons.SERVE)

    def signal_service(self, number: signal.Signals) -> None:
        """Send the running service a signal."""
        self.signal_daemon(daemons.SERVE, number)

    @contextlib.contextmanager
    def stopped_service(self) -> Iterator[None]:
        """Stop the service's process (it keeps its socket) while the block runs."""
        self.start_service()
        self.signal_service(signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(AssertionError):
                self.signal_service(signal.SIGCONT)
