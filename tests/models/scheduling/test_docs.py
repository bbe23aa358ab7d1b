"""The example of docs/scheduling.md runs, and gives a reason."""

import textwrap
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "scheduling.md"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PAGE.read_text(encoding="utf-8").split("## An example\n")[1].split("\n`planned")[0]
    exec(textwrap.dedent(lines), {})  # noqa: S102
    assert "of 24 candidates this one blocks least" in capsys.readouterr().out
