"""Running sacct, and reading what it prints."""

from pathlib import Path

import pytest

from accounting.errors import SlurmError
from accounting.sacct import COLUMNS, DELIMITER, query_sacct, read_sacct
from tests.builders import HEADING, T0, FakeSacct, executable, job_line, sacct_line, step_line


def test_a_job_and_its_steps_are_read() -> None:
    reading = read_sacct([HEADING, job_line(7), step_line(7), step_line(7, "0", NTasks="4")])
    [(row, (batch, srun))] = reading.jobs
    assert (row.job_id, row.user, row.job_name, row.state) == (7, "alice", "fit", "COMPLETED")
    assert (row.req_cpus, row.req_mem_mib, row.alloc_cpus, row.limit_s) == (8, 8000, 8, 3600)
    assert (row.submit_s, row.start_s, row.end_s, row.elapsed_s) == (T0, T0 + 10, T0 + 110, 100)
    assert (batch.step_id, batch.mem_total_mib, batch.cpu_s, batch.tasks) == ("batch", 200, 90, 1)
    assert (srun.step_id, srun.tasks) == ("0", 4)
    assert (reading.quarantined, reading.unfinished) == ([], 0)


def test_attempts_of_a_requeued_job_keep_their_own_steps() -> None:
    reading = read_sacct(
        [
            HEADING,
            job_line(7, State="REQUEUED"),
            step_line(7, MaxRSS="1048576", TRESUsageInTot="mem=1048576"),
            job_line(7, start_s=T0 + 500),
            step_line(7, start_s=T0 + 500),
            step_line(7, "extern", start_s=T0 + 500),
        ]
    )
    assert [(row.start_s, len(steps)) for row, steps in reading.jobs] == [(T0 + 10, 1), (T0 + 500, 2)]
    assert reading.jobs[0][1][0].mem_total_mib == 1
    assert reading.jobs[1][1][0].mem_total_mib == 200


def test_a_step_never_goes_to_another_job() -> None:
    reading = read_sacct([HEADING, step_line(6), job_line(7), step_line(70), step_line(8), step_line(7)])
    [(row, steps)] = reading.jobs
    assert (row.job_id, [one.step_id for one in steps]) == (7, ["batch"])


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "SOMETHING_NEW"])
def test_unfinished_jobs_are_counted_and_left_for_later(state: str) -> None:
    reading = read_sacct([HEADING, job_line(7, State=state, End="Unknown"), step_line(7), job_line(8)])
    assert [row.job_id for row, _ in reading.jobs] == [8]
    assert reading.unfinished == 1


def test_a_job_cancelled_before_it_started_has_no_start() -> None:
    line = job_line(7, State="CANCELLED by 1000", Start="None", ElapsedRaw="0", AllocTRES="")
    [(row, steps)] = read_sacct([HEADING, line]).jobs
    assert (row.start_s, row.alloc_cpus, steps) == (0, None, ())


@pytest.mark.parametrize("limit", ["UNLIMITED", "Partition_Limit", ""])
def test_no_time_limit_is_none(limit: str) -> None:
    assert read_sacct([HEADING, job_line(TimelimitRaw=limit)]).jobs[0][0].limit_s is None


@pytest.mark.parametrize(
    "line",
    [
        job_line() + DELIMITER,
        job_line().rpartition(DELIMITER)[0],
        "sacct: warning in between",
        job_line(JobIDRaw="12_3"),
        job_line(JobIDRaw=""),
        job_line(JobIDRaw="9" * 30),
        job_line(Submit="Unknown"),
        job_line(End=str(T0)),
    ],
)
def test_a_line_that_does_not_fit_is_quarantined_and_the_rest_is_read(line: str) -> None:
    reading = read_sacct([HEADING, line, job_line(8), step_line(8)])
    assert [(row.job_id, len(steps)) for row, steps in reading.jobs] == [(8, 1)]
    assert [item.line for item in reading.quarantined] == [line]
    assert reading.quarantined[0].reason


@pytest.mark.parametrize("name", ["|||COMPLETED|0:0", "x\u2028y\x0bz\r", "größe 日本", "a,b=c;d", "'; --"])
def test_hostile_names_are_names(name: str, tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path, [job_line(7, JobName=name, Comment=name), step_line(7)])
    [(row, steps)] = read_sacct(query_sacct(fake.command, T0, T0 + 100)).jobs
    assert (row.job_name, row.comment, row.state, len(steps)) == (name, name, "COMPLETED", 1)


@pytest.mark.parametrize("name", ["two\nlines", "8\nCOMPLETED", f"forged{DELIMITER}column"])
def test_names_that_break_their_line_lose_only_their_own_job(name: str, tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path, [job_line(7, JobName=name), step_line(7), job_line(8), step_line(8)])
    reading = read_sacct(query_sacct(fake.command, T0, T0 + 100))
    assert [(row.job_id, len(steps)) for row, steps in reading.jobs if row.job_id == 8] == [(8, 1)]
    assert all(row.job_id == 8 for row, _ in reading.jobs)
    assert len(reading.quarantined) == 1 + name.count("\n")


def test_columns_that_were_cut_short_are_never_taken_for_a_row() -> None:
    line = sacct_line(JobIDRaw="7", State="COMPLETED")
    assert not read_sacct([HEADING, line]).jobs


def test_sacct_is_asked_for_the_window_in_unix_seconds(tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path, [job_line(7), job_line(8, start_s=T0 + 5000)])
    lines = query_sacct(fake.command, T0, T0 + 1000)
    assert fake.calls() == [(T0, T0 + 1000)]
    assert lines == [HEADING, job_line(7)]


def test_sacct_runs_in_an_environment_that_does_not_change_its_figures(tmp_path: Path) -> None:
    spy = executable(
        tmp_path / "sacct",
        f'#!/bin/sh\necho "$SLURM_TIME_FORMAT $TZ" > {tmp_path}/seen\n'
        f'for word; do echo "$word" >> {tmp_path}/words; done\nprintf "%s\\n" "{HEADING}"\n',
    )
    assert query_sacct(str(spy), 5, 10) == [HEADING]
    assert (tmp_path / "seen").read_text() == "%s UTC\n"
    words = (tmp_path / "words").read_text().splitlines()
    assert {
        "--allusers",
        "--duplicates",
        "--parsable2",
        "--noconvert",
        f"--format={','.join(COLUMNS)}",
    } <= set(words)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'sacct: fatal: no slurmdbd' >&2; exit 1", "no slurmdbd"),
        ("exit 3", "no message"),
        ("exit 0", "columns"),
        ("echo 'JobID|State'", "columns"),
        ("printf '\\377\\376'; exit 0", "columns"),
        ("kill -9 $$", "failed"),
    ],
)
def test_a_broken_sacct_is_an_error_that_says_what_to_do(script: str, said: str, tmp_path: Path) -> None:
    command = executable(tmp_path / "sacct", f"#!/bin/sh\n{script}\n")
    with pytest.raises(SlurmError, match=said) as caught:
        query_sacct(str(command), 0, 1)
    assert "check that" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_sacct_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match=r"No such file.*accounting\.sacct"):
        query_sacct(str(tmp_path / "nothing"), 0, 1)
