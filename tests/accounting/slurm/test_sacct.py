"""Running sacct: how it is called, and the error if it fails."""

import os
from pathlib import Path

import pytest

from accounting.errors import SlurmError
from accounting.slurm.sacct import DELIMITER, FIGURES, KEY, TEXTS, known_fields, query_sacct, slurm_release
from tests.builders import COLUMNS, T0, FakeSacct, executable, job_line, printed, step_line


def test_sacct_is_asked_for_the_window_in_unix_seconds(tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path, [job_line(7), step_line(7), job_line(8, start_s=T0 + 5000)])
    answer = query_sacct(fake.command, T0, T0 + 1000)
    assert fake.calls() == [(T0, T0 + 1000)]
    assert answer.figures == printed(FIGURES, [job_line(7), step_line(7)])
    assert answer.texts == printed((*KEY, *TEXTS), [job_line(7)], answer.texts_delimiter)
    assert answer.one_text("7", "JobName") == b"fit\n"


def test_texts_come_with_a_delimiter_that_cannot_be_known_in_advance(tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path, [job_line(7)])
    drawn = {query_sacct(fake.command, T0, T0 + 1000).texts_delimiter for _ in range(20)}
    assert len(drawn) == 20
    assert all(len(one) >= 16 and DELIMITER not in one for one in drawn)


def test_no_column_of_the_figures_can_be_written_by_users() -> None:
    theirs = {
        "JobName",
        "Account",
        "Comment",
        "AdminComment",
        "WorkDir",
        "SubmitLine",
        "WCKey",
        "Constraints",
    }
    assert not theirs & set(FIGURES)


def test_figures_that_a_store_quarantined_stay_where_they_are_looked_for() -> None:
    places = {name: FIGURES.index(name) for name in ("JobIDRaw", "Cluster", "End")}
    assert places == {"JobIDRaw": 0, "Cluster": 3, "End": 10}


def test_sacct_runs_in_an_environment_that_does_not_change_its_figures(tmp_path: Path) -> None:
    spy = executable(
        tmp_path / "sacct",
        f'#!/bin/sh\necho "$SLURM_TIME_FORMAT $TZ" > {tmp_path}/seen\n'
        f'for word; do echo "$word" >> {tmp_path}/words\n'
        "case $word in --delimiter=*) cut=${word#*=};; --format=*) columns=${word#*=};; esac; done\n"
        'echo "$columns" | sed "s/,/$cut/g"\n',
    )
    query_sacct(str(spy), 5, 10)
    assert (tmp_path / "seen").read_text() == "%s UTC\n"
    words = (tmp_path / "words").read_text().splitlines()
    always = {"--allusers", "--duplicates", "--parsable2", "--noconvert", f"--delimiter={DELIMITER}"}
    assert {*always, "--starttime=uts5", "--endtime=uts10", f"--format={','.join(FIGURES)}"} <= set(words)


def test_fields_that_an_older_sacct_lacks_are_not_asked_for(tmp_path: Path) -> None:
    old = frozenset(COLUMNS) - {"ConsumedEnergyRaw", "TRESUsageOutTot"}
    fake = executable(tmp_path / "sacct", f"#!/bin/sh\necho '{' '.join(old)}'\n")
    assert known_fields(str(fake)) == old
    answer = query_sacct(FakeSacct(tmp_path / "new", [job_line(7)]).command, T0, T0 + 100, old)
    assert b"ConsumedEnergyRaw" not in answer.figures


def test_a_sacct_that_lacks_a_required_field_is_an_error(tmp_path: Path) -> None:
    fake = executable(tmp_path / "sacct", "#!/bin/sh\necho 'JobID JobIDRaw State'\n")
    with pytest.raises(SlurmError, match="does not know Account, AdminComment"):
        known_fields(str(fake))


@pytest.mark.parametrize(
    ("said", "release"), [("slurm 24.11.5", "24.11"), ("slurm-wlm 22.05.8", "22.05"), ("?", "")]
)
def test_the_release_is_the_one_that_sacct_reports(said: str, release: str, tmp_path: Path) -> None:
    assert slurm_release(str(executable(tmp_path / "sacct", f"#!/bin/sh\necho '{said}'\n"))) == release


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


def test_a_sacct_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounting.slurm.sacct.ANSWER_WAIT_S", 0.3)
    command = executable(tmp_path / "sacct", f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 600\n")
    with pytest.raises(SlurmError, match=r"did not answer within 0.3 s and was stopped; check that slurmdbd"):
        query_sacct(str(command), 0, 1)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize(
    "last", ["JobName,Comment,AdminComment,Account", "ConsumedEnergyRaw"], ids=["texts", "figures"]
)
def test_an_answer_that_ends_in_the_middle_of_a_line_is_refused(last: str, tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path / "whole", [job_line(7)])
    short = f'case "$*" in *{last}) {fake.command} "$@" | head -c -3;; *) {fake.command} "$@";; esac'
    command = executable(tmp_path / "sacct", f"#!/bin/sh\n{short}\n")
    with pytest.raises(SlurmError, match="ends in the middle of a line"):
        query_sacct(str(command), T0, T0 + 1000)


def test_a_missing_sacct_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match=r"No such file.*accounting\.sacct"):
        query_sacct(str(tmp_path / "nothing"), 0, 1)
