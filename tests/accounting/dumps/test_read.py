"""Dumps are read completely, with any columns and of any release; files that are not dumps are refused."""

from __future__ import annotations

import gzip
import io
import re
import subprocess
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pandas
import pytest

from accounting.dumps.heading import SACCT_COMMAND
from accounting.dumps.read import read_dump
from accounting.errors import DumpError
from tests.accounting.dumps.table import (
    COLUMNS,
    SETTINGS,
    job,
    numbered,
    read,
    spreadsheet,
    step,
    text,
    together,
)
from tests.traces import TRACES, needs_traces


def test_a_job_and_its_step_are_read_in_every_column(tmp_path: Path) -> None:
    records = read(tmp_path, text([job(), step()]))
    assert records.quarantined == ()
    assert records.jobs.to_pylist() == [
        {
            "cluster": "blue", "job_id": 100, "display_id": "100", "user": "ada", "account": "math",
            "partition": "main", "qos": "normal", "job_name": "align", "comment": "", "admin_comment": "",
            "state": "COMPLETED", "submit_s": 1700000000, "start_s": 1700000060, "end_s": 1700000160, "elapsed_s": 100,
            "limit_s": 600, "nodes": 2, "tasks": None, "req_cpus": 4, "req_mem_mib": 8192,
            "req_gpus": None, "alloc_cpus": 8, "alloc_mem_mib": 16384, "alloc_gpus": 2, "energy_j": 5000.0,
            "slurm_release": "", "gather": "", "digest": None,
        }
    ]  # fmt: skip
    assert records.steps.to_pylist() == [
        {
            "job": 0, "step_id": "0", "state": "COMPLETED", "start_s": 1700000061, "end_s": 1700000159, "tasks": 4,
            "nodes": 2, "mem_max_task_mib": 100.0, "mem_total_mib": 400.0, "cpu_s": 399.5, "cpu_max_task_s": 110.0,
            "gpu_util_pct": 87.0, "gpu_mem_mib": 2048.0, "read_mib": 4.0, "written_mib": 2.0, "energy_j": 4000.0,
            "alloc_cpus": 8, "alloc_mem_mib": 16384,
        }
    ]  # fmt: skip


@pytest.mark.parametrize("delimiter", ["|", "\x1f", "\t", ",", ";", "^", "~|~"])
@pytest.mark.parametrize("order", [COLUMNS, COLUMNS[::-1]])
def test_any_delimiter_and_any_order_give_the_same(
    tmp_path: Path, delimiter: str, order: tuple[str, ...]
) -> None:
    write = spreadsheet if delimiter in ",;\t" else text
    rows = [job(JobName=f"align{delimiter}2" if write is spreadsheet else "align"), step()]
    # Excel begins with a byte order mark.
    written = "\ufeff" + write(rows, order, delimiter)
    records, usual = read(tmp_path, written), read(tmp_path, text(rows))
    assert records.quarantined == ()
    assert records.jobs.equals(usual.jobs)
    assert records.steps.equals(usual.steps)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("block_bytes", [64, 1000, 10**6])
def test_blocks_of_any_size_give_the_same(tmp_path: Path, packed: bool, block_bytes: int) -> None:
    rows = [row for number in range(1, 60) for row in numbered(number)]
    settings = msgspec.structs.replace(SETTINGS, block_bytes=block_bytes)
    records = read(tmp_path, text(rows), settings, packed)
    assert (
        records.jobs["job_id"].to_pylist()
        == list(range(1, 60))
        == [n + 1 for n in records.steps["job"].to_pylist()]
    )


@pytest.mark.parametrize("block_bytes", [1000, 20_000])
def test_lists_before_the_id_do_not_part_a_job_from_its_steps(tmp_path: Path, block_bytes: int) -> None:
    rows = [row for number in range(1, 200) for row in numbered(number)]
    settings = msgspec.structs.replace(SETTINGS, block_bytes=block_bytes)
    # AllocTRES, whose commas are within quotes, comes before End, JobID and JobIDRaw.
    records = read(tmp_path, spreadsheet(rows, tuple(sorted(COLUMNS)), ","), settings)
    assert records.quarantined == ()
    assert records.steps["job"].to_pylist() == list(range(199))


