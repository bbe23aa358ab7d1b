"""Dask workers that are Slurm jobs, started by dask-jobqueue and ended whatever happens. Knows nothing of training.

Anyone who can reach a Dask scheduler can run code as its user: both sides show a certificate that is made for each
run.
"""

from __future__ import annotations

import logging
import re
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from distributed import Client, Security
from distributed import TimeoutError as DaskTimeoutError

from accounting.errors import SlurmError
from slurm_plugin.config.settings import TrainDask
from slurm_plugin.slurm.command import run

if TYPE_CHECKING:
    from dask_jobqueue import SLURMCluster

# Our own request is known to be right, and a worker that is gone must not come back.
OPTIONS = ("--no-requeue", "--comment=rightsize=off")
# Seconds between looks at the queue while workers are waited for.
LOOK_S = 5
# A worker whose scheduler is gone ends itself after this many seconds, also if nothing else could end it any more.
ORPHANED_S = 60
CLOSE_S = 30
WAITING = frozenset({"PENDING", "CONFIGURING", "RUNNING", "REQUEUED", "SUSPENDED"})
ERROR = re.compile(r"[\w.]*(Error|Exception)\b|slurmstepd: error:|\S*: (No such file|cannot )")
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def slurm_workers(settings: TrainDask, note: Callable[[str], None]) -> Iterator[Client]:
    """Hand out a client of workers that all run; their jobs are ended when the caller is done, or fails.

    Raises SlurmError if sbatch would not accept them, or they do not all run within `start_timeout_s`.
    """
    name = f"rightsizer-dask-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        stack.enter_context(_ended_by_signals())
        stack.enter_context(_quiet_tracker())
        folder = Path(stack.enter_context(_folder(settings.shared_directory or "~")))
        stack.callback(_cancel, name)
        cluster = _scheduler(settings, name, folder)
        stack.callback(_close, cluster)
        _try_out(cluster.job_script(), folder)
        client = stack.enter_context(Client(cluster))
        cluster.scale(jobs=settings.workers)
        note(f"waiting for {settings.workers} Dask workers: Slurm jobs named {name}")
        _wait(client, settings, name, folder)
        yield client


def _folder(parent: str) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix=".rightsizer-dask-", dir=Path(parent).expanduser())
    except (OSError, RuntimeError) as error:  # the latter: our user, or that of `~name`, has no home
        reason = error.strerror if isinstance(error, OSError) else error
        raise SlurmError(
            f"cannot write to {parent}: {reason}; set train.dask.shared_directory to a folder that all "
            "nodes share"
        ) from None


def _scheduler(settings: TrainDask, name: str, folder: Path) -> SLURMCluster:
    """Return a scheduler in this process that has no workers yet."""
    from dask_jobqueue import SLURMCluster

    try:
        return SLURMCluster(**_options(settings, name, folder))
    except (OSError, RuntimeError, ValueError) as error:
        raise SlurmError(
            f"Dask's scheduler cannot start here: {error}; see `interface` and `scheduler_host` in [train.dask]"
        ) from error


def _close(cluster: SLURMCluster) -> None:
    """End scheduler and jobs. A failure must not cost what was trained: the jobs are cancelled by name next."""
    with suppress(DaskTimeoutError, OSError, RuntimeError):
        cluster.close(timeout=CLOSE_S)


def _options(settings: TrainDask, name: str, folder: Path) -> dict[str, Any]:
    """Return the options for dask-jobqueue, including those that a user's own Dask files could set otherwise."""
    # Its web pages ask for no certificate.
    scheduler: dict[str, Any] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    if settings.scheduler_host:
        scheduler["host"] = settings.scheduler_host
    return {
        "job_name": name,
        "python": sys.executable,
        "worker_command": "distributed.cli.dask_worker",
        "shebang": "#!/bin/sh",
        "queue": settings.partition or None,
        "account": settings.account or None,
        "cores": settings.cores,
        "processes": 1,
        "memory": f"{settings.memory_mib}MiB",
        "job_mem": f"{settings.memory_mib}M",
        "walltime": f"{settings.wall_s // 60}:{settings.wall_s % 60:02}",
        "job_extra_directives": [*settings.directives, *OPTIONS],
        "job_script_prologue": [],
        # A worker that Dask restarts, or pauses for its memory, would be waited for; Slurm's own limit ends it
        # instead.
        "nanny": False,
        "worker_extra_args": ["--memory-limit", "0", "--no-dashboard"],
        "death_timeout": ORPHANED_S,
        "interface": settings.interface or None,
        "scheduler_options": scheduler,
        "security": _credentials(folder),
        "protocol": "tls://",
        "log_directory": str(folder),
        # A failure becomes one of our errors, in one line.
        "silence_logs": logging.CRITICAL,
    }


