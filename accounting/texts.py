"""Which text belongs to which attempt, where texts may hold the delimiter, line ends and whole forged rows. Pure.

sacct prints the rows of one call one after another, so a text that holds line ends adds lines right behind the first
one of its own row. The keys of the real rows are known from another call, in which nothing can be forged. So:

    a line that is no row, or a row of no known key        makes the row before it doubtful
    a key that has more rows than attempts, or fewer       makes all of its rows, and those before them, doubtful
    everything else                                        is what Slurm stored

What is doubtful is asked for by itself, and then holds one job's text alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Key = bytes


def match_texts(
    lines: Sequence[bytes], keys: Sequence[Key], delimiter: bytes, texts: int
) -> list[bytes | None]:
    """Return the line of each key in turn, None where it is doubtful.

    `lines` are sacct's, without their heading; a row is a key of two columns, then as many `texts`.
    """
    return list(lines) if _is_plain(lines, keys, delimiter, texts) else _match(lines, keys, delimiter, texts)


def _is_plain(lines: Sequence[bytes], keys: Sequence[Key], delimiter: bytes, texts: int) -> bool:
    """Whether each line is the row of its key: a text with a line end in it would have added a line."""
    return len(lines) == len(keys) and all(
        line.startswith(key + delimiter) and line.count(delimiter) == 1 + texts
        for line, key in zip(lines, keys, strict=True)
    )


def _match(lines: Sequence[bytes], keys: Sequence[Key], delimiter: bytes, texts: int) -> list[bytes | None]:
    expected = Counter(keys)
    rows: dict[Key, list[bytes]] = {}
    before: dict[Key, list[Key]] = {}
    doubtful: set[Key] = set()
    latest: Key | None = None
    for line in lines:
        parts = line.split(delimiter)
        key = delimiter.join(parts[:2])
        if len(parts) != 2 + texts or key not in expected:
            doubtful.update(() if latest is None else (latest,))
            continue
        rows.setdefault(key, []).append(line)
        before.setdefault(key, []).extend(() if latest is None else (latest,))
        latest = key
    for key, count in expected.items():
        if len(rows.get(key, ())) != count:
            doubtful.add(key)
            doubtful.update(before.get(key, ()))
    turns = {key: iter(found) for key, found in rows.items() if key not in doubtful}
    return [next(turns[key]) if key in turns else None for key in keys]


def text_alone(printed: bytes, attempts: int) -> bytes | None:
    """Return the text of a job that was asked for by itself; None where its attempts have different ones.

    Each attempt ends with a line end of its own.
    """
    length, left = divmod(len(printed), max(1, attempts))
    text = printed[:length]
    return text[:-1] if not left and text.endswith(b"\n") and text * attempts == printed else None