def test_no_more_than_needed_of_a_spreadsheet_is_carried_from_block_to_block(tmp_path: Path) -> None:
    rows = [row for number in range(1, 200) for row in numbered(number)]
    order = ("AllocTRES", *(name for name in COLUMNS if name != "AllocTRES"))
    file = tmp_path / "dump.csv"
    file.write_text(spreadsheet(rows, order, ","))
    parts = list(read_dump(file, msgspec.structs.replace(SETTINGS, block_bytes=20_000)))
    assert max(len(part.jobs) for part in parts) < 199


def test_a_dump_that_went_through_pandas_gives_the_same(tmp_path: Path) -> None:
    """pandas makes decimals of numbers where some are missing, and writes its index as a column without a name."""
    columns = tuple(name for name in COLUMNS if "TRES" not in name)
    batch = step(JobIDRaw="100.batch", JobID="100.batch")
    never = job(JobIDRaw="101", JobID="101", State="CANCELLED by 0", Start="Unknown", ElapsedRaw="0")
    written = text([job(), batch, never], columns, ",")
    usual = read(tmp_path, written)
    table = pandas.read_csv(io.StringIO(written), na_values="Unknown")
    changed = read(tmp_path, table.to_csv())
    assert "1700000060.0" in table.to_csv()
    assert changed.quarantined == ()
    assert changed.jobs.equals(usual.jobs)
    assert changed.steps.equals(usual.steps)


def test_missing_columns_are_reported_with_what_they_cost(tmp_path: Path) -> None:
    few = ("State", "Submit", "CPUTimeRAW", "ReqCPUS", "TimelimitRaw", "Planned")
    row = job(CPUTimeRAW="400", Planned="00:01:00")
    first = read(tmp_path, text([row, row], few))
    assert first.jobs["job_id"].to_pylist() == [2, 3]
    assert first.jobs["cluster"].to_pylist() == ["dump.psv"] * 2
    assert first.jobs["start_s"].to_pylist() == [1700000060] * 2
    assert first.jobs["elapsed_s"].to_pylist() == [100] * 2
    said = "\n".join(first.missing)
    for column in ("JobIDRaw", "Cluster", "User", "Partition", "Start, End", "AllocCPUS", "MaxRSS", "steps"):
        assert column in said
    assert read(tmp_path, text([row, row], few)).jobs.equals(first.jobs)


@pytest.mark.parametrize("lacking", [{"Submit"}, {"Start"}, {"End"}])
def test_jobs_without_the_times_that_tell_them_apart_may_count_twice(
    tmp_path: Path, lacking: set[str]
) -> None:
    columns = tuple(name for name in COLUMNS if name not in lacking)
    assert "more complete dump also contains may be counted twice" in "\n".join(
        read(tmp_path, text([job()], columns)).missing
    )


def test_nothing_is_missing_where_everything_is_there(tmp_path: Path) -> None:
    assert read(tmp_path, text([job(), step()], delimiter="\x1f")).missing == ()


def test_columns_are_found_by_the_names_of_older_releases(tmp_path: Path) -> None:
    row = job(
        Elapsed="00:01:40", Timelimit="00:10:00", Reserved="00:01:00", NCPUS="8", Submit="2023-11-14T23:13:20"
    )
    old = (
        "JobIDRaw",
        "State",
        "Submit",
        "Elapsed",
        "Timelimit",
        "Reserved",
        "ReqMem",
        "NCPUS",
        "NNodes",
        "ReqCPUS",
    )
    for request, mib in (("100Mc", 400), ("2000Mn", 4000), ("2147486648Mn", None), ("0n", None)):
        (read_job,) = read(tmp_path, text([{**row, "ReqMem": request}], old)).jobs.to_pylist()
        assert read_job["req_mem_mib"] == mib
        assert (read_job["submit_s"], read_job["start_s"], read_job["end_s"]) == (
            1700000000,
            1700000060,
            1700000160,
        )
        assert (read_job["limit_s"], read_job["alloc_cpus"]) == (600, 8)


