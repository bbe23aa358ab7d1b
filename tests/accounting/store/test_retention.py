"""What is older than a site wants to keep is deleted completely; the rest stays, with what explains it. Quarantine."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import make_url

from accounting.decisions.token import carried_word, format_token
from accounting.records import Quarantined
from accounting.store import retention
from accounting.store.bulk import upsert_attempts
from accounting.store.database import open_store, writing
from accounting.store.quarantine import (
    QuarantineGroup,
    forget_quarantined,
    list_quarantine,
    take_quarantined,
)
from accounting.store.records import read_attempts, write_decisions, write_gpu_use, write_quarantine
from accounting.store.retention import prune
from bench import site_rows
from tests.builders import T0, attempt, decision, gpu_use, step
from tests.stores import content, write_attempts, write_steps

LIMIT_S = T0 + 5_000


def fill(store: Engine) -> None:
    """An old and a new attempt with all that belongs to them; a decision of both, a later one, and one of neither."""
    with writing(store) as connection:
        for job_id, start_s in ((1, T0 + 10), (2, LIMIT_S - 50)):
            tried = attempt(job_id=job_id, start_s=start_s, submit_s=T0)
            write_attempts(connection, [tried])
            write_steps(connection, [(tried.row, step(step_id=name)) for name in ("batch", "0")])
            write_gpu_use(connection, [gpu_use(job_id=job_id, first_s=start_s, last_s=tried.row.end_s)])
            write_quarantine(connection, [Quarantined(line=f"bad {job_id}", reason="odd")], start_s + 100)
        write_decisions(connection, [decision(id=name, time_s=T0) for name in ("d1", "nobody's")])
        write_decisions(connection, [decision(id="later", time_s=LIMIT_S + 1)])


def test_old_rows_go_and_newer_ones_stay(store: Engine) -> None:
    fill(store)
    kept = [one for one in read_attempts(store) if one.row.job_id == 2]
    heard: list[int] = []
    pruned = prune(store, LIMIT_S, heard.append)
    assert (pruned.attempts, pruned.steps, pruned.gpu_use, pruned.decisions, pruned.quarantine) == (
        1,
        2,
        1,
        1,
        1,
    )
    assert pruned.kept_room == ""
    assert heard[-1] == pruned.rows == 6
    assert read_attempts(store) == kept
    held = content(store)
    # The old decision that the new attempt names stays, because it explains the attempt.
    assert {row[0] for row in held["decisions"]} == {"d1", "later"}
    assert {row[1] for row in held["steps"]} == {row[1] for row in held["gpu_use"]} == {2}
    assert "bad 2" in repr(held["quarantine"])
    assert prune(store, LIMIT_S).rows == 0
    assert prune(store, LIMIT_S + 10**6).decisions == 2


def test_decisions_named_by_a_direct_job_stay_with_it(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt is explained by its client's decision; the hook's is only in the token, and `audit` asks for it."""
    monkeypatch.setattr(retention, "ROWS_AT_ONCE", 2)
    client, other = "0123456789ab", "0123456789ac"
    hook = decision(id="hook", time_s=T0, via=client)
    answered = attempt(token=False, job_id=1, start_s=LIMIT_S, admin_comment=f"else {format_token(hook)}")
    alone = attempt(token=False, job_id=2, start_s=LIMIT_S, comment=f"mine {carried_word(other)}")
    with writing(store) as connection:
        write_attempts(connection, [msgspec.structs.replace(answered, decision_id=client), alone])
        write_decisions(connection, [hook, *(decision(id=name, time_s=T0) for name in (client, other))])
        write_decisions(connection, [decision(id=f"nobody's {number}", time_s=T0) for number in range(5)])
    assert prune(store, LIMIT_S).decisions == 5
    assert {row[0] for row in content(store)["decisions"]} == {"hook", client, other}
    assert prune(store, LIMIT_S + 10**6).decisions == 3


def test_pruning_that_was_interrupted_continues(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "ROWS_AT_ONCE", 70)
    attempts, steps = site_rows.chunk(0, 500)
    with writing(store) as connection:
        upsert_attempts(connection, attempts, steps)
    ends_s = sorted(attempts["end_s"].to_pylist())

    def cut_off(rows: int) -> None:
        if rows > 400:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prune(store, ends_s[300], cut_off)
    held = content(store)
    assert 200 < len(held["attempts"]) < 500
    assert len(held["steps"]) == 2 * len(held["attempts"])
    rest = prune(store, ends_s[300])
    assert rest.attempts == len(held["attempts"]) - sum(end_s >= ends_s[300] for end_s in ends_s)
    assert len(content(store)["steps"]) == 2 * (len(held["attempts"]) - rest.attempts)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_shrinking_a_store_does_not_hold_the_rest_in_memory(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "WORTH_SHRINKING", -1.0)
    places: list[int] = []

    def look(_: Connection, cursor: Any, statement: str, *__: object) -> None:
        if statement == "VACUUM":
            places.extend(row[0] for row in cursor.connection.execute("PRAGMA temp_store"))

    event.listen(store, "before_cursor_execute", look)
    assert prune(store, LIMIT_S).kept_room == ""
    in_a_file = 1
    assert places == [in_a_file]


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_freed_space_is_given_back(store: Engine, url: str) -> None:
    with writing(store) as connection:
        upsert_attempts(connection, *site_rows.chunk(0, 20_000))
    store.dispose()  # the log is written into the file
    file = Path(str(make_url(url).database))
    before_bytes = file.stat().st_size
    again = open_store(url)
    pruned = prune(again, 2**40)
    assert (pruned.attempts, pruned.kept_room) == (20_000, "")
    again.dispose()
    assert file.stat().st_size < before_bytes / 20


def quarantined(number: int, source: str = "sacct", reason: str = "too few columns") -> Quarantined:
    return Quarantined(line=f"line {number}", reason=reason, source=source)


def test_quarantine_is_listed_by_source_and_reason(store: Engine) -> None:
    with writing(store) as connection:
        write_quarantine(connection, [quarantined(number) for number in range(5)], 100)
        write_quarantine(connection, [quarantined(9)], 200)
        write_quarantine(connection, [quarantined(10, "gpu", "not JSON")], 150)
        assert list_quarantine(connection) == [
            QuarantineGroup(
                source="sacct", reason="too few columns", lines=6, first_seen_s=100, last_seen_s=200
            ),
            QuarantineGroup(source="gpu", reason="not JSON", lines=1, first_seen_s=150, last_seen_s=150),
        ]


def test_lines_are_retried_and_removed_once_they_are_understood(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accounting.store.quarantine.LINES_AT_ONCE", 7)
    lines = [quarantined(number) for number in range(30)]
    with writing(store) as connection:
        write_quarantine(connection, [*lines, quarantined(99, "gpu")], 100)
        taken = dict(take_quarantined(connection, "sacct"))
        assert sorted(taken.values(), key=repr) == sorted(lines, key=repr)
        assert len(dict(take_quarantined(connection))) == 31
        understood = [digest for digest, item in taken.items() if item.line != "line 3"]
        assert forget_quarantined(connection, understood) == 29
        assert forget_quarantined(connection, understood) == 0
    with writing(store) as connection:
        assert [item.line for _, item in take_quarantined(connection, "sacct")] == ["line 3"]
        assert write_quarantine(connection, lines, 500).new == 29
