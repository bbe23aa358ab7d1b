"""Splits lines of a dump into columns of text, grouped by job with its steps; lines that do not fit get a reason."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting import columns
from accounting.dumps.heading import Heading
from accounting.dumps.lines import Block
from accounting.ids import JobId, parse_job_id

# A text that forges lines breaks the line that holds it: lines this near to a piece of a broken line are in doubt.
REACH_LINES = 64
# The reason for empty lines, for headings repeated in the middle of a file, and for repeated lines.
NOTHING = "nothing"


@dataclass(frozen=True)
class Rows:
    """The lines of a block. `reasons` says why a line is rejected ('' if it is not so far).

    `group` numbers jobs from 0, for a job's line and the lines of its steps; -1 for steps whose job does not
    precede them. `ids` is None if the dump has no ids.
    """

    heading: Heading
    first: int
    lines: list[str]
    texts: list[pa.Array]
    reasons: np.ndarray
    group: np.ndarray
    is_job: np.ndarray
    ids: columns.JobIds | None

    @property
    def numbers(self) -> np.ndarray:
        """The line numbers; the heading is line 1."""
        return np.arange(self.first, self.first + len(self.lines))

    def text(self, thing: str) -> pa.Array | None:
        """Return a column's texts; None if the dump has no such column."""
        return self.texts[self.heading.place[thing]] if self.heading.has(thing) else None

    def mark(self, wrong: pa.Array | np.ndarray, reason: str) -> None:
        """Give a reason to those lines that have none yet."""
        mask = np.asarray(
            wrong.to_numpy(zero_copy_only=False) if isinstance(wrong, pa.Array) else wrong, bool
        )
        self.reasons[mask & (self.reasons == "")] = reason


def split_rows(heading: Heading, block: Block) -> Rows:
    """Split a block's lines into columns and group them by job."""
    lines, delimiter = _unquoted(heading, block.lines) if heading.quoted else (block.lines, heading.delimiter)
    width = len(heading.names)
    counts = np.asarray(pc.count_substring(pa.array(lines, pa.string()), delimiter)) + 1
    reasons = np.full(len(lines), "", object)
    odd = np.flatnonzero(counts != width)
    for place in odd:
        reasons[place] = f"{counts[place]} columns instead of {width}"
    heading_line = heading.line.replace(heading.delimiter, delimiter).replace('"', "")
    has_ids = _id_place(heading) is not None
    for at, line in enumerate(lines):
        # Dumps with overlapping times that were sorted into one have lines twice: a step would count twice for its job.
        is_again = has_ids and at > 0 and line == lines[at - 1] and counts[at] == width
        if not line or line == heading_line or is_again:
            reasons[at] = NOTHING
    fitted = list(lines) if odd.size else lines
    for place in odd:
        fitted[place] = _id_alone(heading, lines[place], delimiter)
    flat = pc.list_flatten(pc.split_pattern(pa.array(fitted, pa.string()), delimiter))
    texts = [flat.take(pa.array(np.arange(column, len(flat), width))) for column in range(width)]
    if heading.free_text:
        # A last line that was cut off is short for a different reason.
        whole = slice(len(lines) - 1 if block.cut_off else len(lines))
        _doubt_near_pieces(_have_ids(heading, texts)[whole], counts[whole], width, reasons[whole])
    if block.cut_off and lines:
        reasons[-1] = block.cut_off
    return group_rows(heading, block.first, block.lines, texts, reasons)


def _have_ids(heading: Heading, texts: list[pa.Array]) -> np.ndarray:
    """Whether each line has an id in its place; true for all lines if the dump has no ids."""
    place = _id_place(heading)
    if place is None:
        return np.ones(len(texts[0]), bool)
    return np.asarray(pc.is_valid(columns.job_ids(texts[place]).number))


