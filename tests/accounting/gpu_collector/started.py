"""The collector, started as a command."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 180.0


def started(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    (folder / "rightsizer.toml").write_text(f'[accounting]\ngpu_spool = "{folder}/spool"\n')
    command = [
        sys.executable,
        "-m",
        "slurm_plugin.cli",
        "collect",
        "--config",
        str(folder / "rightsizer.toml"),
    ]
    with (folder / "said").open("wb") as said:
        return subprocess.Popen([*command, *arguments], env=environment, stderr=said)


def said_by(folder: Path) -> str:
    return (folder / "said").read_text()


def wait_for(what: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
