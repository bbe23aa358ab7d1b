"""How far a file was read counts for this very file: by its first line, and by what lies before the mark."""

from pathlib import Path

import pytest

from accounting.journal.marks import Mark, mark_of, read_to

NAME = "decisions-20260101.jsonl"
LINES = b"first\nsecond\n"


@pytest.mark.parametrize(
    ("content", "read_bytes"),
    [
        (LINES, len(LINES)),
        (LINES + b"third\n", len(LINES)),
        (b"other\nsecond\n", 0),
        (b"first\nchanged\n", 0),
        (b"first\n", 0),
    ],
)
def test_a_mark_counts_for_what_goes_on_as_it_was_read(
    content: bytes, read_bytes: int, tmp_path: Path
) -> None:
    file = tmp_path / NAME
    file.write_bytes(LINES)
    marked = mark_of(NAME, file, len(LINES))
    assert marked is not None
    file.write_bytes(content)
    assert read_to(NAME, file, dict([marked])) == read_bytes


@pytest.mark.parametrize(
    ("read_bytes", "known", "counts"),
    [(6, b"first", True), (6, b"another", False), (5, b"first", False), (99, b"first", False)],
)
def test_an_earlier_releases_mark_counts_where_a_line_ends_in_a_file_whose_first_line_is_known(
    read_bytes: int, known: bytes, counts: bool, tmp_path: Path
) -> None:
    file = tmp_path / NAME
    file.write_bytes(LINES)
    marks = {NAME: Mark(read_bytes, "")}
    assert read_to(NAME, file, marks, lambda line: line == known) == (read_bytes if counts else 0)
    assert read_to(NAME, file, marks) == 0
