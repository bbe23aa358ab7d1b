"""Finds which text belongs to which attempt, although texts may hold line ends and whole rows. Pure.

sacct escapes nothing, so a text may look like any row whose delimiter its writer knows. The call for texts therefore
has a delimiter that nobody could know (sacct.py): a line that contains it was written by Slurm. A row continues over
line ends until it has all its columns, and then over lines without the delimiter, which belong to its last text.
"""

from __future__ import annotations

from collections.abc import Sequence

from accounting.errors import SlurmError

Key = bytes
Row = tuple[bytes, ...]


def are_plain(lines: Sequence[bytes], keys: Sequence[Key], delimiter: bytes, columns: int) -> bool:
    """Whether each line is the row of its key: a text with a line end would have added a line."""
    return len(lines) == len(keys) and all(
        line.startswith(key + delimiter) and line.count(delimiter) == columns - 1
        for line, key in zip(lines, keys, strict=True)
    )


def split_rows(lines: Sequence[bytes], delimiter: bytes, columns: int) -> list[Row]:
    """Return the rows of `columns` columns in lines (without their heading); SlurmError if the lines form none."""
    rows: list[list[bytes]] = []
    separators = columns - 1
    seen = separators
    for line in lines:
        count = line.count(delimiter)
        if seen == separators and (count or not rows):
            rows.append([line])
            seen = count
        else:
            rows[-1].append(line)
            seen += count
        if seen > separators or not rows[0][0].count(delimiter):
            raise SlurmError(
                "sacct's columns do not match the request; check the command that accounting.sacct names, "
                "and try again"
            )
    if seen != separators:
        raise SlurmError("sacct's output ends in the middle of a row; see its own messages, and try again")
    return [tuple(b"\n".join(row).split(delimiter)) for row in rows]


def text_alone(printed: bytes, attempts: int) -> bytes | None:
    """Return the text of a job that was asked for separately; None if its attempts have different ones.

    Each attempt's text is followed by a line end.
    """
    text = printed[: len(printed) // max(1, attempts)]
    return text[:-1] if text.endswith(b"\n") and text * attempts == printed else None
