"""Which decisions behind waiting jobs are read from the service's journals, and how often."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accounting.decisions.decision import encode_decision
from slurm_plugin.advisor.decided import Decided
from slurm_plugin.config.settings import Config
from slurm_plugin.service.decide import decide
from tests.builders import SCRIPT, submission


def test_days_before_the_oldest_job_are_skipped_and_the_others_read_once(tmp_path: Path) -> None:
    made = decide(submission(), None, Config(), "old", 0.0).decision
    old, new = (tmp_path / f"decisions-{day}.jsonl" for day in ("20200101", "20260101"))
    old.write_bytes(encode_decision(made))
    new.write_bytes(encode_decision(msgspec.structs.replace(made, id="new")))
    decided = Decided(tmp_path)
    day_s = 1767225600.0  # 2026-01-01
    later_s = day_s + 5 * 86_400.0
    assert set(decided.of({"old": day_s, "new": later_s}, later_s)) == {"new"}
    new.write_bytes(
        encode_decision(msgspec.structs.replace(made, id="won"))
    )  # what was read is not read again
    assert set(decided.of({"new": day_s, "won": day_s}, later_s)) == {"new"}
    assert set(decided.of({}, later_s)) == set()


def test_a_job_that_was_submitted_at_midnight_was_decided_the_day_before(tmp_path: Path) -> None:
    day_s = 1767225600.0  # 2026-01-01
    made = decide(submission(), None, Config(), "old", day_s - 0.1).decision
    (tmp_path / "decisions-20251231.jsonl").write_bytes(encode_decision(made))
    assert set(Decided(tmp_path).of({"old": day_s}, day_s + 60)) == {"old"}


def test_a_journal_that_cannot_be_read_is_logged_once_until_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "decisions-20260101.jsonl").touch()
    decided, opened = Decided(tmp_path), Path.open

    def hidden(*_asked: Any, **_named: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    for opens in (hidden, hidden, opened, hidden):
        monkeypatch.setattr(Path, "open", opens)
        assert decided.of({"one": 1767225600.0}, 1767225600.0) == {}
    assert caplog.text.count("what was decided before is not known") == 2


def test_a_long_journal_is_never_held_in_memory_as_a_whole(tmp_path: Path) -> None:
    made = decide(submission(script=SCRIPT), None, Config(), "one", 0.0).decision
    file = tmp_path / "decisions-20260101.jsonl"
    line = encode_decision(made)
    lines = (line.replace(b'"one"', b'"%d"' % number) for number in range(2**23 // len(line)))
    file.write_bytes(b"".join(lines))
    tracemalloc.start()
    try:
        assert Decided(tmp_path).of({"other": 1767225600.0}, 1767225600.0) == {}
        assert tracemalloc.get_traced_memory()[1] < file.stat().st_size
    finally:
        tracemalloc.stop()


def test_a_decision_made_during_a_cycle_is_known_in_the_next_one(tmp_path: Path) -> None:
    day_s = 1767225600.0  # 2026-01-01
    made = decide(submission(), None, Config(), "new", day_s + 50).decision
    (tmp_path / "decisions-20260101.jsonl").write_bytes(encode_decision(made))
    decided = Decided(tmp_path)
    decided.of({}, day_s)
    assert set(decided.of({"new": day_s + 51}, day_s + 60)) == {"new"}
    assert set(decided.of({}, day_s + 120)) == set()
