"""What sacct prints and what dumps contain: every line becomes a job, a step or a line with a reason."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator

import msgspec

from accounting.dumps.read import read_dump
from accounting.errors import DumpError, SlurmError
from accounting.frames import Records
from accounting.slurm.sacct import DELIMITER, FIGURES, KEY, TEXTS, Answer
from accounting.slurm.sacct_records import Metering, read_answer
from tests.accounting.dumps.table import COLUMNS, SETTINGS, numbered, text
from tests.builders import DRAWN, answer_of, job_line, sacct_row, step_line
from tests.fuzz.corpus import captured, found, scratch
from tests.fuzz.target import Target

# Separates sacct's two answers, and what it says when it is asked for one text again.
PARTED = b"\n=====\n"
LATER_S = 10**18
# What ends after that belongs to a later reading.
ENDS_LATER = re.compile(rb"\d{19}")
# One dump in PARTED_DUMPS is also read in small blocks (bytes).
PARTED_DUMPS, SMALL_BLOCK = 8, 700
FIGURES_HEADING = DELIMITER.join(FIGURES).encode()
TEXTS_HEADING = DRAWN.join((*KEY, *TEXTS)).encode()


def check_sacct(data: bytes) -> None:
    """Check that no row is lost: each is taken, quarantined, or belongs to a job that has not ended."""
    figures, texts, again = (*data.split(PARTED, 2), b"", b"")[:3]
    if ENDS_LATER.search(figures):
        return
    answer = Answer(
        figures=b"\n".join(filter(None, [FIGURES_HEADING, figures])) + b"\n",
        texts=b"\n".join(filter(None, [TEXTS_HEADING, texts])) + b"\n",
        texts_delimiter=DRAWN,
        one_text=lambda _job, _column: again,
        one_id=(lambda _job, _column: again) if again else None,
    )
    try:
        (records,) = read_answer(answer, LATER_S, Metering())
    except SlurmError:
        return  # the two answers contradict each other
    rows = len(answer.figures.removesuffix(b"\n").split(b"\n")) - 1
    all_there(records, rows, sum(one.line.count("\n") + 1 for one in records.quarantined))


def all_there(records: Records, rows: int, aside: int) -> None:
    """Check that `rows` lines are taken, `aside`, or of jobs that have not ended; and that figures are figures."""
    left = rows - len(records.jobs) - len(records.steps) - aside
    assert left >= records.unfinished, (rows, len(records.jobs), len(records.steps), aside, records)
    assert records.unfinished or not left, (rows, len(records.jobs), len(records.steps), aside, records)
    for one in records.jobs.to_pylist():
        assert one["job_id"] is not None
        assert all(value is None or value >= 0 for name, value in one.items() if name in AMOUNTS), one
    for one in records.steps.to_pylist():
        assert 0 <= one["job"] < len(records.jobs)


AMOUNTS = frozenset(
    ("limit_s", "elapsed_s", "nodes", "req_cpus", "req_mem_mib", "alloc_cpus", "alloc_mem_mib", "alloc_gpus")
)


def sacct_seeds() -> Iterator[bytes]:
    """Yield answers of jobs and steps, and what each release printed, in the columns that we ask for."""
    rows = [job_line(1), step_line(1), step_line(1, "0"), job_line(2, State="RUNNING", End="0"), job_line(3)]
    yield parted(answer_of(rows))
    yield parted(answer_of([job_line(4, JobID="4_[1-5]", State="CANCELLED by 0", Start="0")]))
    yield parted(answer_of([job_line(5, JobName="a\nb", Comment=f"x{DELIMITER}y")]), again=b"a\nb\n")
    for raw in captured("sacct/*/raw.txt"):
        heading, *lines = raw.decode(errors="surrogateescape").split("\n")
        names = heading.split(DELIMITER)
        whole = [line.split(DELIMITER) for line in lines if line.count(DELIMITER) == len(names) - 1]
        made = [dict(zip(names, values, strict=True)) for values in whole]
        kept = [sacct_row({}, {name: row.get(name, "") for name in (*FIGURES, *TEXTS)}) for row in made]
        for begin in range(0, len(kept), 6):
            yield parted(answer_of(kept[begin : begin + 6]))
    yield from found("sacct")


def parted(answer: Answer, again: bytes = b"") -> bytes:
    """Return an answer as one input, without its headings."""
    figures, texts = (one.partition(b"\n")[2].removesuffix(b"\n") for one in (answer.figures, answer.texts))
    return PARTED.join(filter(None, (figures, texts, again)))


def check_dump(data: bytes) -> None:
    """Check a file made by others, read in one block or in many: it gives records or a DumpError."""
    file = scratch("dumps") / "dump.psv"
    file.write_bytes(data)
    for block_bytes in (SETTINGS.block_bytes, SMALL_BLOCK)[: 1 + (zlib.crc32(data) % PARTED_DUMPS == 0)]:
        settings = msgspec.structs.replace(SETTINGS, block_bytes=block_bytes)
        try:
            parts = list(read_dump(file, settings))
        except DumpError:
            continue
        for part in parts:
            for one in part.jobs.to_pylist():
                assert one["job_id"] is not None
                assert all(value is None or value >= 0 for name, value in one.items() if name in AMOUNTS), one
            jobs = {one["job"] for one in part.steps.to_pylist()}
            assert jobs <= set(range(len(part.jobs)))


def dump_seeds() -> Iterator[bytes]:
    """Yield dumps: with all columns and few, with other delimiters, compressed, and what each release printed."""
    rows = [row for number in (100, 101) for row in numbered(number)]
    plain = text(rows)
    yield plain.encode()
    yield text(rows, COLUMNS, "\x1f").encode()
    yield text(
        rows, ("JobID", "State", "Submit", "ElapsedRaw", "ReqMem", "ReqCPUS", "NNodes", "MaxRSS")
    ).encode()
    yield gzip.compress(plain.encode(), mtime=0)
    yield (
        b'"id_job","id_array_job","id_array_task","time_submit","time_start","time_end","state","tres_req",'
        b'"cpus_req","timelimit","job_name"\n'
        b'1,0,4294967294,1700000000,1700000010,1700000100,3,"1=4,2=4096,4=1",4,60,"a ""b"", c"\n'
    )
    for pattern in ("sacct/*/plain.psv", "sacct/*/jobs.psv"):
        for dump in captured(pattern):
            yield b"\n".join(dump.split(b"\n")[:8]) + b"\n"
    yield from found("dumps")


WORDS = (PARTED, *(
    word.encode()
    for word in (
        DELIMITER, DRAWN, "COMPLETED", "CANCELLED by 0", "RUNNING", "OUT_OF_MEMORY", "4_[1-5]", "7+1", "1.batch", "1.0",
        "billing=8,cpu=8,mem=8000M,node=1", "mem=8388608E", "gres/gpu=4", "Unknown", "UNLIMITED", "1-02:03:04.5",
        "1048576K", "100Mc", "4294967294", "999999999999999999", "JobIDRaw", "Submit", "ElapsedRaw", "End",
        "\r", "\x00",
    )
))  # fmt: skip
TARGETS = (
    Target("sacct", check_sacct, sacct_seeds, share=18, words=WORDS),
    Target("dumps", check_dump, dump_seeds, share=2, words=WORDS),
)
