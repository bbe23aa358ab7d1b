"""The collector's spool: bounded, with whole lines, whatever the disk does."""

import os
from pathlib import Path

import msgspec
import pytest

from accounting.gpu_collector.spool import SpoolWriter
from tests.accounting.gpu_collector.node import MIB
from tests.builders import T0, gpu_use
from tests.spools import read_spool


def test_the_spool_is_bounded_and_reports_what_it_dropped(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "n1-gpu-20200101-0000.jsonl").write_text("another node's\n")
    writer = SpoolWriter(tmp_path, "n1", 80_000, said.append)
    for number in range(2000):
        writer.write([gpu_use(job_id=number + 1)], T0 + number * 60)
        ours = sum(file.stat().st_size for file in tmp_path.glob("n1-2*.jsonl"))
        assert ours <= 80_000 + 10_000
    kept = {use.job_id for use in read_spool(tmp_path)[0]}
    dropped = sum(int(line.partition(" with ")[2].split()[0]) for line in said)
    assert 2000 in kept
    assert len(kept) + dropped == 2000
    assert (tmp_path / "n1-gpu-20200101-0000.jsonl").exists()


def test_a_bounded_number_of_lines_waits_for_a_disk_that_refuses_them(tmp_path: Path) -> None:
    said: list[str] = []
    spool = tmp_path / "spool"
    spool.write_text("in the way")
    writer = SpoolWriter(spool, "n1", 64 * MIB, said.append)
    for number in range(9000):
        writer.write([gpu_use(job_id=number + 1)] if number < 5 or number > 8990 else [], T0)
    assert len(said) == 1
    assert "cannot write the spool" in said[0]
    spool.unlink()
    writer.write([gpu_use(job_id=9001)], T0)
    assert said[1].endswith("accepts lines again; 0 lines lost")
    assert len(read_spool(spool)[0]) == 5 + 9 + 1


def test_a_line_that_the_disk_cut_off_is_written_again_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    writer = SpoolWriter(tmp_path, "n1", 64 * MIB, said.append)
    whole = os.write
    line = len(msgspec.json.encode(gpu_use())) + 1
    for room in (line + 10, 5, 0, line):
        monkeypatch.setattr(os, "write", lambda handle, data, room=room: whole(handle, data[:room]))
        writer.write([gpu_use(job_id=1, node=f"n{room}")], T0)
    monkeypatch.setattr(os, "write", whole)
    writer.write([gpu_use(job_id=1, node="last")], T0)
    uses, torn = read_spool(tmp_path)
    assert len(torn) == 1
    assert sorted((use.node, use.samples) for use in uses) == sorted(
        (name, 3) for name in (f"n{line + 10}", "n5", "n0", f"n{line}", "last")
    )


def test_a_line_left_unfinished_by_an_earlier_collector_swallows_none_of_ours(tmp_path: Path) -> None:
    for number in range(3):
        SpoolWriter(tmp_path, "n1", 64 * MIB, print).write([gpu_use(node=f"n{number}")], T0)
        (file,) = tmp_path.iterdir()
        with file.open("ab") as spool:
            spool.write(b'{"job_id":')
    uses, torn = read_spool(tmp_path)
    assert [use.node for use in uses] == ["n0", "n1", "n2"]
    assert len(torn) == 2


def test_a_node_name_never_becomes_a_path(tmp_path: Path) -> None:
    SpoolWriter(tmp_path, "../../n 1", 64 * MIB, print).write([gpu_use()], T0)
    assert [file.name for file in tmp_path.iterdir()] == [".._.._n_1-20231114-0000.jsonl"]


def test_what_others_put_under_its_name_is_left_alone(tmp_path: Path) -> None:
    said: list[str] = []
    day = "20231114"
    os.mkfifo(tmp_path / f"n1-{day}-0000.jsonl")
    (tmp_path / f"n1-{day}-0001.jsonl").symlink_to("/dev/zero")
    writer = SpoolWriter(tmp_path, "n1", 64 * MIB, said.append)
    for number in range(3):
        writer.write([gpu_use(job_id=number + 1)], T0)
    (own,) = (file for file in tmp_path.iterdir() if file.is_file())
    assert (own.name, own.read_bytes().count(b"\n"), said) == (f"n1-{day}-0002.jsonl", 3, [])


def test_a_file_removed_while_it_is_looked_at_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    writer = SpoolWriter(tmp_path, "n1", 1000, said.append)
    seen, removed = Path.lstat, set[Path]()

    def gone(file: Path) -> os.stat_result:
        if file.name.startswith("n1-20231114"):
            removed.add(file)
            file.unlink()
        return seen(file)

    for number in range(20):
        writer.write([gpu_use(job_id=number + 1)], T0 + number)
    monkeypatch.setattr(Path, "lstat", gone)
    for number in range(20):
        writer.write([gpu_use(job_id=number + 1)], T0 + 86400)
    assert removed
    assert "cannot write" not in "".join(said)
    monkeypatch.setattr(Path, "unlink", lambda _file: tmp_path.joinpath("away").stat())
    writer.write([gpu_use(job_id=30)], T0 + 86400)
    assert 30 in {use.job_id for use in read_spool(tmp_path)[0]}
