"""The table of a campaign as Markdown, and its place in a page: a section for each release of Slurm."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

Row = Mapping[str, object]


def markdown(release: str, rows: Sequence[Row]) -> str:
    """Return a section with a heading and a table of rows that all have the columns of the first."""
    columns = list(rows[0]) if rows else []
    lines = [heading(release), "", line_of(columns), line_of(["---"] * len(columns))]
    return "\n".join([*lines, *(line_of(list(row.values())) for row in rows)]) + "\n"


def heading(release: str) -> str:
    """Return the heading of a release's section."""
    return f"## Slurm {release}"


def line_of(values: Sequence[object]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(map(_cell, values))} |"


def _cell(value: object) -> str:
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", " ")


def with_rows(page: str, release: str, rows: Sequence[Row], names: Sequence[str]) -> str:
    """Return a page with these rows in the section of a release; rows with other names that it has stay.

    `names` are all possible names, in order; a row's name is in its first column.
    """
    found = re.search(rf"^{re.escape(heading(release))}$.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    old = found[0].splitlines() if found else []
    fresh = markdown(release, rows).splitlines()
    lines = {_name(line): line for line in [*old[4:], *fresh[4:]] if line}
    kept = [lines[_cell(name)] for name in names if _cell(name) in lines]
    section = "\n".join([*fresh[:4], *kept]) + "\n"
    if found is None:
        return f"{page.rstrip()}\n\n{section}"
    return f"{page[: found.start()]}{section}\n{page[found.end() :]}".rstrip() + "\n"


def _name(line: str) -> str:
    return re.split(r"(?<!\\)\|", line)[1].strip()


def write_rows(file: Path, release: str, rows: Sequence[Row], names: Sequence[str]) -> None:
    """Put rows into a page."""
    page = file.read_text(encoding="utf-8")
    file.write_text(with_rows(page, release, rows, names), encoding="utf-8")