def _credentials(folder: Path) -> Security:
    """Write a certificate for this training into a folder that only its user can read."""
    made = Security.temporary()
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    for file, content in ((certificate, made.tls_client_cert), (key, made.tls_client_key)):
        file.touch(mode=0o600)
        file.write_text(content, encoding="ascii")
    roles = ("client", "scheduler", "worker")
    files = {
        f"tls_{role}_{part}": str(file)
        for role in roles
        for part, file in (("cert", certificate), ("key", key))
    }
    return Security(require_encryption=True, tls_ca_file=str(certificate), **files)


def _try_out(script: str, folder: Path) -> None:
    """Let sbatch say what is wrong with a worker's job; dask-jobqueue would not."""
    file = folder / "worker.sh"
    file.write_text(script, encoding="utf-8")
    try:
        run("sbatch", "--test-only", str(file))
    except SlurmError as error:
        said = str(error).partition(";")[0]
        raise SlurmError(
            f"cannot start Dask workers: {said}; change [train.dask], or train with --engine local"
        ) from None


def _wait(client: Client, settings: TrainDask, name: str, folder: Path) -> None:
    """Wait until all workers are there; if they do not come, report what the queue says of them."""
    deadline = time.monotonic() + settings.start_timeout_s
    while True:
        left_s = deadline - time.monotonic()
        with suppress(DaskTimeoutError):
            client.wait_for_workers(settings.workers, timeout=max(0.1, min(LOOK_S, left_s)))
            return
        queue = _queue(name)
        ended = [line for line in queue if line.split()[1] not in WAITING]
        if ended or left_s <= 0:
            here = len(client.nthreads())
            failed = any(line.split()[1] == "FAILED" for line in ended)
            why = "ended at once" if ended else f"did not all start within {settings.start_timeout_s} s"
            raise SlurmError(
                f"Dask workers {why} ({here} of {settings.workers} are running); squeue says: "
                f"{'; '.join(queue) or 'nothing'}{_last_words(folder, failed=failed)}. Nothing was "
                "trained: change [train.dask], or train with --engine local"
            )


def _queue(name: str) -> list[str]:
    """Return a line (id, state, reason) for each job of ours, ended ones included; none if slurmctld is silent."""
    try:
        said = run("squeue", "--noheader", "--states=all", f"--name={name}", "--format=%i %T %r")
    except SlurmError:
        return []
    return [line.strip() for line in said.splitlines() if line.strip()]


def _last_words(folder: Path, *, failed: bool) -> str:
    """Return the first error that any worker wrote, or else the last line; why, if `failed` workers wrote nothing."""
    files = sorted(folder.glob("*.err"))
    # Slurm creates a job's log before anything of the job runs.
    if failed and not files:
        return (
            f"; none of them wrote to {folder.parent}, which all nodes must share: set "
            "train.dask.shared_directory"
        )
    logs = (file.read_text(encoding="utf-8", errors="replace") for file in files)
    lines = [line.strip() for log in logs for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if ERROR.match(line)]
    return f"; one of them says: {(errors or lines[-1:])[0]}" if lines else ""


def _cancel(name: str) -> None:
    """End every job of ours that may still exist, including those that sbatch accepted during an interruption."""
    with suppress(SlurmError):
        run("scancel", "--quiet", f"--name={name}")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP end the command, but only through its cleanup."""

    def leave(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in ENDING}
    # Imported after ours are set, it would answer Ctrl-C with exit code 0.
    import dask_jobqueue  # noqa: F401

    for number in ENDING:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _quiet_tracker() -> Iterator[None]:
    """Silence the thread by which XGBoost's workers find each other if the workers are ended first."""
    in_thread, ignored = threading.excepthook, sys.unraisablehook

    def is_xgboost(error: BaseException | None) -> bool:
        return type(error).__name__ == "XGBoostError"

    threading.excepthook = lambda said: None if is_xgboost(said.exc_value) else in_thread(said)
    sys.unraisablehook = lambda said: None if is_xgboost(said.exc_value) else ignored(said)
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = in_thread, ignored
