"""The service's journal continues its chain whatever happens: new days, restarts, full disks, crashes."""

import os
from pathlib import Path

import pytest

from accounting.decisions.decision import Decision
from accounting.errors import StoreError
from accounting.journal.chain_check import ChainCheck
from accounting.journal.chains import chains_in, check_chain
from accounting.journal.files import read_journal
from accounting.journal.retention import remove_read
from slurm_plugin.service.journal import Journal
from tests.builders import DAY_S, T0, decision

KEY = b"0123456789abcdef" * 4


def made(number: int, day: int = 0) -> Decision:
    return decision(id=f"d{number}", time_s=T0 + day * DAY_S)


def checked(folder: Path, key: bytes = KEY, name: str = "decisions") -> ChainCheck:
    return check_chain(name, chains_in(folder)[name], key)


def write(folder: Path, numbers: range, day: int = 0, name: str = "decisions", key: bytes = KEY) -> None:
    journal = Journal(folder, name, key)
    for number in numbers:
        journal.append(made(number, day))
    journal.close()


def file_of(folder: Path, day: int) -> Path:
    return [file for file in sorted(folder.iterdir()) if file.stat().st_size][day]


@pytest.mark.parametrize("key", [KEY, b""])
def test_the_chain_continues_over_days_and_restarts(tmp_path: Path, key: bytes) -> None:
    for start in range(6):
        write(tmp_path, range(10 * start, 10 * start + 10), start // 2, key=key)
    write(tmp_path, range(3), name="decisions-advisor", key=key)
    check = checked(tmp_path, key)
    assert check.finish() == []
    assert (check.lines, check.head.number) == (60, 60)
    advisors = checked(tmp_path, key, "decisions-advisor")
    assert (advisors.finish(), advisors.lines) == ([], 3)
    links = [line.link for part in read_journal(tmp_path, {}) for line in part.taken if line.link]
    assert sorted(link.number for link in links if link.chain == "decisions") == list(range(1, 61))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_set_back_over_midnight_moves_no_line(tmp_path: Path, restarted: bool) -> None:
    midnight_s = T0 // DAY_S * DAY_S
    journal = Journal(tmp_path, key=KEY)
    for number, after_s in enumerate((-1.0, 0.5, -0.5, 0.2, DAY_S, DAY_S - 1, 2 * DAY_S)):
        journal.append(decision(id=f"d{number}", time_s=midnight_s + after_s))
        if restarted:
            journal.close()
            journal = Journal(tmp_path, key=KEY)
    journal.close()
    check = checked(tmp_path)
    assert (check.finish(), check.lines) == ([], 7)
    lines = [file.read_bytes().count(b"\n") for file in sorted(tmp_path.iterdir())]
    assert [count for count in lines if count] == [1, 3, 2, 1]


def test_a_crash_in_the_middle_of_a_write_costs_only_that_line(tmp_path: Path) -> None:
    write(tmp_path, range(5))
    file = file_of(tmp_path, 0)
    whole = file.read_bytes()
    last = len(whole) - len(whole.splitlines(keepends=True)[-1])
    for cut in (last + 1, last + 200, len(whole) - 1):
        file.write_bytes(whole[:cut])
        write(tmp_path, range(5, 8))
        check = checked(tmp_path)
        found = check.finish()
        # If only its newline is missing, the line is there.
        assert [one.kind for one in found] == (["torn"] if cut < len(whole) - 1 else [])
        assert check.head.number == (8 if cut == len(whole) - 1 else 7)


def test_a_disk_that_fills_up_costs_only_the_lines_that_did_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, key=KEY)
    plain, room = os.write, [10**6]

    def into_little_room(handle: int, text: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        taken = plain(handle, text[: room[0]])
        room[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", into_little_room)
    journal.append(made(1))
    for left in (0, 1, 100):
        room[0] = left
        for number in (2, 3):
            with pytest.raises(OSError, match="No space left"):
                journal.append(made(number))
        room[0] = 10**6
        journal.append(made(4))
    journal.close()
    check = checked(tmp_path)
    assert [one.kind for one in check.finish()] == ["torn", "torn"]
    assert check.head.number == 4


def test_lines_written_by_another_process_are_continued(tmp_path: Path) -> None:
    one, other = Journal(tmp_path, key=KEY), Journal(tmp_path, key=KEY)
    for number in range(0, 10, 2):
        one.append(made(number))
        other.append(made(number + 1))
    check = checked(tmp_path)
    assert (check.finish(), check.head.number) == ([], 10)


def test_a_file_cut_off_while_the_service_runs_is_noticed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, key=KEY)
    for number in range(6):
        journal.append(made(number))
    file = file_of(tmp_path, 0)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:3]))
    journal.append(made(6))
    [found] = checked(tmp_path).finish()
    assert (found.kind, found.place.line) == ("removed", 4)
    assert found.what.startswith("lines 4 to 6 are")


