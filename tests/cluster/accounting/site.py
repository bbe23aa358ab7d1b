"""A sandbox that produces accounting: submit, act as its administrator, query its database, ingest."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
from sqlalchemy import Table, select

from accounting.records import Attempt
from accounting.store.database import open_store
from accounting.store.records import read_attempts
from slurm_plugin.sandbox import cluster, daemons, teardown
from slurm_plugin.sandbox.cluster import Options, Sandbox
from slurm_plugin.sandbox.environment import FOREIGN_PREFIXES
from slurm_plugin.sandbox.release import parse_version
from slurm_plugin.sandbox.slurm_conf import DATABASE_NAME, DATABASE_USER, LOOPBACK
from tests.cluster.accounting import worker
from tests.cluster.accounting.facts import Fact, read_facts

OTHER_USER = "nobody"
NODES = 3
# A deadline costs nothing if it is not reached: a machine may be slow, and stand still for a while.
PATIENCE_S = 300.0

Word = str | bytes


@dataclass
class Site:
    """One release's sandbox, and the ids of the jobs submitted to it, by the names that the tests give them."""

    sandbox: Sandbox
    folder: Path
    jobs: dict[str, int] = field(default_factory=dict)

    @property
    def version(self) -> tuple[int, int]:
        """The release of Slurm, as (24, 11)."""
        return parse_version(self.sandbox.manifest.release)

    @functools.cached_property
    def stranger(self) -> str | None:
        """Return another user that can run this release's commands (root only); None: the tests' own user."""
        if os.geteuid() != 0 or self.answer("sbatch", "--version", user=OTHER_USER).returncode != 0:
            return None
        return OTHER_USER

    @property
    def facts_folder(self) -> Path:
        """Return where the jobs write what they did."""
        return self.folder / "facts"

    def worker(self, *parts: str) -> str:
        """Return the shell command of a worker that does these parts."""
        program = f"/usr/bin/env -u PYTHONPATH {sys.executable} -I -S {self.folder}/worker.py"
        return " ".join((program, str(self.facts_folder), *parts))

    def facts(self, name: str, attempt: int | None = None) -> list[Fact]:
        """Return what the workers of a job wrote."""
        return read_facts(self.facts_folder, self.jobs[name], attempt)

    def at_work(self, name: str) -> bool:
        """Whether a worker of a job still runs, or its slurmstepd, whatever slurmctld says of the job.

        slurmstepd ends last: without cgroups, up to three seconds later was seen. Until then its node calls another run
        of the job a duplicate, and is drained. Its socket shows that it still runs.
        """
        state, job = self.sandbox.layout.state, self.jobs[name]
        if any(any(state.glob(f"{node}/{node}_{job}.*")) for node in self.sandbox.manifest.nodes):
            return True
        pids = (file.stem.rpartition("-")[2] for file in self.facts_folder.glob(f"{self.jobs[name]}-*.json"))
        return any(Path("/proc", pid).exists() for pid in pids)

    def run(self, *argv: Word, user: str | None = None, more: Mapping[str, str] | None = None) -> str:
        """Run a command in the sandbox and return its stdout; AssertionError with its output if it fails."""
        answer = self.answer(*argv, user=user, more=more)
        assert answer.returncode == 0, f"{argv!r}: {answer.stdout!r}{answer.stderr!r}"
        return answer.stdout.decode(errors="surrogateescape")

    def answer(
        self, *argv: Word, user: str | None = None, more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command in the sandbox, whatever it returns."""
        return subprocess.run(
            [*as_user(user), *argv],
            env=self.environment(more),
            capture_output=True,
            check=False,
            cwd="/",
            timeout=PATIENCE_S,
        )

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return a user's environment in the sandbox, without variables that another Slurm left in ours."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)}
        return {**kept, **self.sandbox.environment(), **(more or {})}

    def submit(self, name: str, *options: Word, script: str = "true", user: str | None = None) -> int:
        """Submit a batch job and note its id under `name`, which is its job name too unless an option sets another."""
        output = "/dev/null" if user else f"{self.folder}/out-{name}-%j"
        argv = ["sbatch", "--parsable", f"--output={output}", f"--job-name={name}", *options]
        answer = self.run(*argv, f"--wrap={script}", user=user)
        self.jobs[name] = int(answer.partition(";")[0])
        return self.jobs[name]

    def states(self) -> dict[str, str]:
        """Return the states that slurmctld shows for the jobs it still handles, by id (`12_3` in an array)."""
        lines = self.run("squeue", "--noheader", "--array", "--format=%i %T").splitlines()
        return dict(line.split(" ", 1) for line in lines)

    def database(self, query: str) -> list[dict[str, Any]]:
        """Run a statement on slurmdbd's own database; return its rows. `{jobs}` and `{steps}` stand for tables."""
        layout, ports = self.sandbox.layout, self.sandbox.manifest.ports
        connection = pymysql.connect(
            host=LOOPBACK,
            port=ports.mariadb,
            user=DATABASE_USER,
            password=layout.database_password.read_text(encoding="ascii").strip(),
            database=DATABASE_NAME,
            charset="utf8mb4",
            cursorclass=pymysql.cursors.DictCursor,
        )
        with contextlib.closing(connection), connection.cursor() as cursor:
            for table in ("job", "step"):
                query = query.replace(f"{{{table}s}}", f"`{layout.cluster}_{table}_table`")
            cursor.execute(query)
            connection.commit()
            return list(cursor.fetchall())

    @functools.cached_property
    def keeps_bytes(self) -> bool:
        """Whether slurmdbd gave its database the bytes of 🦊 as latin1, as with MySQL's client library."""
        return any("ðŸ" in row["job_name"] for row in self.database("SELECT job_name FROM {jobs}"))

    def as_printed(self, stored: str) -> str:
        """Return a text of the database as sacct prints it and ingest stores it."""
        if not self.keeps_bytes:
            return stored
        characters = (one.encode("cp1252", "ignore") or one.encode("latin1") for one in stored)
        return b"".join(characters).decode("utf-8", "backslashreplace")

    def ingest(self, store: str = "", *options: str, more: Mapping[str, str] | None = None) -> Ingested:
        """Run `rightsizer ingest` into the sandbox's own store, or into another one with that name."""
        argv = ("rightsizer", "ingest", "--format", "json", *options)
        answer = self.answer(
            *argv, more={"RIGHTSIZER_CONFIG": str(self.configuration(store)), **(more or {})}
        )
        said = answer.stderr.decode(errors="replace")
        rows = json.loads(answer.stdout) if answer.returncode == 0 else []
        return Ingested(answer.returncode, said, {row["what"]: row for row in rows})

    def configuration(self, store: str = "", **changes: str | int) -> Path:
        """Return a configuration file for a store with that name; `changes` apply to its [accounting].

        It reads one day back, which is one window.
        """
        own = self.sandbox.layout.rightsizer_toml
        if not store:
            return own
        file = self.folder / f"{store}.toml"
        if not file.exists() or changes:
            changes = {"first_days": 1, **changes}
            text = own.read_text(encoding="utf-8").replace(self.url(""), self.url(store))
            lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in changes.items())
            kept = [line for line in text.splitlines() if line.partition(" ")[0] not in changes]
            file.write_text(
                "\n".join(kept).replace("[accounting]\n", f"[accounting]\n{lines}") + "\n", encoding="utf-8"
            )
        return file

    def url(self, store: str) -> str:
        """Return the URL of the sandbox's own store, or of another one."""
        own = f"sqlite:///{self.sandbox.layout.rightsizer}/store.db"
        return f"sqlite:///{self.folder}/{store}.db" if store else own

    def attempts(self, store: str = "") -> list[Attempt]:
        """Return all attempts in a store."""
        engine = open_store(self.url(store))
        try:
            return read_attempts(engine)
        finally:
            engine.dispose()

    def rows(self, table: Table, store: str = "") -> list[dict[str, Any]]:
        """Return all rows of one of a store's tables."""
        engine = open_store(self.url(store))
        try:
            with engine.connect() as connection:
                return [dict(row) for row in connection.execute(select(table)).mappings()]
        finally:
            engine.dispose()

    def end_slurmdbd(self) -> None:
        """End slurmdbd."""
        teardown.end_daemon(self.sandbox.layout, "slurmdbd")

    def start_slurmdbd(self) -> None:
        """Start slurmdbd again and wait until it answers."""
        daemon = daemons.slurmdbd(self.sandbox.cluster)
        daemons.wait_ready(daemon, daemons.launch(self.sandbox.cluster, daemon))


@dataclass(frozen=True)
class Ingested:
    """The result of one run of `rightsizer ingest`: its exit status, its output, its table by the first column."""

    status: int
    said: str
    table: dict[str, dict[str, Any]]

    @property
    def found_new(self) -> int:
        """Return how many rows of any kind it added or changed."""
        return sum(row["new"] + row["changed"] for row in self.table.values())


def as_user(user: str | None) -> Sequence[str]:
    """Return the words in front of a command that make another user run it."""
    if user is None:
        return ()
    entry = pwd.getpwnam(user)
    return ("setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups")


@contextlib.contextmanager
def started_site(folder: Path, prefix: Path | None) -> Iterator[Site]:
    """Start a sandbox of a release below `folder`, which every user may enter; end it afterwards."""
    directory = folder / "sandbox"
    options = Options(directory=directory, nodes=NODES, slurm_prefix=prefix, hook=False, serve=False)
    site = Site(cluster.start(options), folder)
    try:
        site.facts_folder.mkdir()
        site.facts_folder.chmod(0o777)
        shutil.copy(worker.__file__, folder / "worker.py")
        yield site
    finally:
        cluster.stop(directory)
