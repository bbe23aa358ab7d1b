"""What a reader of the pages is shown: tables that are whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
DELIMITER = re.compile(r"\|( *:?-+:? *\|)+")


def tables(page: Path) -> Iterator[list[str]]:
    """Yield the lines of each table; without its heading a table is none, and shows as plain text."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for is_table, found in groupby(lines, key=lambda line: line.startswith("|")):
        if is_table:
            yield list(found)


def cells(row: str) -> int:
    """Count a row's cells; a | that is no border is written \\|, also in code."""
    return len(re.findall(r"(?<!\\)\|", row)) - 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_table_has_its_heading_and_rows_of_as_many_cells(page: Path) -> None:
    for table in tables(page):
        assert DELIMITER.fullmatch(table[1] if table[1:] else ""), table[0]
        assert [row for row in table if cells(row) != cells(table[0])] == []
