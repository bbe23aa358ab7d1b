"""How the queue is reached: what is tried first runs nobody else's code."""

from pathlib import Path

import pytest

from slurm_plugin.slurm.backends import why_no_pyslurm


def test_a_pyslurm_that_lies_where_one_stands_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = why_no_pyslurm()
    (tmp_path / "pyslurm.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert why_no_pyslurm() == before
    assert not (tmp_path / "ran").exists()
