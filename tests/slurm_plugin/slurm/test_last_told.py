"""An answer of slurmdbd is asked for again once it is old, or if it could not be had."""

from __future__ import annotations

import time

import pytest

from accounting.errors import SlurmError
from slurm_plugin.slurm import last_told
from slurm_plugin.slurm.last_told import LastTold


def test_slurmdbd_is_asked_again_once_its_answer_is_old_or_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s, asked, away = [0.0], list[float](), [True]

    def ask() -> int:
        asked.append(now_s[0])
        if away[0]:
            raise SlurmError("slurmdbd is away")
        return len(asked)

    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    told = LastTold("what is told", 0)
    assert [told.now(ask), told.now(ask)] == [0, 0]
    away[0] = False
    assert [told.now(ask), told.now(ask)] == [3, 3]
    now_s[0] = last_told.LASTS_S
    assert told.now(ask) == 4
    away[0], now_s[0] = True, 2 * last_told.LASTS_S
    assert told.now(ask) == 4
    assert [record.getMessage() for record in caplog.records] == [
        "what is told is not known anew: slurmdbd is away"
    ] * 2
