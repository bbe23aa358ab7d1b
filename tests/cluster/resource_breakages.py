"""How the service is deprived of what it needs: files, memory, inodes, a writable disk, its clock."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from accounting.errors import SandboxError
from slurm_plugin.sandbox.enforcement import CGROUP_ROOT
from tests.cluster.breakages import MODEL_NOTICED_S, promote_copy
from tests.cluster.fault_site import FaultSite
from tests.cluster.journal_breakages import mounted_tmpfs

# Nothing new can be opened: all descriptors below this number are taken.
NO_MORE_FILES = 3
# More than the service accepts at a time, so that the hook is behind a queue; it is drained within seconds.
SILENT_CLIENTS = 400
FILES_WITH_CLIENTS = 128
STARVED_BYTES = 1 << 20
UNIFIED = (CGROUP_ROOT / "cgroup.controllers").exists()
MEMORY_ROOT = CGROUP_ROOT if UNIFIED else CGROUP_ROOT / "memory"
MEMORY_LIMIT = "memory.max" if UNIFIED else "memory.limit_in_bytes"
JUMPS_S = (86400, -3600, 0, 7, -7)
UNHURRIED_MS = 1000
FAKETIME = Path("/usr/lib")


@contextlib.contextmanager
def limited(site: FaultSite, which: int, most: int) -> Iterator[None]:
    """Limit a resource of the running service."""
    pid = site.service_pid()
    assert pid is not None, "the service does not run"
    before = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (most, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, which, before)


@contextlib.contextmanager
def out_of_files(site: FaultSite) -> Iterator[None]:
    """Let the running service open no more files or sockets, and give it a new model meanwhile."""
    site.start_service()
    with limited(site, resource.RLIMIT_NOFILE, NO_MORE_FILES):
        promote_copy(site, "while-out-of-files")
        time.sleep(MODEL_NOTICED_S)
        yield
    site.assert_cut_again()
    site.stop_service()
    site.restore_models()


@contextlib.contextmanager
def crowded_by_clients(site: FaultSite) -> Iterator[None]:
    """Let silent clients take all connections that the service may have."""
    site.start_service()
    with limited(site, resource.RLIMIT_NOFILE, FILES_WITH_CLIENTS), contextlib.ExitStack() as crowd:
        for _ in range(SILENT_CLIENTS):
            client = crowd.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                client.connect(str(site.socket))
        yield
        # Nobody hangs up on the service: it drops the clients itself.
        site.assert_cut_again()


@contextlib.contextmanager
def out_of_address_space(site: FaultSite) -> Iterator[None]:
    """Let the running service map no more memory, and give it a new model meanwhile."""
    site.start_service()
    pages = int(Path(f"/proc/{site.service_pid()}/statm").read_text(encoding="ascii").split()[0])
    with limited(site, resource.RLIMIT_AS, pages * resource.getpagesize()):
        promote_copy(site, "while-out-of-memory")
        time.sleep(MODEL_NOTICED_S)
        yield
    site.stop_service()
    site.restore_models()


@contextlib.contextmanager
def killed_for_memory(site: FaultSite) -> Iterator[None]:
    """Put the running service into a cgroup without memory left, and give it a new model: the kernel kills it."""
    site.start_service()
    pid = site.service_pid()
    with memory_group() as group:
        (group / MEMORY_LIMIT).write_text(str(STARVED_BYTES), encoding="ascii")
        (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
        promote_copy(site, "too-large")
        site.wait_for(lambda: site.service_pid() is None, "the service is not killed")
        yield
    site.remove_socket_path()
    site.restore_models()


@contextlib.contextmanager
def memory_group() -> Iterator[Path]:
    """Make a memory cgroup, and remove it once it is empty."""
    group = MEMORY_ROOT / f"rightsizer-fault-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        until_s = time.monotonic() + 60.0
        while (group / "cgroup.procs").read_text(encoding="ascii") and time.monotonic() < until_s:
            time.sleep(0.05)
        group.rmdir()


def why_no_memory_group() -> str | None:
    """Say why memory cannot be limited here; None if it can."""
    try:
        with memory_group() as group:
            return None if (group / MEMORY_LIMIT).exists() else "there is no cgroup for memory"
    except OSError as error:
        return f"no cgroup can be made: {error.strerror}"


def take_inodes(folder: Path) -> list[Path]:
    """Make empty files until the file system has no inode left; return them."""
    taken: list[Path] = []
    with contextlib.suppress(OSError):
        while True:
            file = folder / f"filler-{len(taken)}"
            file.touch()
            taken.append(file)
    return taken


@contextlib.contextmanager
def journal_out_of_inodes(site: FaultSite) -> Iterator[None]:
    """Take all inodes of the journal's file system while the service runs: today's file still grows."""
    site.stop_service()
    with mounted_tmpfs(site.journal, "size=1m,nr_inodes=20"):
        site.start_service()
        assert take_inodes(site.journal)
        yield
        site.assert_journals_again()
        site.stop_service()


@contextlib.contextmanager
def no_inode_at_start(site: FaultSite) -> Iterator[None]:
    """Start the service where no file can be made for the journal: it refuses."""
    site.stop_service()
    with mounted_tmpfs(site.journal, "size=1m,nr_inodes=20"):
        assert take_inodes(site.journal)
        with contextlib.suppress(SandboxError):
            site.start_service()
        yield


@contextlib.contextmanager
def read_only_journal(site: FaultSite) -> Iterator[None]:
    """Start the service with a journal on a file system that is mounted read-only: it refuses."""
    site.stop_service()
    with mounted_tmpfs(site.journal):
        subprocess.run(["mount", "-o", "remount,ro", str(site.journal)], check=True)
        with contextlib.suppress(SandboxError):
            site.start_service()
        yield


@contextlib.contextmanager
def read_only_models(site: FaultSite) -> Iterator[None]:
    """Start the service with models that it may only read."""
    site.stop_service()
    subprocess.run(["mount", "--bind", str(site.models), str(site.models)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(site.models)], check=True)
        site.start_service()
        yield
        site.stop_service()
    finally:
        subprocess.run(["umount", "--lazy", str(site.models)], check=True)


@contextlib.contextmanager
def jumping_clock(site: FaultSite) -> Iterator[None]:
    """Run the service with a clock that jumps: by libfaketime, in that process alone."""
    site.stop_service()
    with tempfile.NamedTemporaryFile("w", prefix="clock-", encoding="ascii") as offset:
        faked = {
            "LD_PRELOAD": str(faketime_library()),
            "FAKETIME_TIMESTAMP_FILE": offset.name,
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        set_clock(offset.name, 0)
        # With such a clock no program can be waited for, so the service does not learn what the site allows.
        with patch.dict(os.environ, faked), site.service_settings(limits_needed=False):
            site.start_service()
        # Each look at such a clock reads a file, so this tests what is answered, not how soon.
        site.write_settings(UNHURRIED_MS)
        site.reload()
        site.submit()  # loads the script
        for jump_s in JUMPS_S:
            set_clock(offset.name, jump_s)
            seen = site.submit()
            assert seen.tres == site.cut, f"after a jump to {jump_s:+d} s the job has {seen.tres}"
        yield
        site.stop_service()
        site.mend()


def set_clock(file: str, offset_s: int) -> None:
    """Set the clock this many seconds off from now on."""
    # At once: Debian 13's library ends the process if it reads the file while that is empty for a moment.
    new = Path(f"{file}.new")
    new.write_text(f"{offset_s:+d}\n", encoding="ascii")
    new.replace(file)


def faketime_library() -> Path | None:
    """Return Debian's libfaketime; None if it is not installed."""
    return next(iter(FAKETIME.glob("*/faketime/libfaketimeMT.so.1")), None)


def why_no_faketime() -> str | None:
    """Say why no process can be given a clock of its own; None if one can."""
    return None if faketime_library() else "libfaketime (Debian's package libfaketime) is not installed"
