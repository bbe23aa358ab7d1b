"""How the work apart from submissions is broken: ingest and its store, recovery, the advisor.

Submissions must not notice. Whatever was cut off must be intact afterwards, as each block asserts.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from sqlalchemy import create_engine, text

from accounting.errors import StoreError
from accounting.store.database import open_store
from slurm_plugin.config.file import render_config
from slurm_plugin.recovery.journal import Entry, Journal
from slurm_plugin.sandbox import daemons
from slurm_plugin.sandbox.files import write_programs
from tests import servers
from tests.cluster.advised_site import FILLS, fill
from tests.cluster.conftest import Shell
from tests.cluster.fault import Break
from tests.cluster.fault_site import ASKED, JOB, FaultSite
from tests.cluster.journal_breakages import mounted_tmpfs
from tests.cluster.process_breakages import SAVED_S, kill_slurmctld
from tests.cluster.resource_breakages import take_inodes

PATIENCE_S = 180.0
KILLS = 4
LOCKED_S = 3.0
KILLED_FOR_MEMORY = 2
# The script of the campaign's job: it takes more memory than it is granted, except when it was requeued.
HUNGRY = """#!/bin/sh
test "${SLURM_RESTART_COUNT:-0}" -gt 0 || exec python3 -c 'held = b"1" * (1 << 30)'
exec sleep 60
"""
HELD = (
    "SELECT id FROM decisions ORDER BY id",
    "SELECT job_id, submit_s FROM attempts ORDER BY job_id, submit_s",
)
GARBAGE = b"\x00 no decision\n" + b"[]\n"
TORN = b'{"id":"half'


def with_store(site: FaultSite, url: str, name: str) -> Path:
    """Return a configuration like the site's with another store."""
    config = msgspec.structs.replace(site.config, store=msgspec.structs.replace(site.config.store, url=url))
    file = site.hook / f"{name}.toml"
    file.write_text(render_config(config), encoding="utf-8")
    return file


def ingest(site: FaultSite, config: Path) -> int:
    """Ingest once; return the exit code."""
    with site.program("ingest", config=config) as process:
        return process.wait(PATIENCE_S)


def held(url: str) -> list[list[tuple[object, ...]]]:
    """Return which decisions and which attempts a store holds."""
    engine = open_store(url)
    try:
        with engine.connect() as connection:
            return [[tuple(row) for row in connection.execute(text(statement))] for statement in HELD]
    finally:
        engine.dispose()


def assert_whole(site: FaultSite, config: Path, url: str) -> None:
    """Ingest the rest, and check that the store holds, once each, all that an undisturbed store holds."""
    fresh = f"sqlite:///{site.sandbox.layout.rightsizer}/undisturbed-{time.monotonic_ns()}.db"
    assert ingest(site, with_store(site, fresh, "undisturbed")) == 0
    assert ingest(site, config) == 0, "ingest does not go on once all is well"
    for kind, found, undisturbed in zip(("decisions", "attempts"), held(url), held(fresh), strict=True):
        assert undisturbed, f"there are no {kind}: this tells nothing"
        assert len(found) == len(set(found)), f"{kind} are doubled"
        assert set(undisturbed) <= set(found), f"{len(set(undisturbed) - set(found))} {kind} are lost"
    if url.startswith("sqlite"):
        engine = create_engine(url)
        with engine.connect() as connection:
            assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"
        engine.dispose()


def submit_and_run(site: FaultSite) -> None:
    """Submit the job of all rows, and one that runs and ends at once."""
    site.submit()
    Shell(site.sandbox).submit("--comment=rightsize=off", "--time=1", "--mem=10")


@contextlib.contextmanager
def own_store(site: FaultSite, name: str, options: str) -> Iterator[tuple[Path, Path, str]]:
    """Make a folder on a small file system for a store; yield it, a configuration for it, and the store's URL."""
    site.start_service()
    submit_and_run(site)
    folder = site.sandbox.layout.rightsizer / name
    # A row is made once more if the machine was late.
    folder.mkdir(exist_ok=True)
    url = f"sqlite:///{folder}/store.db"
    with mounted_tmpfs(folder, options):
        yield folder, with_store(site, url, name), url


@contextlib.contextmanager
def store_disk_full(site: FaultSite) -> Iterator[None]:
    """Let ingest run into a full disk."""
    with own_store(site, "full", "size=1m") as (folder, config, url):
        with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
        assert ingest(site, config) == 1, "a full disk is no expected failure"
        yield
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
        assert_whole(site, config, url)


@contextlib.contextmanager
def store_out_of_inodes(site: FaultSite) -> Iterator[None]:
    """Let ingest find a store, and no inode for its write-ahead log."""
    with own_store(site, "inodes", "size=64m,nr_inodes=40") as (folder, config, url):
        assert ingest(site, config) == 0
        fillers = take_inodes(folder)
        submit_and_run(site)
        assert ingest(site, config) == 1, "a lack of inodes is no expected failure"
        yield
        for filler in fillers:
            filler.unlink()
        assert_whole(site, config, url)


