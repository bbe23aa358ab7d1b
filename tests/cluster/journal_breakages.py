"""How the journal's place is made to fail: full, limited or removed, before the service starts and while it runs."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from accounting.errors import SandboxError
from tests.cluster.fault_site import FaultSite
from tests.full_disk import fill

HALF_A_DECISION_BYTES = 300


@contextlib.contextmanager
def journal_full(site: FaultSite) -> Iterator[None]:
    """Make today's journal (and tomorrow's) /dev/full: every write fails for lack of space."""
    site.stop_service()
    away = site.journal.with_name("journal-away")
    site.journal.rename(away)
    fill(site.journal, "decisions-*.jsonl")
    site.start_service()
    yield
    site.stop_service()
    for file in site.journal.iterdir():
        file.unlink()
    site.journal.rmdir()
    away.rename(site.journal)


@contextlib.contextmanager
def journal_unwritable_at_start(site: FaultSite) -> Iterator[None]:
    """Put a file where the journal's folder should be: the service refuses to start."""
    site.stop_service()
    away = site.journal.with_name("journal-away")
    site.journal.rename(away)
    site.journal.touch()
    with contextlib.suppress(SandboxError):
        site.start_service()
    yield
    site.stop_service()
    site.journal.unlink()
    away.rename(site.journal)


@contextlib.contextmanager
def journal_removed(site: FaultSite) -> Iterator[None]:
    """Remove the journal's folder under the running service, which makes it anew."""
    site.start_service()
    for file in site.journal.iterdir():
        file.unlink()
    site.journal.rmdir()
    yield

    def is_made_anew() -> bool:
        site.submit()  # the service looks for its file once a second at most, as it writes
        return any(site.journal.glob("decisions-*"))

    site.wait_for(is_made_anew, "the journal's folder is not made anew")
    site.assert_journals_again()
    site.stop_service()


@contextlib.contextmanager
def journal_limited(site: FaultSite) -> Iterator[None]:
    """Limit the running service's files to half a decision more, as on a disk that fills up."""
    site.start_service()
    pid = site.service_pid()
    assert pid is not None
    journal = site.journal_file()
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (journal.stat().st_size + HALF_A_DECISION_BYTES, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    site.assert_journals_again()
    site.stop_service()


@contextlib.contextmanager
def journal_disk_full(site: FaultSite) -> Iterator[None]:
    """Put the journal on a small file system of its own, and fill that while the service runs."""
    site.stop_service()
    with mounted_tmpfs(site.journal):
        site.start_service()
        site.submit()
        filler = site.journal / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 512)
        yield
        filler.unlink()
        site.assert_journals_again()
        site.stop_service()


@contextlib.contextmanager
def mounted_tmpfs(folder: Path, options: str = "size=64k") -> Iterator[None]:
    """Mount a file system in memory on a folder, by default one of 64 KiB; SandboxError if that is not allowed."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"mode=755,{options}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise SandboxError(f"cannot mount on {folder}: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def why_no_mount() -> str | None:
    """Say why no file system can be mounted here; None if one can."""
    try:
        with tempfile.TemporaryDirectory() as name, mounted_tmpfs(Path(name)):
            return None
    except (SandboxError, OSError) as error:
        return str(error)