def test_array_tasks_and_het_components_stay_apart_without_ids_of_their_own(tmp_path: Path) -> None:
    columns = tuple(name for name in COLUMNS if name != "JobIDRaw")
    names = ["12", "12_1", "12_2", "13+0", "13+1"]
    rows = [row for name in names for row in (job(JobID=name), step(JobID=f"{name}.0"))]
    records = read(tmp_path, text(rows, columns))
    assert records.jobs["display_id"].to_pylist() == names
    assert len(set(records.jobs["job_id"].to_pylist())) == len(names)
    assert records.steps["job"].to_pylist() == [0, 1, 2, 3, 4]


def test_attempts_of_one_job_keep_their_own_steps(tmp_path: Path) -> None:
    again = job(State="OUT_OF_MEMORY", Start="1700000260", End="1700000360")
    rows = [job(State="REQUEUED"), step(), again, step(State="OUT_OF_MEMORY"), step(JobIDRaw="100.batch")]
    records = read(tmp_path, text(rows))
    assert records.steps["job"].to_pylist() == [0, 1, 1]
    assert records.jobs["state"].to_pylist() == ["REQUEUED", "OUT_OF_MEMORY"]


def test_jobs_that_still_run_are_counted_and_not_taken(tmp_path: Path) -> None:
    running = job(JobIDRaw="5", JobID="5", State="RUNNING", End="Unknown")
    waiting = job(JobIDRaw="6", JobID="6", State="PENDING", Start="Unknown", End="Unknown", ElapsedRaw="0")
    records = read(
        tmp_path, text([running, step(JobIDRaw="5.0", JobID="5.0", State="RUNNING"), waiting, job()])
    )
    assert (records.unfinished, len(records.jobs), len(records.steps), records.quarantined) == (2, 1, 0, ())


def test_a_job_that_was_cancelled_before_it_started_is_read(tmp_path: Path) -> None:
    row = job(
        State="CANCELLED by 1000", Start="None", End="1700000100", ElapsedRaw="0", AllocTRES="", NNodes="1"
    )
    (cancelled,) = read(tmp_path, text([row])).jobs.to_pylist()
    assert (cancelled["start_s"], cancelled["end_s"], cancelled["elapsed_s"]) == (0, 1700000100, 0)
    assert cancelled["state"] == "CANCELLED by 1000"


def test_two_dumps_in_one_file_are_both_read(tmp_path: Path) -> None:
    records = read(tmp_path, text([job(), step()]) + text(numbered(99)) + "\n")
    assert records.jobs["job_id"].to_pylist() == [100, 99]
    assert records.quarantined == ()


def test_lines_repeated_in_succession_count_once(tmp_path: Path) -> None:
    twice = [row for row in (job(), step()) for _ in range(2)]
    records = read(tmp_path, text(twice))
    assert records.jobs["job_id"].to_pylist() == [100]
    assert records.steps["step_id"].to_pylist() == ["0"]
    assert records.quarantined == ()


def test_jobs_without_ids_count_once_per_line(tmp_path: Path) -> None:
    columns = tuple(name for name in COLUMNS if name not in ("JobIDRaw", "JobID"))
    assert len(read(tmp_path, text([job(), job()], columns)).jobs) == 2


def test_empty_lines_do_not_separate_a_job_from_its_steps(tmp_path: Path) -> None:
    records = read(tmp_path, text([job(), step()]).replace("\n", "\n\n"))
    assert records.steps["job"].to_pylist() == [0]
    assert records.quarantined == ()


def test_steps_that_are_there_are_not_reported_missing_though_no_job_is_taken(tmp_path: Path) -> None:
    records = read(tmp_path, text([job(State="NONSENSE"), step()]))
    assert len(records.jobs) == 0
    assert not any("lines of steps" in said for said in records.missing)


def test_steps_are_not_reported_missing_for_a_heading_alone(tmp_path: Path) -> None:
    assert not any("lines of steps" in said for said in read(tmp_path, text([])).missing)


