"""The examples of docs/scheduling.md run, and give reasons."""

import textwrap
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "scheduling.md"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PAGE.read_text(encoding="utf-8").split("## An example\n")[1].split("\n`planned")[0]
    exec(textwrap.dedent(lines), {})  # noqa: S102
    assert "of 24 candidates this one blocks least" in capsys.readouterr().out


def test_the_example_of_sharing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PAGE.read_text(encoding="utf-8").split("# Who shares a GPU with whom\n")[1].split("\n    ", 1)[1]
    exec(textwrap.dedent("    " + lines.split("\n`Terms")[0]), {})  # noqa: S102
    assert "job 3 (lstm) shares GPU 0 with job 1 (bert)" in capsys.readouterr().out
