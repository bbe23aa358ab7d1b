"""A slurmrestd next to a sandbox, as portals and workflow engines use it to submit, and requests to it."""

import http.client
import json
import os
import pwd
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox.cluster import Sandbox
from tests.cluster.conftest import PATIENCE_S, Shell

# Up to this version (Slurm 22.05) the environment was an object, and numbers were plain.
LAST_PLAIN = 38
_SUBMITS = re.compile(r"/slurm/v0\.0\.(\d+)/job/submit")


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(str(self.path))


class Rest:
    """The newest API of a slurmrestd that runs as the user whose jobs are submitted."""

    def __init__(self, path: Path, sandbox: Sandbox) -> None:
        self.path = path
        self.environment = {
            "PATH": sandbox.environment()["PATH"],
            "SLURM_CONF": sandbox.environment()["SLURM_CONF"],
        }
        described = self.call("GET", "/openapi/v3") or self.call("GET", "/openapi.json")
        self.version = max(int(found[1]) for found in map(_SUBMITS.search, described["paths"]) if found)

    def submit(self, script: str, **fields: Any) -> int:
        """Submit a job with these fields, written as the release expects, and return its id."""
        whose = self.environment
        plain = self.version <= LAST_PLAIN
        job = {
            "environment": whose if plain else [f"{name}={value}" for name, value in whose.items()],
            "current_working_directory": "/",
            "standard_output": "/dev/null",
            "standard_error": "/dev/null",
            **{name: value if plain else self._newer(name, value) for name, value in fields.items()},
        }
        answer = self.call("POST", f"/slurm/v0.0.{self.version}/job/submit", {"job": job, "script": script})
        assert not answer.get("errors"), answer
        return int(answer["job_id"])

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Return the answer to a request; nothing if slurmrestd does not know the path."""
        connection = _Connection(self.path)
        try:
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            known: dict[str, Any] = {} if answer.status == http.client.NOT_FOUND else json.loads(text)
            return known
        finally:
            connection.close()

    @staticmethod
    def _newer(name: str, value: Any) -> Any:
        """Write a number as v0.0.39 and later do: they mark numbers that are infinite or not set."""
        is_optional = name.startswith("memory_per") or name == "time_limit"
        return {"set": True, "number": value} if is_optional else value


@contextmanager
def rest_as(shell: Shell, folder: Path) -> Iterator[Rest]:
    """Run a slurmrestd as a shell's user; skip the test if there is none."""
    assert shell.user, "slurmrestd does not run as root"
    # If this release has none, the PATH may lead to one of another release.
    found, release = shell.run("sh", "-c", "command -v slurmrestd && slurmrestd -V || echo; echo").split(
        "\n"
    )[:2]
    if release != shell.sandbox.manifest.release:
        pytest.skip("this Slurm has no slurmrestd (apt-get install slurmrestd)")
    user = pwd.getpwnam(shell.user)
    sockets = folder / "rest"
    sockets.mkdir()
    os.chown(sockets, user.pw_uid, user.pw_gid)
    path = sockets / "socket"
    with (folder / "slurmrestd.log").open("wb") as log:
        process = subprocess.Popen(
            [found, "-a", "rest_auth/local", f"unix:{path}"],
            env={**os.environ, **shell.sandbox.environment()},
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            stdout=log,
            stderr=log,
            cwd="/",
        )
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert process.poll() is None, (folder / "slurmrestd.log").read_text(encoding="utf-8")
            assert time.monotonic() < until_s
            time.sleep(0.1)
        yield Rest(path, shell.sandbox)
    finally:
        process.terminate()
        process.wait()