def test_a_file_that_was_cut_off_gives_what_is_complete(tmp_path: Path) -> None:
    whole = text([row for number in range(1, 2000) for row in numbered(number, JobName=f"n{number * 7919}")])
    file = tmp_path / "dump.psv.gz"
    file.write_bytes(gzip.compress(whole.encode())[:-2000])
    records = together(list(read_dump(file, SETTINGS)))
    count = len(records.jobs)
    assert 0 < count < 1999
    assert records.jobs["job_id"].to_pylist() == list(range(1, count + 1))
    assert records.steps["job"].to_pylist() == list(range(count))
    assert len(records.quarantined) == 1
    assert " ends " in records.quarantined[0].reason
    assert "ends in the middle of line" in records.cut_off


def test_a_last_line_without_a_newline_is_not_taken(tmp_path: Path) -> None:
    records = read(tmp_path, text([*numbered(99), job(), step()])[:-1])
    assert records.jobs["job_id"].to_pylist() == [99]
    assert " ends " in records.quarantined[0].reason
    assert "has no newline at its end" in records.cut_off


@pytest.mark.parametrize("delimiter", ["|", ","])
def test_a_line_that_was_cut_off_is_not_taken_for_a_missing_newline(tmp_path: Path, delimiter: str) -> None:
    whole = text([job(ReqTRES="cpu=4", AllocTRES="cpu=4")], delimiter=delimiter).replace("cpu=4,", "cpu=4")
    assert read(tmp_path, whole).cut_off == ""
    assert "ends in the middle of line 2" in read(tmp_path, whole[:-40]).cut_off