def group_rows(
    heading: Heading, first: int, lines: list[str], texts: list[pa.Array], reasons: np.ndarray
) -> Rows:
    """Group columns of text by job with its steps; `lines` are what is shown of rejected lines."""
    size = len(lines)
    source = next((name for name in ("raw_id", "id") if heading.has(name)), None)
    if source is None:
        everything = np.ones(size, bool)
        return Rows(heading, first, lines, texts, reasons, np.arange(size), everything, None)
    text = texts[heading.place[source]]
    if heading.slurmdbd:
        # slurmdbd's job table has no steps: 123.0 is a number that went through another program.
        text = pc.replace_substring_regex(text, r"\.0$", "")
    ids = columns.job_ids(text)
    is_step = np.asarray(pc.is_valid(ids.step_id))
    # A line that says nothing begins no job: the steps after it belong to the job before it.
    is_job = ~is_step & (reasons != NOTHING)
    group = np.where(reasons == NOTHING, -1, np.cumsum(is_job) - 1)
    leaders = np.flatnonzero(is_job)
    names = np.asarray(ids.display_id.to_numpy(zero_copy_only=False), object)
    orphan = is_step & (group < 0) & (reasons != NOTHING)
    follows = is_step & (group >= 0)
    orphan[follows] = names[follows] != names[leaders[group[follows]]]
    rows = Rows(heading, first, lines, texts, reasons, np.where(orphan, -1, group), is_job, ids)
    rows.mark(pc.greater(pc.fill_null(ids.number, 2**32), 2**32 - 1), "no job id")
    rows.mark(orphan, "the line of its job is not before it")
    # A job separated from some of its steps would look as if it had used less.
    rows.mark(is_job & np.isin(names.astype(str), names[orphan].astype(str)), "its steps do not follow it")
    return rows


def _doubt_near_pieces(has_id: np.ndarray, counts: np.ndarray, width: int, reasons: np.ndarray) -> None:
    """Doubt the lines between the pieces of a broken line, and near a piece whose other pieces look whole.

    A line broken by a text in it begins with its id, and its pieces together have as many delimiters as a whole
    line, or more if the text itself holds some.
    """
    pieces = np.flatnonzero((reasons != NOTHING) & ((counts < width) | ~has_id)).tolist()
    broken_at, delimiters = -1, 0
    for run in _runs(pieces):
        if broken_at >= 0:
            _doubt(reasons[broken_at : min(run[0], broken_at + REACH_LINES)])
        if broken_at < 0 or run[0] - broken_at > REACH_LINES:
            delimiters = 0 if has_id[run[0]] else width
            if not has_id[run[0]]:
                _doubt(reasons[max(0, run[0] - REACH_LINES) : run[0]])
        delimiters += sum(counts[at] - 1 for at in run)
        broken_at = run[-1] + 1 if delimiters < width - 1 else -1
    if broken_at >= 0:
        _doubt(reasons[broken_at : broken_at + REACH_LINES])


def _doubt(reasons: np.ndarray) -> None:
    reasons[reasons == ""] = "it is next to a piece of a broken line, and may be forged"


def _runs(places: list[int]) -> Iterator[list[int]]:
    """Yield runs of consecutive places."""
    for _, run in groupby(enumerate(places), lambda numbered: numbered[1] - numbered[0]):
        yield [place for _, place in run]


def _id_place(heading: Heading) -> int | None:
    return next((heading.place[name] for name in ("raw_id", "id") if heading.has(name)), None)


def _id_alone(heading: Heading, line: str, delimiter: str) -> str:
    """Return a line of the proper width that holds only its id, which says whose line it is."""
    place, values = _id_place(heading), line.split(delimiter)
    fitted = [""] * len(heading.names)
    if place is not None and place < len(values):
        fitted[place] = values[place]
    return delimiter.join(fitted)


def _unquoted(heading: Heading, lines: list[str]) -> tuple[list[str], str]:
    """Return lines of a CSV file with a delimiter that needs no quotes; a line with unbalanced quotes is unchanged."""
    return [_without_quotes(line, heading.delimiter) for line in lines], "\x1f"


def _without_quotes(line: str, delimiter: str) -> str:
    if "\x1f" in line:
        return line
    if '"' not in line:
        return line.replace(delimiter, "\x1f")
    try:
        values = next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:
        return line
    return "\x1f".join(values)


def is_whole_line(heading: Heading, line: str) -> bool:
    """Whether a line has all its columns, and an id in its place."""
    plain, delimiter = _plain(heading, line)
    return plain.count(delimiter) == len(heading.names) - 1 and _id_of(heading, line) is not None


def is_job_line(heading: Heading, line: str) -> bool:
    """Whether a line is of a job, not of a step: a block may end before it."""
    parsed = _id_of(heading, line)
    return parsed is not None and parsed.step_id is None


def _id_of(heading: Heading, line: str) -> JobId | None:
    place = _id_place(heading)
    if place is None:
        return JobId(number=0, display_id="")
    plain, delimiter = _plain(heading, line)
    values = plain.split(delimiter, place + 1)
    return parse_job_id(values[place].strip('"')) if place < len(values) else None


def _plain(heading: Heading, line: str) -> tuple[str, str]:
    """Return a line and the delimiter of its columns; in a CSV file, a delimiter within quotes separates nothing."""
    if not heading.quoted:
        return line, heading.delimiter
    (plain,), delimiter = _unquoted(heading, [line])
    return plain, delimiter
