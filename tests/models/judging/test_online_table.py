"""A table of past jobs: what is read, what is refused and with which message, and what is written."""

from __future__ import annotations

import csv
import gzip
import os
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from accounting.errors import ModelError
from models.judging.online import OnlineJob
from models.judging.online_table import (
    GRANTED,
    NEEDED,
    check_writable,
    read_ids,
    read_jobs,
    tally,
    write_grants,
)

GOOD = {
    "job_id": "7.batch",
    "job_name": "fit",
    "submit_time": "0.5",
    "start": "10",
    "end": "70.25",
    "elapsed_s": "60",
    "req_mem_mib": "8000",
    "peak_mem_mib": "512.5",
}


def written(file: Path, *rows: dict[str, str]) -> Path:
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return file


def one(folder: Path, **changes: str) -> OnlineJob:
    [found] = read_jobs(written(folder / "jobs.csv", GOOD | changes))
    return found


def refused(file: Path, why: str) -> None:
    with pytest.raises(ModelError, match=why) as error:
        read_jobs(file)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_job_is_read_with_its_units(tmp_path: Path) -> None:
    read = one(
        tmp_path, user="ann", account="phys", req_cpus="4", used_cores="1.5", limit_s="3600", other="?"
    )
    assert (read.job_id, read.submit_s, read.start_s, read.end_s) == ("7.batch", 0.5, 10, 70.25)
    assert (read.request.user, read.request.account, read.request.job_name) == ("ann", "phys", "fit")
    asked = (read.request.mem_per_node_mib, read.request.cpus_per_task, read.request.wall_s)
    assert asked == (8000, 4, 3600)
    used = (read.past.mem_mib, read.past.cores_per_task, read.past.wall_s, read.past.complete)
    assert used == (512.5, 1.5, 60, True)


@pytest.mark.parametrize(("told", "known"), [("12.5", 12.5), ("", None), ("0", None), ("nan", None)])
def test_the_size_of_the_input_is_read_into_request_and_past_job(
    tmp_path: Path, told: str, known: float | None
) -> None:
    read = one(tmp_path, input_mib=told)
    assert (read.request.input_mib, read.past.input_mib) == (known, known)


def test_a_negative_input_size_is_refused(tmp_path: Path) -> None:
    refused(written(tmp_path / "jobs.csv", GOOD | {"input_mib": "-0.1"}), "line 2: a figure is negative")


@pytest.mark.parametrize("peak", ["", "0", "nan", "NaN", " "])
def test_a_missing_peak_is_unknown_and_no_failure(tmp_path: Path, peak: str) -> None:
    read = one(tmp_path, peak_mem_mib=peak)
    assert read.past.mem_mib is None
    row = tally([(read, msgspec.structs.replace(read.request, mem_per_node_mib=1), "")])
    assert (row["memory short"], row["memory short %"], row["memory cut"]) == (0, None, 0)


@pytest.mark.parametrize("asked", ["", "0", "nan", "0.4"])
def test_what_was_not_requested_is_not_sized(tmp_path: Path, asked: str) -> None:
    read = one(tmp_path, req_mem_mib=asked, req_cpus=asked)
    assert (read.request.mem_per_node_mib, read.request.cpus_per_task) == (None, None)


@pytest.mark.parametrize("column", NEEDED)
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    file = written(tmp_path / "jobs.csv", {name: value for name, value in GOOD.items() if name != column})
    refused(file, rf"lacks the columns {column}; its first line must name job_id, ")


def test_the_input_size_can_be_in_a_column_of_any_name(tmp_path: Path) -> None:
    file = written(tmp_path / "jobs.csv", GOOD | {"read": "3145728", "input_mib": "9"})
    assert [one.request.input_mib for one in (*read_jobs(file), *read_jobs(file, "read"))] == [9.0, 3.0]
    with pytest.raises(
        ModelError, match="has no column size; give the column with the size of the input in bytes"
    ):
        read_jobs(file, "size")
    odd = written(tmp_path / "odd.csv", GOOD | {"read": "much"})
    with pytest.raises(ModelError, match="line 2: read is 'much'"):
        read_jobs(odd, "read")