def test_bytes_that_are_not_utf_8_are_kept_as_escapes(tmp_path: Path) -> None:
    data = text([job(JobName="M?ller\x00")]).encode().replace(b"M?", b"M\xfc")
    assert read(tmp_path, data).jobs["job_name"].to_pylist() == ["M\\xfcller\\x00"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (text([job()]).encode("utf-16"), "iconv"),
        (text([job()]).encode("utf-16-le"), "iconv"),
        (b"", "empty"),
        (gzip.compress(b"JobID|State\n" * 999, mtime=0)[:20], "no complete line"),
        (b"\xfd7zXZ\x00junk", "decompress it first"),
        (b'{"jobs": []}\n', "--parsable2"),
        (b"       JobID    JobName      State \n------------ ---------- ----------\n", "--parsable2"),
        (text([job()]).split("\n", 1)[1].encode(), "--noheader"),
        (text([job()], ("JobIDRaw", "User", "Submit", "ElapsedRaw")).encode(), "lacks State;"),
        (text([job()], ("JobIDRaw", "State", "Submit")).encode(), "lacks ElapsedRaw"),
        (b"JobIDRaw|State|Submit|CPUTimeRAW\n", "lacks ElapsedRaw .*AllocCPUS"),
        (b"ada|math|main\n", "--noheader"),
        (text([job()], ("JobIDRaw", "State", "Submit")).encode(), "sacct --allusers .* --format=JobIDRaw,"),
        (b"\x1f\x8bjunkjunkjunk", "damaged"),
        (text([job(), step()]).replace("\n", "\r").encode(), "carriage returns as line ends; convert them to newlines"),
        (gzip.compress(text([job()]).replace("\n", "\r").encode()), "carriage returns as line ends"),
        (gzip.compress(b"JobID|State\n" * 999, mtime=0)[:-8] + b"\x00" * 8, "damaged"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_dump_is_refused_with_what_to_do(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(DumpError, match=words):
        read(tmp_path, data)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="cannot read"):
        list(read_dump(tmp_path / "none", SETTINGS))


def test_the_job_table_of_slurmdbd_is_read(tmp_path: Path) -> None:
    line = (
        "id_job,id_array_job,id_array_task,id_user,state,timelimit,time_submit,time_start,time_end,tres_req,tres_alloc,"
        "cpus_req,nodes_alloc,mem_req,partition\n"
        '7,5,3,1000,11,4294967295,1700000000,1700000060,1700000160,"1=4,2=8192,4=1","1=8,2=16384,4=2,1001=2,1002=3",'
        "4,2,9223372036854779904,main\n"
        '8,0,4294967294,1000,1027,60,1700000000,1700000060,1700000160,"1=4","",4,1,8192,main\n'
    )
    settings = msgspec.structs.replace(SETTINGS, gpu_tres=(1001, 1002))
    records = read(tmp_path, line, settings)
    first, second = records.jobs.to_pylist()
    assert (first["job_id"], first["display_id"], first["state"]) == (7, "5_3", "OUT_OF_MEMORY")
    assert (first["limit_s"], first["req_mem_mib"], first["alloc_gpus"]) == (None, 8192, 3)
    assert (second["display_id"], second["state"], second["limit_s"], second["req_mem_mib"]) == (
        "8",
        "REQUEUED",
        3600,
        8192,
    )


def test_tres_numbers_that_may_count_gpus_are_named(tmp_path: Path) -> None:
    line = (
        "id_job,state,time_submit,time_start,time_end,tres_req,tres_alloc\n"
        '7,3,1700000000,1700000060,1700000160,"1=4,2=8192,4=1,5=4","1=8,2=16384,4=2,6=3,7=4,8=5,1001=2,1002=3"\n'
    )
    for gpu_tres, gpus, said in ((), None, "TRES 1001,1002,"), ((1001,), 2, "TRES 1002,"):
        records = read(tmp_path, line, msgspec.structs.replace(SETTINGS, gpu_tres=gpu_tres))
        assert records.jobs["alloc_gpus"].to_pylist() == [gpus]
        assert said in records.missing[-1]
    told = read(tmp_path, line, msgspec.structs.replace(SETTINGS, gpu_tres=(1001, 1002)))
    assert told.jobs["alloc_gpus"].to_pylist() == [3]
    assert "TRES 100" not in "\n".join(told.missing)


def test_the_guides_command_can_be_pasted_and_is_the_advised_one(tmp_path: Path) -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs" / "analyst.md").read_text()
    pasted = re.search(r"^    columns=.*?NAME\.psv\.gz$", guide, re.DOTALL | re.MULTILINE)
    assert pasted
    assert arguments(pasted[0], tmp_path) == arguments(SACCT_COMMAND, tmp_path)


def arguments(command: str, folder: Path) -> bytes:
    """Return the arguments that a shell passes to sacct, one per line."""
    script = f'sacct() {{ printf "%s\\n" "$SLURM_TIME_FORMAT" "$@"; }}\n{command}'
    subprocess.run(["bash", "-c", script], cwd=folder, check=True)
    return gzip.decompress((folder / "NAME.psv.gz").read_bytes())


def test_ids_of_slurmdbd_that_became_decimals_are_no_steps(tmp_path: Path) -> None:
    line = "id_job,state,time_submit,time_start,time_end\n7.0,3,1700000000,1700000060,1700000160\n"
    assert read(tmp_path, line).jobs["job_id"].to_pylist() == [7]


@needs_traces("slurm/*")
class TestPublicTables:
    """Tables of real sites are read completely."""

    def test_the_table_of_a_university_cluster_is_read(self) -> None:
        settings = msgspec.structs.replace(SETTINGS, zone=ZoneInfo("America/Costa_Rica"))
        records = together(list(read_dump(TRACES / "slurm" / "kabre_sacct.psv.gz", settings)))
        assert len(records.jobs) + len(records.quarantined) == 30_376
        reasons = {one.reason for one in records.quarantined}
        assert reasons == {
            "CPUTimeRAW does not match the requested CPUs: the job was given others, and AllocCPUS is missing"
        }
        assert len(records.quarantined) < 0.12 * 30_376
        assert max(records.jobs["elapsed_s"].to_pylist()) < 40 * 86400

    def test_the_table_of_a_supercomputer_is_read(self) -> None:
        settings = msgspec.structs.replace(SETTINGS, gpu_tres=(1001, 1002))
        records = together(list(read_dump(TRACES / "slurm" / "mit_supercloud_slurmdbd.csv.gz", settings)))
        assert (len(records.jobs), records.quarantined) == (9_628, ())
        states = records.jobs["state"].to_pylist()
        assert (states.count("COMPLETED"), states.count("OUT_OF_MEMORY"), states.count("NODE_FAIL")) == (
            5784,
            21,
            12,
        )
        assert None not in records.jobs["req_mem_mib"].to_pylist()
        assert sum(gpus or 0 for gpus in records.jobs["alloc_gpus"].to_pylist()) > 1000
