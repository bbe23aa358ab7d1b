"""Fixtures of several packages' tests: a trained model, and a site with its own configuration."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings

from accounting.records import Attempt
from models.training import training
from models.versions import registry
from slurm_plugin.config.file import parse_config, render_config
from slurm_plugin.config.settings import Config
from tests.builders import past

# A slow machine is not a failure, and the same commit always tests the same examples.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")

RECENT_JOBS = 50
PATIENCE_S = 180.0
# A promoted model must be in use within a second; RIGHTSIZER_IN_USE_S=1 requires that on an otherwise idle machine.
IN_USE_S = float(os.environ.get("RIGHTSIZER_IN_USE_S", PATIENCE_S))


@pytest.fixture(scope="session", autouse=True)
def _pymysql_closes_what_finds_no_server() -> Iterator[None]:
    """Close PyMySQL's socket after a failed connect.

    From 1.1.2 on, PyMySQL leaves the socket open in a reference cycle, whose collection warns during any later test.
    """
    from pymysql import connections

    plain = connections.Connection.connect

    def connect(self: object, sock: socket.socket | None = None) -> None:
        try:
            plain(self, sock)
        except BaseException as error:
            for frame, _ in traceback.walk_tb(error.__traceback__):
                left = frame.f_locals.get("sock")
                if isinstance(left, socket.socket):
                    left.close()
            raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections.Connection, "connect", connect)
        yield


@dataclass(frozen=True)
class TrainedModel:
    """An artefact in its own registry, and what it was trained from."""

    directory: Path
    version: str
    attempts: list[Attempt]
    trained: training.Trained

    @property
    def folder(self) -> Path:
        return self.directory / self.version


@pytest.fixture(scope="session")
def trained_model(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """Return a model shared by all tests: copy it before changing anything."""
    directory = tmp_path_factory.mktemp("models")
    attempts = past()
    trained = training.train(attempts, RECENT_JOBS)
    version = training.save(trained, directory, attempts[-1].row.end_s)
    registry.promote(directory, version)
    return TrainedModel(directory, version, attempts, trained)


@dataclass
class Site:
    """A configuration whose paths all lie in one folder, and the services started with it."""

    folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def config_file(self) -> Path:
        return self.folder / "rightsizer.toml"

    @property
    def config(self) -> Config:
        return parse_config(self.config_file.read_text(encoding="utf-8"))

    @property
    def socket(self) -> Path:
        return Path(self.config.service.socket)

    @property
    def models(self) -> Path:
        return Path(self.config.models.directory)

    def configure(self, **sections: object) -> Config:
        """Change values: `configure(mode="enforce", accounting={"sacct": …})`."""
        document = msgspec.to_builtins(self.config)
        for name, change in sections.items():
            document[name] = {**document[name], **change} if isinstance(change, dict) else change
        config = msgspec.convert(document, Config)
        self.config_file.write_text(render_config(config), encoding="utf-8")
        return config

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "slurm_plugin.cli", *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command of ours in its own process."""
        environment = {**os.environ, "RIGHTSIZER_CONFIG": str(self.config_file)}
        process = subprocess.Popen(
            self.command(*arguments), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.running.append(process)
        return process

    def serve(self) -> subprocess.Popen[bytes]:
        """Start the service and wait until it answers."""
        process = self.start("serve")
        until = time.monotonic() + PATIENCE_S
        while not self._accepts():
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < until, "the service does not come up"
            time.sleep(0.02)
        return process

    def _accepts(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            return client.connect_ex(str(self.socket)) == 0

    def stop_all(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


def skip_unless_read_by(user_id: int) -> None:
    """Skip if another user cannot read this checkout; setpriv cannot check this, as it looks with root's rights."""
    if subprocess.run(["test", "-r", __file__], user=user_id, check=False).returncode:
        pytest.skip("another user cannot read this checkout")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Yield a site; `rightsizer` run in this process finds its configuration through the environment."""
    # Not tmp_path: a socket's path may have only 107 characters.
    with tempfile.TemporaryDirectory(prefix="rightsizer-") as name:
        site = Site(Path(name))
        site.config_file.write_text(render_config(Config()), encoding="utf-8")
        site.configure(
            # Only with a sandbox does a test's service have a Slurm to ask.
            service={"socket": f"{name}/socket", "journal": f"{name}/journal", "limits_needed": False},
            hook={"kill_switch": f"{name}/disabled"},
            store={"url": f"sqlite:///{name}/store.db"},
            accounting={"gpu_spool": f"{name}/gpu-spool", "sacct": f"{name}/no-sacct"},
            models={"directory": f"{name}/models"},
            advisor={"directory": f"{name}/advisor"},
            recovery={"directory": f"{name}/recovery"},
            brakes={"directory": f"{name}/brakes"},
        )
        monkeypatch.setenv("RIGHTSIZER_CONFIG", str(site.config_file))
        try:
            yield site
        finally:
            site.stop_all()
