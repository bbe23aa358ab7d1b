"""Names and comments in sacct's second answer: each goes to its own job, whatever it holds and however late it is."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import SlurmError
from accounting.slurm.sacct import DELIMITER, FIGURES, KEY, TEXTS, Answer
from accounting.slurm.sacct_records import read_answer
from accounting.slurm.texts import split_rows, text_alone
from tests.accounting.slurm.test_sacct_records import METERING, UNTIL_S, attempts
from tests.builders import DRAWN, T0, SacctRow, answer_of, job_line, printed, step_line


def forged(job_id: int, columns: tuple[str, ...], **changes: Any) -> str:
    """A row as sacct prints it, to be put into a name."""
    row = job_line(job_id, **changes)
    return DELIMITER.join(row[name] for name in columns)


HOSTILE = [
    "|||COMPLETED|0:0",
    "x\u2028y\x0bz\r",
    "größe 日本 🦙",
    "a,b=c;d",
    "'; --",
    '"quoted"',
    "tab\there",
    "",
    " ",
    "a\nb|c|d",
    "two\n\nlines\n",
    "\n",
    f"forged{DELIMITER}column",
    f"{DELIMITER}{DELIMITER}",
    "x" * 1000,
    "8\nCOMPLETED",
    "y\n" + forged(8, (*KEY, *TEXTS), JobName="not mine"),
    f"y{DELIMITER}{DELIMITER}\n" + forged(8, (*KEY, *TEXTS), JobName="not mine"),
    f"y{DELIMITER}{DELIMITER}\n"
    + forged(9, (*KEY, *TEXTS), JobName="not mine", AdminComment="rightsizer/1;id=a"),
    f"y{DELIMITER}{DELIMITER}\n" + forged(999, (*KEY, *TEXTS)),
    "y\n" + forged(8, FIGURES, State="OUT_OF_MEMORY"),
    f"y{DELIMITER}{DELIMITER}\n" + "\n".join(forged(job_id, (*KEY, *TEXTS)) for job_id in (8, 9, 7)),
]


@pytest.mark.parametrize(("name", "text"), list(itertools.product(HOSTILE, TEXTS)))
def test_hostile_texts_are_read_as_texts(name: str, text: str) -> None:
    hostile: dict[str, Any] = {text: name}
    rows = [job_line(6), job_line(7, **hostile), step_line(7), job_line(8, JobName="eight"), job_line(9)]
    found = attempts(*rows)
    assert [one.row.job_id for one in found] == [6, 7, 8, 9]
    rows_read = [one.row for one in found]
    asked = [(row.job_name, row.comment, row.admin_comment, row.account) for row in rows_read]
    plain = ("fit", "", "", "phys")
    mine = tuple(name if one == text else other for one, other in zip(TEXTS, plain, strict=True))
    assert asked == [plain, mine, ("eight", "", "", "phys"), plain]


JOBS = st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=6)


@given(JOBS, JOBS)
def test_any_mix_of_hostile_texts_comes_out_as_it_went_in(names: list[str], comments: list[str]) -> None:
    texts = list(zip(names, comments, strict=False))
    rows = [job_line(7 + place, JobName=name, Comment=text) for place, (name, text) in enumerate(texts)]
    assert [(one.row.job_name, one.row.comment) for one in attempts(*rows)] == texts


def test_bytes_that_are_no_text_are_escaped() -> None:
    [attempt] = attempts(job_line(7, JobName="a\udcffb"))
    assert attempt.row.job_name == "a\\xffb"


def test_attempts_of_a_requeued_job_may_have_different_hostile_names() -> None:
    rows = [job_line(7, State="REQUEUED", JobName="a\nb"), job_line(7, start_s=T0 + 500, JobName="c\nd")]
    assert [one.row.job_name for one in attempts(*rows, job_line(8))] == ["a\nb", "c\nd", "fit"]


def without_texts(rows: list[SacctRow], missing: int) -> Answer:
    """What sacct answers where the texts of the first `missing` rows came only after they had been asked for."""
    texts = printed((*KEY, *TEXTS), rows[missing:], DRAWN)
    return msgspec.structs.replace(answer_of(rows), texts=texts)


def test_a_text_that_came_late_is_asked_for() -> None:
    [records] = read_answer(without_texts([job_line(7), job_line(8)], 1), UNTIL_S, METERING)
    assert records.jobs["job_name"].to_pylist() == ["fit", "fit"]


def test_as_many_lines_of_texts_as_jobs_may_belong_to_other_jobs() -> None:
    left, two_lines, stayed = job_line(6, JobName="a"), job_line(7, JobName="b\nc"), job_line(8, JobName="d")
    late = job_line(9)
    for before, now in (([two_lines], [two_lines, late]), ([left, stayed], [stayed, late])):
        texts = printed((*KEY, *TEXTS), before, DRAWN)
        [records] = read_answer(msgspec.structs.replace(answer_of(now), texts=texts), UNTIL_S, METERING)
        assert records.jobs["job_name"].to_pylist() == [row["JobName"] for row in now]


def test_texts_that_end_in_the_middle_of_a_row_are_refused() -> None:
    answer = answer_of([job_line(7), job_line(8)])
    cut = answer.texts.rpartition(DRAWN.encode())[0] + b"\n"
    with pytest.raises(SlurmError, match="ends in the middle of a row"):
        list(read_answer(msgspec.structs.replace(answer, texts=cut), UNTIL_S, METERING))


@pytest.mark.parametrize("lines", [[b"a warning", b"7|x"], [b"7|x", b"8|y|z"]], ids=["none", "too_many"])
def test_lines_that_make_no_rows_are_refused(lines: list[bytes]) -> None:
    with pytest.raises(SlurmError, match="columns do not match"):
        split_rows(lines, b"|", 2)


@pytest.mark.parametrize(
    ("printed", "attempts", "text"),
    [
        (b"fit\n", 1, b"fit"),
        (b"\n", 1, b""),
        (b"a\nb\n", 1, b"a\nb"),
        (b"fit\nfit\n", 2, b"fit"),
        (b"fit\nfat\n", 2, None),
        (b"fit\nf\nit\n", 2, None),
        # Cut off; and of a job that sacct does not know any more.
        (b"fit", 1, None),
        (b"", 1, None),
    ],
)
def test_a_text_asked_for_alone_must_be_whole_and_the_same_for_every_attempt(
    printed: bytes, attempts: int, text: bytes | None
) -> None:
    assert text_alone(printed, attempts) == text


def test_the_text_of_a_job_that_has_not_ended_is_not_asked_for() -> None:
    rows = [job_line(7, State="RUNNING", End="Unknown"), job_line(8)]
    late = msgspec.structs.replace(without_texts(rows, 1), one_text=no_question)
    [records] = read_answer(late, UNTIL_S, METERING)
    assert (records.jobs["job_id"].to_pylist(), records.unfinished, records.quarantined) == ([8], 1, ())


def test_the_text_of_tasks_that_never_started_is_that_of_their_array() -> None:
    never: dict[str, Any] = {
        "JobID": "12_[3-5]",
        "State": "CANCELLED by 0",
        "Start": "None",
        "ElapsedRaw": "0",
    }
    rows = [job_line(12, **never, JobName="a\nb"), job_line(13, JobID="12_1", JobName="a\nb"), job_line(14)]

    def of_array(display_id: str, column: str) -> bytes:
        assert display_id == "12"
        return "".join(f"{row[column]}\n" for row in rows[:2]).encode()

    late = msgspec.structs.replace(without_texts(rows, 1), one_text=of_array)
    [records] = read_answer(late, UNTIL_S, METERING)
    assert records.jobs["job_name"].to_pylist() == ["a\nb", "a\nb", "fit"]


def test_many_texts_that_came_late_are_asked_for_in_one_call() -> None:
    rows = [job_line(number, JobName=f"n{number}\nx") for number in range(50)]
    asked = []

    def again() -> tuple[bytes, str]:
        asked.append(1)
        return printed((*KEY, *TEXTS), rows, "|drawn anew|"), "|drawn anew|"

    late = msgspec.structs.replace(without_texts(rows, 40), one_text=no_question, texts_again=again)
    [records] = read_answer(late, UNTIL_S, METERING)
    assert records.jobs["job_name"].to_pylist() == [row["JobName"] for row in rows]
    assert asked == [1]


def test_a_name_that_cannot_be_determined_is_quarantined_with_its_job() -> None:
    rows = [
        job_line(7, State="REQUEUED", JobName="a"),
        job_line(7, start_s=T0 + 500, JobName="b"),
        job_line(8),
    ]
    [records] = read_answer(without_texts(rows, 2), UNTIL_S, METERING)
    assert records.jobs["job_id"].to_pylist() == [8]
    assert [item.reason for item in records.quarantined] == ["sacct did not give its name and comments"] * 2


def test_answers_that_contradict_each_other_are_refused() -> None:
    rows = [job_line(number) for number in range(3000)]
    fewer = msgspec.structs.replace(answer_of(rows), texts=printed((*KEY, *TEXTS), rows[:1000], DRAWN))
    with pytest.raises(SlurmError, match="differ in 2000 of 3000 jobs"):
        list(read_answer(fewer, UNTIL_S, METERING))


def test_many_names_that_forge_rows_of_many_jobs_cause_no_further_call() -> None:
    rows = [job_line(number) for number in range(1, 1501)]
    forged = [DELIMITER.join((row["JobIDRaw"], row["Submit"], "", "", "")) for row in rows]
    hostile = [
        job_line(2000 + number, Comment="x\n" + "\n".join(forged[begin : begin + 37]))
        for number, begin in enumerate(range(0, 1500, 37))
    ]
    answer = msgspec.structs.replace(answer_of([*rows, *hostile]), one_text=no_question)
    [records] = read_answer(answer, UNTIL_S, METERING, most_jobs=10_000)
    assert records.jobs["comment"].to_pylist() == [row["Comment"] for row in (*rows, *hostile)]
    assert not records.quarantined


def no_question(display_id: str, column: str) -> bytes:
    raise AssertionError(f"asked for {column} of {display_id}")