@pytest.mark.parametrize("what", ["moved", "removed with the folder", "replaced"])
def test_a_file_that_is_moved_or_removed_while_the_service_runs_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """As by logrotate, or a restored backup: what is written to the old file from then on, ingest never sees."""
    monkeypatch.setattr("slurm_plugin.service.journal.LOOK_S", 0.0)
    folder = tmp_path / "journal"
    journal = Journal(folder, key=KEY)
    for number in range(3):
        journal.append(made(number))
    file = file_of(folder, 0)
    away = file.rename(tmp_path / "away")
    if what == "replaced":
        file.write_bytes(away.read_bytes())
    if what == "removed with the folder":
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    for number in range(3, 6):
        journal.append(made(number))
    journal.close()
    lines = [line for part in read_journal(folder, {}) for line in part.taken]
    assert [line.decision.id for line in lines][-3:] == ["d3", "d4", "d5"]
    assert len(away.read_bytes().splitlines()) == 3
    assert checked(folder).head.number == 6


def test_a_journal_whose_folder_cannot_be_made_anew_refuses_decisions_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.service.journal.LOOK_S", 0.0)
    folder = tmp_path / "journal"
    journal = Journal(folder, key=KEY)
    journal.append(made(1))
    folder.rename(tmp_path / "away")
    folder.touch()
    assert [journal.keep(made(number)) for number in (2, 3)] == [False, False]
    folder.unlink()
    assert journal.keep(made(4))
    journal.close()
    assert [line.decision.id for part in read_journal(folder, {}) for line in part.taken] == ["d4"]


def test_old_files_are_removed_once_they_are_read_and_the_chain_still_has_a_beginning(tmp_path: Path) -> None:
    for day in range(5):
        write(tmp_path, range(4), day)
    files = [file for file in sorted(tmp_path.glob("*.jsonl")) if file.stat().st_size]
    days = [file.name[-14:-6] for file in files]
    offsets = {file.name: file.stat().st_size for file in files}
    unread = {**offsets, files[1].name: 7}
    assert remove_read(tmp_path, KEY, unread, days[3]) == [files[0]]
    assert checked(tmp_path).finish() == []
    assert remove_read(tmp_path, KEY, offsets, days[3]) == files[1:3]
    check = checked(tmp_path)
    assert check.finish() == []
    assert (check.lines, check.head.number) == (8, 20)
    write(tmp_path, range(2), 5)
    assert checked(tmp_path).head.number == 22
    # A file that is removed by hand leaves no anchor.
    files[3].unlink()
    [found] = checked(tmp_path).finish()
    assert found.what.startswith("lines 13 to 16 are")


def test_days_without_a_decision_do_not_end_the_chain(tmp_path: Path) -> None:
    write(tmp_path, range(4))
    for day in range(1, 8):
        (tmp_path / f"decisions-2024010{day}.jsonl").touch()
    files = sorted(tmp_path.glob("*.jsonl"))
    assert remove_read(tmp_path, KEY, {file.name: file.stat().st_size for file in files}, "99991231") == []
    write(tmp_path, range(4), 200)
    check = checked(tmp_path)
    assert (check.finish(), check.head.number) == ([], 8)


def test_broken_files_stay_as_evidence_and_the_newest_file_always_stays(tmp_path: Path) -> None:
    for day in range(3):
        write(tmp_path, range(4), day)
    # It was made when the journal was opened, today.
    files = [file for file in sorted(tmp_path.glob("*.jsonl")) if file.stat().st_size]
    for empty in set(tmp_path.glob("*.jsonl")) - set(files):
        empty.unlink()
    offsets = {file.name: file.stat().st_size for file in files}
    text = files[0].read_bytes()
    files[0].write_bytes(text.replace(b'"d1"', b'"d9"'))
    assert remove_read(tmp_path, KEY, offsets, "99991231") == []
    files[0].write_bytes(text)
    assert remove_read(tmp_path, KEY, offsets, "99991231") == files[:2]
    assert checked(tmp_path).finish() == []


def test_a_journal_that_cannot_be_read_is_an_expected_failure(tmp_path: Path) -> None:
    (tmp_path / "decisions-20260101.jsonl").mkdir()
    with pytest.raises(StoreError, match="cannot read the journal file"):
        checked(tmp_path)
