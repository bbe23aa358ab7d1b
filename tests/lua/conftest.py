"""Plays slurmctld (a real Lua process with the real hook) and the service (a real Unix socket)."""

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.service.protocol import in_utf8
from tests.conftest import PATIENCE_S

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
WIRE = json.loads((HERE.parent / "contract" / "wire_v1.json").read_text(encoding="utf-8"))
INTERPRETERS = ("lua5.1", "lua5.2", "lua5.3", "lua5.4")

Fields = dict[str, Any]
Answer = Callable[[socket.socket, bytes], None]

ORDINARY: Fields = {
    "num_tasks": 2,
    "cpus_per_task": 8,
    "min_cpus": 16,
    "pn_min_cpus": 8,
    "min_mem_per_node": 8000,
}


def full_fields(changed: Fields) -> Fields:
    """Return what Slurm would show of an sbatch without options, with these changes; null stands for nil."""
    merged = WIRE["unset_job_desc"] | changed
    return {name: value for name, value in merged.items() if value is not None}


@pytest.fixture(params=INTERPRETERS)
def lua(request: pytest.FixtureRequest) -> str:
    path = shutil.which(request.param)
    if path is None:
        pytest.skip(f"{request.param} is not installed")
    check = "require('socket.unix') require('cjson') require('dkjson')"
    if subprocess.run([path, "-e", check], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{request.param} lacks lua-socket, lua-cjson or lua-dkjson")
    return str(path)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return an empty folder with a short path (a socket's has 107 bytes at most) that any user may read."""
    with tempfile.TemporaryDirectory(prefix="hook") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def install(folder: Path, site: str | None = None, deadline_ms: int = 1000) -> Path:
    """Copy the hook into `folder` as an admin would, with a site file that names the socket there."""
    shutil.copy(REPOSITORY / "lua" / "job_submit.lua", folder)
    shutil.copytree(REPOSITORY / "lua" / "rightsizer", folder / "rightsizer")
    settings = f'socket = "{folder}/s", deadline_ms = {deadline_ms}, kill_switch = "{folder}/off"'
    (folder / "rightsizer_site.lua").write_text(site or f"return {{ {settings} }}\n")
    return folder / "job_submit.lua"


class Slurmctld:
    """The driver: a Lua process that has loaded job_submit.lua and submits one job after another."""

    def __init__(self, lua: str, script: Path, hidden: str = "", user: int | None = None) -> None:
        command = [lua, str(HERE / "driver.lua"), str(HERE), str(script), hidden]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=user, cwd="/"
        )
        self.start: Fields = self._answer()

    def submit(self, changed: Fields) -> Fields:
        """Submit a job with these fields; return what the hook returned, wrote, logged and showed."""
        assert self._process.stdin is not None
        print(json.dumps(full_fields(changed)), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Fields:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the Lua process ended"
        answer: Fields = json.loads(line)
        return answer

    def __enter__(self) -> "Slurmctld":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE_S)


@dataclass
class Service:
    """A socket that treats every request as `answer` does; `requests` are the lines that came in.

    It hangs up after each request unless it keeps its connections, as the real service does.
    """

    path: Path
    answer: Answer
    keeps: bool = False
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0

    def __enter__(self) -> "Service":
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(8)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            connection.settimeout(5)
            with connection, contextlib.suppress(OSError):
                while line := self._read(connection):
                    self.answer(connection, line)
                    if not self.keeps:
                        break

    def _read(self, connection: socket.socket) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            chunk = connection.recv(65536)
            if not chunk:
                return b""
            line += chunk
        # Read as the real service reads.
        self.requests.append(in_utf8(line))
        return self.requests[-1]


def reply_with(template: str, pad_bytes: int = 0, *, newline: bool = True) -> Answer:
    """Return an answer that sends a golden reply, its placeholders filled in."""

    def answer(connection: socket.socket, line: bytes) -> None:
        text = template.replace("{id}", json.loads(line)["id"]).replace("{pad}", "x" * pad_bytes)
        connection.sendall(text.encode() + (b"\n" if newline else b""))

    return answer


def unchanged(result: Fields, reason: str | None = None, writes: Fields | None = None) -> bool:
    """Whether the job passed unchanged except for `writes` of a token, with one log line that names the reason."""
    assert result["raised"] is False
    assert set(writes or {}) <= {"admin_comment"}
    assert (result["rc"], result["writes"], result["shown"]) == (0, writes or {}, [])
    assert len(result["lines"]) == 1
    assert reason is None or result["lines"][0].endswith(f": {reason}"), result["lines"]
    return True
