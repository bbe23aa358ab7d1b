"""Private PostgreSQL and MariaDB servers for tests and benchmarks, each in its own folder, on a Unix socket only.

They are what Debian installs, with the default durability. A server can be stopped, killed and started again; its
contents stay until its context ends.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

PATIENCE_S = 180.0
POSTGRESQL, MARIADB = "postgresql", "mariadb"


@dataclass
class Server:
    """A private database server. `url` is that of one of its databases, `admin` is the database that always exists."""

    kind: str
    folder: Path
    argv: tuple[str, ...]
    admin: str
    user: str | None
    process: subprocess.Popen[bytes] | None = None
    _made: int = field(default=0)

    def url(self, database: str) -> str:
        if self.kind == POSTGRESQL:
            return f"postgresql+psycopg://rightsizer@/{database}?host={self.folder}"
        return f"mariadb+pymysql://root@localhost/{database}?unix_socket={self.folder}/socket"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.argv,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd="/",
                user=self.user,
                group=_group(self.user),
                extra_groups=_no_more(self.user),
            )
        until = time.monotonic() + PATIENCE_S
        while not self._answers():
            said = (self.folder / "log").read_text(errors="replace")[-2000:]
            assert self.process.poll() is None, said
            assert time.monotonic() < until, said
            time.sleep(0.05)

    def _answers(self) -> bool:
        engine = create_engine(self.url(self.admin))
        try:
            with engine.connect():
                return True
        except SQLAlchemyError:
            return False
        finally:
            engine.dispose()

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop the server in the middle of its work; its files are consistent when it starts again."""
        if self.process is None:
            return
        if self.kind == MARIADB and number == signal.SIGINT:
            number = signal.SIGTERM
        self.process.send_signal(number)
        self.process.wait(PATIENCE_S)
        self.process = None

    def new_database(self) -> str:
        """Create an empty database and return its URL."""
        self._made += 1
        name = f"store_{self._made}"
        self._administer(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database, closing connections to it."""
        name = make_url(url).database
        self._administer(f"DROP DATABASE {name}" + (" WITH (FORCE)" if self.kind == POSTGRESQL else ""))

    def _administer(self, statement: str) -> None:
        engine = create_engine(self.url(self.admin), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                connection.execute(text(statement))
        finally:
            engine.dispose()


@contextmanager
def postgresql(*options: str) -> Iterator[Server]:
    """Run a PostgreSQL; `options` are settings such as `shared_buffers=256MB`. `missing` says where it can run."""
    programs = _postgresql_programs()
    assert programs is not None
    user = next(name for name in ("postgres", "nobody") if _exists(name)) if os.geteuid() == 0 else None
    with _folder(user) as folder:
        data = folder / "data"
        made = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--username=rightsizer", "--no-sync"]
        _install([f"{programs}/initdb", f"--pgdata={data}", *made], user)
        settings = ["listen_addresses=", f"unix_socket_directories={folder}", *options]
        argv = (f"{programs}/postgres", "-D", str(data), *(word for one in settings for word in ("-c", one)))
        yield from _run(Server(POSTGRESQL, folder, argv, "postgres", user))


@contextmanager
def mariadb(*options: str) -> Iterator[Server]:
    """Run a MariaDB; `options` are those of mariadbd. `missing` says where it can run."""
    with _folder(None) as folder:
        data = folder / "data"
        own = ["--user=root"] if os.geteuid() == 0 else []
        made = [
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            "--force",
            f"--tmpdir={folder}",  # a MariaDB that starts deletes other servers' temporary tables in a shared folder
        ]
        _install(["mariadb-install-db", "--no-defaults", f"--datadir={data}", *own, *made], None)
        program = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        assert program is not None
        argv = (
            program,
            "--no-defaults",
            f"--datadir={data}",
            *own,
            f"--socket={folder}/socket",
            f"--pid-file={folder}/pid",
            f"--tmpdir={folder}",
            "--skip-networking",
            "--skip-log-bin",
            "--performance-schema=OFF",
            "--character-set-server=utf8mb4",  # as Debian configures it
            "--collation-server=utf8mb4_general_ci",
            *options,
        )
        yield from _run(Server(MARIADB, folder, argv, "mysql", None))


def missing(kind: str) -> str | None:
    """Return why a server of this kind cannot run here; None if it can."""
    if kind == POSTGRESQL:
        return None if _postgresql_programs() else "PostgreSQL (Debian's package postgresql) is not installed"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    found = shutil.which("mariadbd", path=path) and shutil.which("mariadb-install-db", path=path)
    return None if found else "MariaDB (Debian's package mariadb-server) is not installed"


def _postgresql_programs() -> Path | None:
    folders = [file.parent for file in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(folders, key=lambda folder: int(folder.parent.name), default=None)


def _exists(user: str) -> bool:
    return any(entry.pw_name == user for entry in pwd.getpwall())


def _group(user: str | None) -> int | None:
    return None if user is None else pwd.getpwnam(user).pw_gid


def _no_more(user: str | None) -> list[int] | None:
    return None if user is None else []


@contextmanager
def _folder(user: str | None) -> Iterator[Path]:
    # Not pytest's folder: a socket's path may have 107 characters, and another user must be able to enter the folder.
    with tempfile.TemporaryDirectory(prefix="rightsizer-", dir="/tmp") as name:
        folder = Path(name)
        if user is not None:
            shutil.chown(folder, user)
        yield folder


def _install(argv: Sequence[str], user: str | None) -> None:
    answer = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        user=user,
        group=_group(user),
        extra_groups=_no_more(user),
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def _run(server: Server) -> Iterator[Server]:
    try:
        server.start()
        yield server
    finally:
        server.stop(signal.SIGKILL if server.kind == MARIADB else signal.SIGQUIT)