def test_a_column_that_occurs_twice_is_named(tmp_path: Path) -> None:
    file = written(tmp_path / "jobs.csv", GOOD)
    head, *jobs = file.read_text().splitlines()
    file.write_text("\n".join([f"{head},req_mem_mib,note,note", *(f"{line},1,a,b" for line in jobs)]) + "\n")
    refused(file, r"has the columns req_mem_mib more than once; leave only one of each")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *((column, "much") for column in (*NEEDED[2:], "req_cpus", "used_cores", "limit_s")),
        *(("end", odd) for odd in ("inf", "-Infinity", "1e400", "1e300", "4G", "0x10", "True", "1_000")),
    ],
)
def test_text_where_a_number_belongs_is_shown_with_its_line(tmp_path: Path, column: str, value: str) -> None:
    good = GOOD | {"req_cpus": "1", "used_cores": "1", "limit_s": "60"}
    file = written(tmp_path / "jobs.csv", good, good | {"job_id": "8", column: value})
    refused(file, rf"line 3: {column} is '{value}', which is not a usable number")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"peak_mem_mib": "-1"}, "a figure is negative"),
        ({"req_mem_mib": "-1"}, "a figure is negative"),
        ({"req_cpus": "-4"}, "a figure is negative"),
        ({"used_cores": "-0.1"}, "a figure is negative"),
        ({"elapsed_s": "-1"}, "elapsed_s is missing or negative"),
        ({"elapsed_s": ""}, "elapsed_s is missing or negative"),
        ({"elapsed_s": "nan"}, "elapsed_s is missing or negative"),
        ({"submit_time": ""}, "submit_time, start or end is missing"),
        ({"start": "nan"}, "submit_time, start or end is missing"),
        ({"end": ""}, "submit_time, start or end is missing"),
        ({"end": "9"}, "it ends before it starts"),
        ({"submit_time": "11"}, "starts before it is submitted"),
        ({"job_id": ""}, "job_id is empty"),
        ({"job_id": "1"}, "job_id occurs twice"),
    ],
)
def test_an_impossible_row_is_refused_with_its_line(
    tmp_path: Path, changes: dict[str, str], why: str
) -> None:
    first = GOOD | {"job_id": "1", "req_cpus": "1", "used_cores": "1"}
    file = written(tmp_path / "jobs.csv", first, first | {"job_id": "2"} | changes)
    refused(file, rf"line 3: .*{why}.*correct or remove that row")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "give a CSV file in UTF-8 with a header line"),
        ("\0\1\2", "lacks the columns"),
        ("\xff\xfe", "give a CSV file in UTF-8 with a header line"),
        (",".join(GOOD) + "\n", "has no jobs"),
        (
            ",".join(GOOD) + "\n" + ",".join(GOOD.values()) + ",9\n",
            "give a CSV file in UTF-8 with a header line",
        ),
        (",".join(GOOD) + "\n1,fit,0,1,2,3,4,5\n2,fit,0,1,2,3,4,5,6\n", "saw 9"),
        (",".join(GOOD) + '\n1,"fit\n', "give a CSV file in UTF-8 with a header line"),
    ],
)
def test_a_file_that_is_no_table_is_refused_in_one_line(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "jobs.csv"
    file.write_bytes(content.encode("latin-1"))
    refused(file, why)


def test_the_error_for_a_line_that_is_cut_off_says_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(",".join(GOOD) + "\n1,fit,0,1\n", encoding="utf-8")
    refused(file, "line 2: submit_time, start or end is missing")


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("1,fit,0,1,2,1,4,5\n", 3),
        ('1,"f\ni\nt",0,1,2,1,4,5\n', 5),
        ("\n\n1,fit,0,1,2,1,4,5\n  \n", 6),
        ("1,fit,0,1,2,1,4,5\n,,,,,,,\n", 4),
    ],
)
@pytest.mark.parametrize(
    ("row", "why"), [("2,fit,0,1,2,much,4,5", "elapsed_s is 'much'"), ("1,fit,0,1,2,1,4,5", "occurs twice")]
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_lines_are_counted_as_an_editor_counts_them(
    tmp_path: Path, before: str, line: int, row: str, why: str, newline: str
) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(f"{','.join(GOOD)}\n{before}{row}\n", encoding="utf-8", newline=newline)
    refused(file, f"line {line}: .*{why}")


def test_empty_lines_are_no_jobs(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(",".join(GOOD) + "\n\n1,fit,0,1,2,1,4,5\n,,,,,,,\n\n", encoding="utf-8")
    assert [one.job_id for one in read_jobs(file)] == ["1"]


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none.csv", "the file .* does not exist")
    refused(tmp_path, "cannot read .*directory")


def test_a_compressed_table_is_read_and_a_damaged_one_refused(tmp_path: Path) -> None:
    plain = written(tmp_path / "jobs.csv", GOOD).read_bytes()
    file = tmp_path / "jobs.csv.gz"
    file.write_bytes(gzip.compress(plain))
    assert len(read_jobs(file)) == 1
    for damaged in (gzip.compress(plain * 50)[:-20], b"no gzip", gzip.compress(plain)[:12] + b"\xff" * 40):
        file.write_bytes(damaged)
        refused(file, "cannot read")


@pytest.mark.parametrize("ending", ["bz2", "gz", "tar", "xz", "zip", "zst"])
def test_a_damaged_file_of_any_packing_is_refused_in_one_line(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"jobs.csv.{ending}"
    file.write_bytes(b"packed by nothing")
    refused(file, "cannot read .*; give a CSV file in UTF-8 with a header line")


def test_names_that_look_like_missing_values_stay_names(tmp_path: Path) -> None:
    read = one(tmp_path, job_name="NA", user="null", job_id="007")
    assert (read.request.job_name, read.request.user, read.job_id) == ("NA", "null", "007")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"7.batch\n99\n", "lists 1 jobs that are not in the table; the first is 99"),
        (b"\xff\xfe\xff", "one job_id per line"),
    ],
)
def test_strange_ids_are_refused(tmp_path: Path, content: bytes, why: str) -> None:
    jobs, file = [one(tmp_path)], tmp_path / "ids"
    file.write_bytes(content)
    with pytest.raises(ModelError, match=why):
        read_ids(file, jobs)


