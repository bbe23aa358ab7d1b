"""The audit asks Slurm as ingest does: window by window, in shorter ones if an answer is late, each job once."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine

from accounting.audit.jobs import compare_jobs
from accounting.decisions.token import format_token
from accounting.errors import LateAnswerError
from accounting.ingest.ingesting import fetched_answer, ingest
from accounting.ingest.run import IngestSettings
from accounting.slurm.sacct_records import Metering
from accounting.slurm.windows import DAY_S, HOUR_S, Fetched
from accounting.store.database import writing
from accounting.store.records import write_decisions
from tests.builders import T0, SacctRow, answer_of, decision, job_line


def test_each_attempt_is_compared_once_whatever_the_windows(store: Engine) -> None:
    since_s = T0 - T0 % DAY_S
    # One attempt ends exactly at the edge of a window, and two in the middle of one.
    ends_s = [since_s + HOUR_S // 4, since_s + 2 * HOUR_S, since_s + 2 * HOUR_S + 1]
    begun_s = since_s - 10
    lines = {end_s: job_line(number, begun_s, end_s - begun_s) for number, end_s in enumerate(ends_s, 1)}
    asked: list[int] = []

    def source(begin_s: int, end_s: int) -> Fetched:
        asked.append(end_s - begin_s)
        if end_s - begin_s > HOUR_S // 4:
            raise LateAnswerError("too much")
        answer = answer_of(line for ended_s, line in lines.items() if ended_s >= begin_s)
        return fetched_answer(answer, end_s, Metering())

    with store.connect() as connection:
        compared = compare_jobs(connection, source, since_s, since_s + DAY_S)
    assert (compared.attempts, compared.not_ingested) == (3, 3)
    assert max(asked) > HOUR_S // 4 >= asked[-1]


def test_a_window_of_many_attempts_is_compared_part_by_part(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accounting.audit.jobs.ATTEMPTS_AT_ONCE", 2)
    kept = [decision(id=f"{number:016x}") for number in range(1, 6)]
    lines = [job_line(number, T0, 100, AdminComment=format_token(one)) for number, one in enumerate(kept, 1)]
    settings = IngestSettings(sacct="", overlap_s=0, first_days=1, gpu_spool=Path(), journal=Path())
    ingest(store, settings, T0 + HOUR_S, source=lambda _begin_s, end_s: of_all(lines, end_s))
    with writing(store) as connection:
        write_decisions(connection, kept[:-1])  # of the last one, the store has only the token
    with store.connect() as connection:
        compared = compare_jobs(
            connection, lambda _begin_s, end_s: of_all(lines, end_s), T0, T0 + HOUR_S, journalled_from_s=0.0
        )
    assert (compared.attempts, compared.with_token, compared.not_ingested) == (5, 5, 0)
    assert [(one.job, one.field) for one in compared.found if one.state == "problem"] == [("5", "decision")]


def of_all(lines: Sequence[SacctRow], until_s: int) -> Fetched:
    return fetched_answer(answer_of(lines), until_s, Metering())