@contextlib.contextmanager
def read_only_store(site: FaultSite) -> Iterator[None]:
    """Let ingest find its store on a file system that was remounted read-only."""
    with own_store(site, "read-only", "size=64m") as (folder, config, url):
        assert ingest(site, config) == 0
        submit_and_run(site)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        assert ingest(site, config) == 1, "a read-only store is no expected failure"
        yield
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
        assert_whole(site, config, url)


@contextlib.contextmanager
def store_locked(site: FaultSite) -> Iterator[None]:
    """Hold the store's lock while ingest wants it: ingest waits, and then goes on."""
    site.start_service()
    submit_and_run(site)
    file = site.sandbox.layout.rightsizer / "locked.db"
    url = f"sqlite:///{file}"
    config = with_store(site, url, "locked")
    assert ingest(site, config) == 0
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with site.program("ingest", config=config) as waiting:
            time.sleep(LOCKED_S)
            assert waiting.poll() is None, "ingest does not wait for the lock"
            yield
            other.execute("COMMIT")
            assert waiting.wait(PATIENCE_S) == 0, "ingest does not go on once the lock is free"
    assert_whole(site, config, url)


@contextlib.contextmanager
def postgresql_restarted(site: FaultSite) -> Iterator[None]:
    """Restart PostgreSQL, once orderly and once not, under a watching ingest."""
    site.start_service()
    with servers.postgresql() as server:
        url = server.new_database()
        config = with_store(site, url, "postgresql")
        with site.program("ingest", "--watch", "1", config=config) as watching:
            site.wait_for(lambda: has_decisions(url), "ingest does not begin", PATIENCE_S)
            for how in (signal.SIGINT, signal.SIGQUIT):
                submit_and_run(site)
                time.sleep(2.0)
                server.stop(how)
                time.sleep(1.5)
                server.start()
            yield
            site.submit()
            time.sleep(2.0)
            assert watching.poll() is None, "ingest does not outlast a restart of its database"
            watching.terminate()
            assert watching.wait(PATIENCE_S) == 0
        assert_whole(site, config, url)


def why_no_postgresql() -> str | None:
    """Say why no PostgreSQL can run here; None if one can."""
    return servers.missing(servers.POSTGRESQL)


@contextlib.contextmanager
def ingest_killed(site: FaultSite) -> Iterator[None]:
    """Kill a watching ingest at random moments."""
    site.start_service()
    url = f"sqlite:///{site.sandbox.layout.rightsizer}/killed.db"
    config = with_store(site, url, "killed")
    kill_at_random(site, ("ingest", "--watch", "1"), config)
    yield
    assert_whole(site, config, url)


def kill_at_random(site: FaultSite, arguments: tuple[str, ...], config: Path | None) -> None:
    """Run a command of ours again and again, kill it at random moments, and submit a job in each run."""
    draw = random.Random(8)
    for _ in range(KILLS):
        with site.program(*arguments, config=config) as process:
            submit_and_run(site)
            time.sleep(draw.uniform(0.5, 5.0))
            assert process.poll() is None, f"rightsizer {' '.join(arguments)} ended by itself"
            process.kill()
            process.wait()


@contextlib.contextmanager
def slurmdbd_away_from_ingest(site: FaultSite) -> Iterator[None]:
    """Kill slurmdbd and start it again under a watching ingest."""
    site.start_service()
    url = f"sqlite:///{site.sandbox.layout.rightsizer}/away.db"
    config = with_store(site, url, "away")
    with site.program("ingest", "--watch", "1", config=config) as watching:
        site.wait_for(lambda: has_decisions(url), "ingest does not begin", PATIENCE_S)
        known = len(held(url)[0])
        submit_and_run(site)
        site.signal_daemon(daemons.SLURMDBD, signal.SIGKILL)
        site.wait_for(lambda: site.daemon_pid(daemons.SLURMDBD) is None, "slurmdbd survives SIGKILL")
        yield
        site.bring_up(daemons.slurmdbd)
        site.wait_for(lambda: len(held(url)[0]) > known, "ingest does not go on", PATIENCE_S)
        assert watching.poll() is None, "ingest does not outlast an absence of slurmdbd"
    assert_whole(site, config, url)


def has_decisions(url: str) -> bool:
    """Whether a store holds any decision yet."""
    try:
        return bool(held(url)[0])
    except StoreError:  # not made yet
        return False


