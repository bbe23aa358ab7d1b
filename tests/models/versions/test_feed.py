"""Jobs that join a history after its training, and the files through which they come."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.demand.prediction import ChainSettings, Predictor
from models.past.attempts import past_job, request_of
from models.past.families import family_keys
from models.past.history import History
from models.past.jobs import PastJob
from models.past.recent import Finished, decode_finished, encode_finished, finished
from models.versions.feed import (
    FOLDER,
    FeedReader,
    append_jobs,
    covered,
    join_feed,
    read_parts,
    remove_covered,
)
from tests.builders import DAY_S, T0, attempt, cancelled_while_it_waited, past, replay, request

KNOWN = request_of(attempt())
NOW_S = float(T0)


def job(job_id: int = 1, **changes: object) -> PastJob:
    return msgspec.structs.replace(past_job(attempt(job_id=job_id)), **changes)


def line(job_id: int, mem_mib: float = 200.0) -> Finished:
    return Finished(told_s=NOW_S, request=KNOWN, job=job(job_id, end_s=T0 + job_id, mem_mib=mem_mib))


def families(history: History) -> dict[tuple[str, ...], list[PastJob]]:
    return {family: list(jobs) for family, jobs in history.items()}


def predictor() -> Predictor:
    return Predictor("m", History(5), {}, ChainSettings())


@given(
    st.lists(st.integers(0, 12).flatmap(lambda n: st.just((n // 3, n))), max_size=40),
    st.integers(1, 6),
)
def test_jobs_count_once_in_the_order_of_their_ends_however_they_arrive(
    ends: list[tuple[int, int]], recent_jobs: int
) -> None:
    history = History(recent_jobs)
    for end_s, job_id in ends:
        history.join(KNOWN, job(job_id + 1, end_s=end_s))
    last = sorted(set(ends))[-recent_jobs:]
    for jobs in families(history).values():
        assert [(one.end_s, one.job_id - 1) for one in jobs] == last


@given(st.integers(0, 30), st.integers(0, 30))
def test_a_history_that_jobs_join_equals_that_of_a_later_training(trained: int, again: int) -> None:
    attempts = past(30)
    whole, part = History(7), History(7)
    list(replay(attempts, whole))
    by_end = sorted(attempts, key=lambda one: one.row.end_s)
    list(replay(by_end[:trained], part))
    # Jobs that the training saw come too, some of them twice.
    for one in [*by_end[max(0, trained - 5) :], *by_end[again:]]:
        part.join(request_of(one), past_job(one))
    assert families(part) == families(whole)


def test_a_run_that_ends_in_the_same_second_as_the_run_before_it_counts_too() -> None:
    history = History(5)
    first = job(7, end_s=T0, wall_s=3, complete=False)
    again = msgspec.structs.replace(first, wall_s=0, complete=True)
    assert [history.join(KNOWN, run) for run in (again, first, again)] == [True, True, False]
    for jobs in families(history).values():
        assert jobs == [first, again]


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(1, 3)), max_size=40), st.integers(1, 6))
def test_the_last_record_of_a_run_counts_wherever_the_run_is_remembered(
    told: list[tuple[int, int]], recent_jobs: int
) -> None:
    corrected, last = History(recent_jobs), History(recent_jobs)
    known: dict[int, PastJob] = {}
    for number in range(16):
        known[number] = job(number + 1, end_s=T0 + number)
        corrected.join(KNOWN, known[number])
    for number, mem_mib in told:
        known[number] = job(number + 1, end_s=T0 + number, mem_mib=mem_mib)
        corrected.join(KNOWN, known[number], corrects=True)
    for one in known.values():
        last.join(KNOWN, one)
    assert families(corrected) == families(last)
    for family in families(last):
        assert corrected.beside(family) == last.beside(family)


def test_a_correction_of_a_run_changes_what_its_families_show_and_a_repetition_does_not() -> None:
    history = History(5)
    assert history.join(KNOWN, job(), corrects=True), "it had not been told of"
    assert history.evidence(KNOWN, 1) is not None
    before, more = history.joined(family_keys(KNOWN)), job(mem_mib=700.0)
    assert not history.join(KNOWN, more), "a line that is read twice, of a job that training knows better"
    assert history.join(KNOWN, more, corrects=True)
    found = history.evidence(KNOWN, 1)
    assert found is not None
    assert [one.mem_mib for one in found.jobs] == [700.0]
    assert history.joined(family_keys(KNOWN)) > before
    assert not history.join(KNOWN, more, corrects=True)
    assert history.evidence(KNOWN, 1) is found


def test_a_job_that_joins_one_family_leaves_the_evidence_of_others() -> None:
    history, other = History(5), request(job_name="other")
    for asked in (KNOWN, other):
        history.add(asked, job())
    kept, before = history.evidence(other, 1), history.evidence(KNOWN, 1)
    assert history.join(KNOWN, job(2, end_s=T0 + 999))
    after = history.evidence(KNOWN, 1)
    assert history.evidence(other, 1) is kept
    assert before is not None
    assert after is not None
    assert len(after.jobs) == len(before.jobs) + 1
    assert (history.joined(family_keys(KNOWN)) > 0, history.joined(family_keys(other))) == (True, 0)
    assert not history.join(KNOWN, job(2, end_s=T0 + 999))
    assert history.evidence(KNOWN, 1) is after


def test_ten_times_too_many_names_cost_no_more_and_displace_only_their_own_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("models.past.history.MOST_FAMILIES", 50)
    history, kept, old = History(5), request(user="bob", job_name="fit"), request(user="eve", job_name="old")
    history.add(kept, job())
    history.add(old, job())
    assert history.evidence(old, 1) is not None
    for number in range(500):
        named = request(user="eve", job_name=f"x{chr(0x4E00 + number)}", wall_s=60 + number)
        history.join(named, job(number + 10, end_s=T0 + 1000 + number))
    assert len(families(history)) <= 50 + 50 + 2 + 1, "eve's names, limits, two users, bob's one"
    assert history.evidence(kept, 1) is not None
    assert history.evidence(old, 1) is None
    assert history.joined(family_keys(old)) == 0
    assert history.evidence(named, 1) is not None
    size = {name: len(value) for name, value in vars(history).items() if isinstance(value, dict)}
    assert max(size.values()) < 200, size
    while history.discard(16):
        pass
    assert families(history) == {}


def test_a_family_that_joins_again_after_it_was_forgotten_is_never_taken_for_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("models.past.history.MOST_FAMILIES", 1)
    history, one, other = History(5), request(job_name="one"), request(job_name="other")
    history.join(one, job(1))
    before = history.joined(family_keys(one))
    history.join(other, job(2, end_s=T0 + 5))
    history.join(one, job(3, end_s=T0 + 6))
    assert history.joined(family_keys(one)) != before


def test_of_loaded_families_those_whose_last_job_ended_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.past.history.MOST_FAMILIES", 2)
    history = History(5)
    for name, end_s in (("daily", T0 + 99), ("once", T0 + 1), ("twice", T0 + 50)):
        history.load(("user+name", "ann", name), [job(1, end_s=T0), job(2, end_s=end_s)])
    history.load(("user+name", "ann", "empty"), [])
    history.keep_recent()
    assert {family[2] for family in families(history)} == {"daily", "twice"}
    # The next one displaces the one whose last job ended first.
    history.join(request(user="ann", job_name="new"), job(3, end_s=T0 + 100))
    assert {family[2] for family in families(history) if family[0] == "user+name"} == {"daily", "new"}


def test_families_that_have_become_one_keep_the_last_jobs_of_all() -> None:
    history, family = History(3), ("user+name", "ann", "nf-bwa")
    history.load(family, [job(1, end_s=T0 + 1), job(4, end_s=T0 + 4)])
    history.load(family, [job(2, end_s=T0 + 2), job(3, end_s=T0 + 3)])
    assert [one.job_id for one in dict(history.items())[family]] == [2, 3, 4]


def test_a_habit_follows_the_jobs_that_join() -> None:
    history = History(5)
    history.add(KNOWN, job(mem_mib=8000.0))
    before = history.user_habit(KNOWN)
    history.join(KNOWN, job(2, end_s=T0 + 999, mem_mib=80.0))
    assert history.user_habit(KNOWN).memory < before.memory


def test_a_line_is_decoded_to_the_job_and_nothing_else_is_decoded() -> None:
    one = finished(attempt(job_id=7), NOW_S)
    assert one is not None
    assert one.job.job_id == 7
    assert decode_finished(encode_finished(one).rstrip(b"\n")) == one
    for damaged in (b"", b"{}", b"\xff", encode_finished(one)[:-20], b'{"told_s":1,"request":{},"job":[]}'):
        assert decode_finished(damaged) is None
    assert finished(attempt(start_s=0, elapsed_s=0), NOW_S) is None
    assert finished(cancelled_while_it_waited(), NOW_S) is None


@pytest.mark.parametrize(
    "impossible",
    [
        {"num_tasks": 0},
        {"num_tasks": -1},
        {"num_tasks": 10**40},
        {"asked_cpus": -4},
        {"asked_mem_mib": -1},
        {"mem_mib": -0.5},
        {"cores_per_task": -1.0},
    ],
)
def test_a_line_with_impossible_amounts_is_skipped(impossible: dict[str, Any]) -> None:
    """No prediction can be made from them: with no tasks, each prediction for that user raised an error."""
    one = finished(attempt(job_id=7), NOW_S)
    assert one is not None
    damaged = msgspec.structs.replace(one, job=msgspec.structs.replace(one.job, **impossible))
    assert decode_finished(json.dumps(msgspec.to_builtins(damaged)).encode()) is None


def test_appended_lines_are_read_once(tmp_path: Path) -> None:
    reader = FeedReader(tmp_path)
    assert reader.read_on().jobs == []
    append_jobs(tmp_path, [line(1), line(2)], NOW_S)
    assert reader.read_on().jobs == [line(1), line(2)]
    assert reader.read_on().jobs == []
    append_jobs(tmp_path, [line(3)], NOW_S + DAY_S)
    append_jobs(tmp_path, [], NOW_S + 2 * DAY_S)
    assert reader.read_on().jobs == [line(3)]
    assert [file.name for file in sorted((tmp_path / FOLDER).iterdir())] == [
        "jobs-20231114.jsonl",
        "jobs-20231115.jsonl",
    ]


def test_a_long_feed_is_read_in_parts(tmp_path: Path) -> None:
    lines = [line(number) for number in range(1, 101)]
    append_jobs(tmp_path, lines, NOW_S)
    reader, parts = FeedReader(tmp_path), []
    while (part := reader.read_on(most_bytes=2000)).more:
        parts.append(part.jobs)
    assert len(parts) > 10
    assert [one for part in parts for one in part] == lines


def test_damage_is_skipped_and_half_a_line_waits(tmp_path: Path) -> None:
    append_jobs(tmp_path, [line(1)], NOW_S)
    [file] = (tmp_path / FOLDER).iterdir()
    whole = encode_finished(line(3))
    with file.open("ab") as feed:
        feed.write(b"rubbish\n" + b"x" * 5000 + b"\n" + whole[:50])
    reader = FeedReader(tmp_path)
    parts = [reader.read_on(most_bytes=1000) for _ in range(9)]
    assert [one for part in parts for one in part.jobs] == [line(1)]
    assert file.name in {name for part in parts for name in part.problems}
    assert not reader.read_on(most_bytes=1000).more
    with file.open("ab") as feed:
        feed.write(whole[50:])
    assert reader.read_on(most_bytes=1000).jobs == [line(3)]


def test_a_line_that_a_full_disk_cut_off_spoils_no_other(tmp_path: Path) -> None:
    append_jobs(tmp_path, [line(1)], NOW_S)
    [file] = (tmp_path / FOLDER).iterdir()
    os.truncate(file, file.stat().st_size - 9)
    append_jobs(tmp_path, [line(2)], NOW_S)
    assert FeedReader(tmp_path).read_on().jobs == [line(2)]


def test_a_file_that_cannot_be_read_delays_no_other(tmp_path: Path) -> None:
    (tmp_path / FOLDER / "jobs-20200101.jsonl").mkdir(parents=True)
    append_jobs(tmp_path, [line(1)], NOW_S)
    part = FeedReader(tmp_path).read_on()
    assert part.jobs == [line(1)]
    assert "correct its permissions" in part.problems["jobs-20200101.jsonl"]
    assert join_feed(predictor(), tmp_path).keys() == {"jobs-20200101.jsonl"}


def test_a_feed_that_is_not_a_folder_says_so(tmp_path: Path) -> None:
    (tmp_path / FOLDER).touch()
    [part] = read_parts(FeedReader(tmp_path))
    assert "cannot be read" in part.problems[FOLDER]


def test_a_file_that_became_shorter_is_read_again_from_the_start(tmp_path: Path) -> None:
    append_jobs(tmp_path, [line(1), line(2)], NOW_S)
    reader = FeedReader(tmp_path)
    reader.read_on()
    [file] = (tmp_path / FOLDER).iterdir()
    file.write_bytes(encode_finished(line(3)))
    assert reader.read_on().jobs == [line(3)]


def test_a_feed_can_be_read_as_it_was_at_a_moment(tmp_path: Path) -> None:
    later = msgspec.structs.replace(line(2), told_s=NOW_S + 10)
    append_jobs(tmp_path, [line(1), later], NOW_S)
    then, now = predictor(), predictor()
    join_feed(then, tmp_path, until_s=NOW_S)
    join_feed(now, tmp_path)
    assert (then.predict(KNOWN).jobs_seen, now.predict(KNOWN).jobs_seen) == (1, 2)


def test_a_correction_in_a_feed_replaces_what_an_earlier_line_said(tmp_path: Path) -> None:
    first, predicted = line(1), []
    right = msgspec.structs.replace(
        first, job=msgspec.structs.replace(first.job, mem_mib=70_000.0), corrects=True
    )
    for folder, lines in ((tmp_path / "both", [first, right]), (tmp_path / "right", [right])):
        append_jobs(folder, lines, NOW_S)
        one = predictor()
        join_feed(one, folder)
        predicted.append(one.predict(KNOWN).memory)
    assert predicted[0] == predicted[1]


@pytest.mark.parametrize(
    ("version", "gone"),
    [
        (None, ["20251001", "20261123"]),
        ("rubbish", ["20251001", "20261123"]),
        ("20269999T000000.000Z-a", ["20251001", "20261123"]),
        ("20261119T000100.000Z-ab12cd", ["20251001", "20261117", "20261123"]),
        ("20261121T000100.000Z-ab12cd", ["20251001", "20261117", "20261118", "20261123"]),
        # Made while the clock was ahead.
        ("20270221T000100.000Z-ab12cd", ["20251001", "20261123"]),
    ],
)
def test_days_that_a_model_was_trained_on_are_removed(
    version: str | None, gone: list[str], tmp_path: Path
) -> None:
    days = ("20251001", "20261117", "20261118", "20261120", "20261121", "20261122", "20261123")
    names = [*(f"jobs-{day}.jsonl" for day in days), "notes.txt"]
    gone = [f"jobs-{day}.jsonl" for day in gone]
    now_s = 1_795_262_400.0  # 2026-11-21 12:00
    assert covered(names, version, now_s) == gone
    (tmp_path / FOLDER).mkdir()
    for name in names:
        (tmp_path / FOLDER / name).touch()
    remove_covered(tmp_path, version, now_s)
    assert {file.name for file in (tmp_path / FOLDER).iterdir()} == {*names} - {*gone}
