"""Runs the command line in the tests' own process."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_plugin.cli import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def short_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder like `tmp_path` whose path is short enough for a sandbox's sockets."""
    return tmp_path_factory.mktemp("s")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the whole command line in this process; return its exit code and both streams."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["rightsizer", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        code = end.value.code
        return Ran(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run


def assert_one_line(ran: Ran, code: int, said: str) -> None:
    assert ran.code == code
    assert ran.out == ""
    assert re.search(said, ran.err)
    assert ran.err.startswith("rightsizer: ")
    assert ran.err.count("\n") == 1


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: these tests kill processes, not the machine."""
    monkeypatch.setattr("os.fsync", lambda _: None)