@contextlib.contextmanager
def damaged_journal(site: FaultSite) -> Iterator[None]:
    """Write garbage and half a line into the journal while the service appends and ingest reads."""
    site.start_service()
    url = f"sqlite:///{site.sandbox.layout.rightsizer}/garbage.db"
    config = with_store(site, url, "garbage")
    submit_and_run(site)
    for _ in range(2):
        with site.journal_file().open("ab") as journal:
            journal.write(GARBAGE)
        assert ingest(site, config) == 0, "garbage in the journal stops ingest"
    yield
    with site.journal_file().open("ab") as journal:
        journal.write(TORN)
    assert ingest(site, config) == 0, "half a line in the journal stops ingest"
    with site.journal_file().open("ab") as journal:
        journal.write(b"\n")
    assert_whole(site, config, url)


def recovering(disturb: Callable[[FaultSite], None]) -> Break:
    """Let jobs be killed for memory because we cut them, and disturb recovery: each comes back once, as asked."""

    @contextlib.contextmanager
    def broken(site: FaultSite) -> Iterator[None]:
        site.start_service()
        write_programs(site.sandbox.layout.bin, {"pretend-work": HUNGRY})
        shell = Shell(site.sandbox)
        argv = ("sbatch", "--parsable", "--output=/dev/null", str(JOB))
        jobs = [int(shell.run(*argv).partition(";")[0]) for _ in range(KILLED_FOR_MEMORY)]
        site.wait_for(lambda: all(has_failed(shell, job) for job in jobs), "jobs are not killed for memory")
        assert {site.tres(job) for job in jobs} == {site.cut}
        disturb(site)
        with site.program("recover", "--watch", "--apply") as watching:
            yield
            site.wait_for(
                lambda: all(is_back(shell, job) for job in jobs), "jobs are not requeued", PATIENCE_S
            )
            watching.terminate()
            assert watching.wait(PATIENCE_S) == 0
        # Until a job starts, 22.05 shows the resources of its previous run.
        site.wait_for(
            lambda: all(site.tres(job) == ASKED for job in jobs), "jobs are not back as asked", PATIENCE_S
        )
        what = sorted(entry.what for entry in recoveries(site) if entry.job_id in jobs)
        assert what == ["requeued"] * KILLED_FOR_MEMORY, f"the journal says {what}"

    return broken


def has_failed(shell: Shell, job: int) -> bool:
    """Whether a job was killed for memory."""
    shown = shell.run("scontrol", "show", "job", str(job))
    return "JobState=OUT_OF_MEMORY" in shown or "JobState=FAILED" in shown


def is_back(shell: Shell, job: int) -> bool:
    """Whether a job is pending or running for the second time, and is not held."""
    shown = shell.run("scontrol", "show", "job", str(job))
    waits = "JobState=PENDING" in shown and "Priority=0 " not in shown
    return " Restarts=1 " in shown and (waits or "JobState=RUNNING" in shown)


def recoveries(site: FaultSite) -> list[Entry]:
    """Return the last entry for each failed run in the journal of recoveries."""
    return list(Journal(Path(site.config.recovery.directory)).newest().values())


def kill_recover(site: FaultSite) -> None:
    """Kill recovery at random moments."""
    kill_at_random(site, ("recover", "--watch", "--apply"), None)


def kill_slurmctld_below_recover(site: FaultSite) -> None:
    """Kill slurmctld as soon as the first job is being brought back, and start it again."""
    known = {entry.run for entry in recoveries(site)}
    time.sleep(SAVED_S)
    with site.program("recover", "--watch", "--apply"):
        site.wait_for(
            lambda: any(entry.run not in known for entry in recoveries(site)), "recovery does not begin"
        )
        kill_slurmctld(site)


@contextlib.contextmanager
def advise_killed(site: FaultSite) -> Iterator[None]:
    """Kill an advisor that reorders the queue, at random moments: its changes are undone, and no job is lost."""
    site.start_service()
    shell = Shell(site.sandbox)
    queued = fill(shell, (FILLS,))
    advisor = msgspec.structs.replace(site.config.advisor, control_share=0.0, period_s=1)
    # The model cannot tell these jobs apart; their time limits give an order.
    models = msgspec.structs.replace(site.config.models, directory=str(site.hook / "no models"))
    config = site.hook / "advise.toml"
    config.write_text(
        render_config(msgspec.structs.replace(site.config, advisor=advisor, models=models)), encoding="utf-8"
    )
    with site.program("advise", "--watch", "--apply", config=config) as first:
        site.wait_for(lambda: any(factors(shell)), "the advisor changes nothing", PATIENCE_S)
        first.kill()
        first.wait()
    kill_at_random(site, ("advise", "--watch", "--apply"), config)
    yield
    with site.program("advise", "--undo", config=config) as undo:
        assert undo.wait(PATIENCE_S) == 0, "what the advisor left is not undone"
    assert not any(factors(shell)), "SiteFactors of the advisor's stay"
    left = set(map(int, shell.run("squeue", "--noheader", "--format=%A").split()))
    assert queued <= left, f"jobs {queued - left} are lost"


def factors(shell: Shell) -> list[int]:
    """Return the SiteFactors of all pending jobs."""
    return [int(word) for word in shell.run("sprio", "--noheader", "--format=%S").split()]
