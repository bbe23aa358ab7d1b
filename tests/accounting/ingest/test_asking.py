"""Slurm is asked while nothing waits for the store; questions without an answer are left to the next run."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine

from accounting.errors import LateAnswerError, SlurmError
from accounting.frames import Records
from accounting.ingest.ingesting import SACCT, fetched_answer, ingest
from accounting.ingest.retry import retry
from accounting.ingest.run import IngestReport, Run
from accounting.records import Quarantined
from accounting.slurm.sacct import KEY, TEXTS, Answer
from accounting.slurm.sacct_groups import SOURCE
from accounting.slurm.sacct_records import Metering, read_answer
from accounting.slurm.windows import FIRST_S, HOUR_S, SHORTEST_S, Fetched, Source
from accounting.store import schema
from accounting.store.database import open_store, writing
from accounting.store.records import Counts, known_attempts, windows_read, write_quarantine, write_rows
from tests.accounting.ingest.recorded import NOW_S, settings_of
from tests.builders import DAY_S, DRAWN, T0, FakeSacct, SacctRow, answer_of, job_line, printed

ROWS = [job_line(number, NOW_S - 500 + number, 10) for number in (1, 2, 3)]


class Asked:
    """A sacct that received the jobs' names late; each question for one gives another writer its turn."""

    def __init__(self, store: Engine) -> None:
        self._other = open_store(str(store.url))
        self.questions = 0

    def answer(self, rows: list[SacctRow]) -> Answer:
        whole = answer_of(rows)

        def one_text(display_id: str, column: str) -> bytes:
            self.take_a_turn()
            return whole.one_text(display_id, column)

        return msgspec.structs.replace(whole, texts=printed((*KEY, *TEXTS), [], DRAWN), one_text=one_text)

    def take_a_turn(self) -> None:
        self.questions += 1
        with writing(self._other, wait_s=0.2) as connection:
            write_rows(
                connection,
                schema.windows,
                [{"source": "other", "cluster": "", "read_until_s": self.questions}],
            )

    def source(self) -> Source:
        answer = self.answer(ROWS)
        return lambda _begin_s, end_s: fetched_answer(answer, end_s, Metering())

    def close(self) -> None:
        self._other.dispose()


@pytest.fixture
def asked(store: Engine) -> Iterator[Asked]:
    asked = Asked(store)
    yield asked
    asked.close()


def run_of(store: Engine, tmp_path: Path, source: Source, now_s: int = NOW_S) -> IngestReport:
    settings = settings_of(FakeSacct(tmp_path / "slurm", []), tmp_path)
    return ingest(store, settings, now_s, now_s - FIRST_S, source=source)


def test_others_write_while_sacct_is_asked_for_names_that_came_late(
    store: Engine, asked: Asked, tmp_path: Path
) -> None:
    report = run_of(store, tmp_path, asked.source())
    assert report.attempts == Counts(new=3)
    assert asked.questions == 3 * len(TEXTS)


def test_others_write_while_sacct_is_asked_for_quarantined_jobs(
    store: Engine, asked: Asked, tmp_path: Path
) -> None:
    line = answer_of(ROWS[:1]).figures.decode().splitlines()[1]
    with writing(store) as connection:
        write_quarantine(connection, [Quarantined(line=line, reason="of old", source=SOURCE)], NOW_S)
    run = Run(settings_of(FakeSacct(tmp_path / "slurm", []), tmp_path), NOW_S)
    assert retry(store, run, asked.source()) == 1
    assert asked.questions == 3 * len(TEXTS)
    assert run.report.attempts.new == 1, "the others end in later seconds"


def test_what_was_read_before_a_source_failed_stays_and_the_window_is_read_again(
    store: Engine, asked: Asked, tmp_path: Path
) -> None:
    fails = [True]

    def parts(until_s: int) -> Iterator[Records]:
        for row in ROWS:
            asked.take_a_turn()
            if row is ROWS[-1] and fails:
                raise SlurmError(f"lost after {fails.pop()}")
            yield from read_answer(answer_of([row]), until_s, Metering())

    def source(_begin_s: int, end_s: int) -> Fetched:
        return Fetched(size_bytes=0, records=lambda _known: parts(end_s))

    with pytest.raises(SlurmError, match="lost"):
        run_of(store, tmp_path, source)
    with store.connect() as connection:
        assert len(known_attempts(connection, [1, 2, 3])) == 2
        assert windows_read(connection, SACCT).get("") is None
    assert run_of(store, tmp_path, source).attempts == Counts(new=1, same=2)
    with store.connect() as connection:
        assert windows_read(connection, SACCT).get("") == NOW_S


def test_a_run_that_is_stopped_leaves_the_windows_that_it_did_not_reach(
    store: Engine, tmp_path: Path
) -> None:
    asked_s = list[int]()

    def source(_begin_s: int, end_s: int) -> Fetched:
        asked_s.append(end_s)
        return fetched_answer(answer_of([]), end_s, Metering())

    settings = settings_of(FakeSacct(tmp_path / "slurm", []), tmp_path)
    ingest(store, settings, NOW_S, source=source, stopped=lambda: len(asked_s) == 3)
    assert len(asked_s) == 3
    with store.connect() as connection:
        assert windows_read(connection, SACCT).get("") == asked_s[-1] < T0 + DAY_S
    ingest(store, settings, NOW_S, source=source)
    assert asked_s[-1] == NOW_S


def test_reading_the_past_again_moves_no_mark_back_though_it_is_stopped(
    store: Engine, tmp_path: Path
) -> None:
    settings = settings_of(FakeSacct(tmp_path / "slurm", []), tmp_path)
    ingest(store, settings, NOW_S, since_s=NOW_S - DAY_S)
    is_stopped = iter((False, True))
    ingest(store, settings, NOW_S, since_s=T0, stopped=lambda: next(is_stopped))
    with store.connect() as connection:
        assert windows_read(connection, SACCT).get("") == NOW_S


def test_a_window_that_takes_too_long_is_asked_for_in_shorter_ones(store: Engine, tmp_path: Path) -> None:
    answered, late = list[tuple[int, int]](), list[int]()

    def source(begin_s: int, end_s: int) -> Fetched:
        if end_s - begin_s > HOUR_S // 4:
            late.append(end_s - begin_s)
            raise LateAnswerError("too much")
        answered.append((begin_s, end_s))
        return fetched_answer(answer_of([]), end_s, Metering())

    settings = settings_of(FakeSacct(tmp_path / "slurm", []), tmp_path)
    ingest(store, settings, NOW_S, since_s=NOW_S - DAY_S, source=source)
    assert answered[0][0] == NOW_S - DAY_S
    assert answered[-1][1] == NOW_S
    assert all(one[1] == other[0] for one, other in pairwise(answered))
    assert all(other <= one / 2 for one, other in pairwise(late))


def test_a_source_that_never_answers_is_not_asked_for_ever(store: Engine, tmp_path: Path) -> None:
    asked_s = list[int]()

    def source(begin_s: int, end_s: int) -> Fetched:
        asked_s.append(end_s - begin_s)
        raise LateAnswerError("nobody there")

    settings = settings_of(FakeSacct(tmp_path / "slurm", []), tmp_path)
    with pytest.raises(LateAnswerError):
        ingest(store, settings, NOW_S, since_s=NOW_S - DAY_S, source=source)
    assert len(asked_s) <= 4
    assert asked_s[-1] == SHORTEST_S