def test_ids_are_read_one_per_line(tmp_path: Path) -> None:
    jobs, file = [one(tmp_path)], tmp_path / "ids"
    file.write_text("\n7.batch\n\n", encoding="utf-8")
    assert read_ids(file, jobs) == {"7.batch"}
    file.write_bytes(b"\xef\xbb\xbf7.batch\r\n")
    assert read_ids(file, jobs) == {"7.batch"}
    file.write_text("", encoding="utf-8")
    assert read_ids(file, jobs) == frozenset()
    with pytest.raises(ModelError, match="one job_id per line"):
        read_ids(tmp_path / "none", jobs)


def test_only_what_changes_is_written(tmp_path: Path) -> None:
    read = one(tmp_path, req_cpus="4")
    less = msgspec.structs.replace(read.request, mem_per_node_mib=544)
    write_grants(tmp_path / "out.csv", [(read, less, "memory: history")])
    with (tmp_path / "out.csv").open(encoding="utf-8") as stream:
        assert list(csv.reader(stream)) == [[*GRANTED], ["7.batch", "544", "", "memory: history"]]
    write_grants(tmp_path / "none.csv", [])
    assert (tmp_path / "none.csv").read_text(encoding="utf-8") == ",".join(GRANTED) + "\n"


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n", "\u2028"])
def test_a_line_end_in_a_name_begins_no_row(tmp_path: Path, end: str) -> None:
    read = one(tmp_path, job_name=f"fit{end}one{end}", user=f"ann{end}")
    reason = f"cores: 2 earlier jobs of {read.request.user} named {read.request.job_name}"
    write_grants(tmp_path / "out.csv", [(read, read.request, reason)])
    assert len((tmp_path / "out.csv").read_bytes().decode().splitlines()) == 2
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as stream:
        assert list(csv.reader(stream))[1:] == [
            ["7.batch", "", "", "cores: 2 earlier jobs of ann named fit one"]
        ]


def test_a_job_short_of_memory_counts_with_both_its_runs(tmp_path: Path) -> None:
    read = one(tmp_path, req_cpus="4", used_cores="1")
    less = msgspec.structs.replace(read.request, mem_per_node_mib=400, cpus_per_task=2)
    row = tally([(read, less, ""), (read, read.request, "")])
    assert (row["jobs"], row["memory cut"], row["memory short"]) == (2, 1, 1)
    assert row["memory saved %"] == pytest.approx(100 * (1 - (400 + 8000 + 8000) / 16000), abs=0.05)
    assert (row["CPUs saved %"], row["CPUs short"]) == (25.0, 0)


def test_a_target_that_cannot_be_written_is_reported_before_and_after(tmp_path: Path) -> None:
    for file, why in (
        (tmp_path, "it is a folder"),
        (tmp_path / "none" / "out.csv", "the folder .* does not exist"),
    ):
        with pytest.raises(ModelError, match=rf"cannot write .*: {why}.*; give a file in a folder"):
            check_writable(file)
        with pytest.raises(ModelError, match=r"cannot write .*: .+; give a file in a folder"):
            write_grants(file, [])
    check_writable(tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.skipif(find_spec("zstandard") is not None, reason="zstandard is installed")
def test_a_file_that_cannot_be_packed_is_reported_beforehand(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"cannot write .*out\.csv\.zst: .zst needs Python's zstandard; give a"
    ):
        check_writable(tmp_path / "out.csv.zst")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_reported_beforehand(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ModelError, match="permission denied"):
        check_writable(tmp_path / "out.csv")
