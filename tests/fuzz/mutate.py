"""Seeds damaged at random, the same for the same seed number: fuzzing where coverage cannot guide it."""

from __future__ import annotations

import random
from collections.abc import Sequence

MOST_STROKES = 4
NUMBERS = (b"0", b"-1", b"1", b"65536", b"4294967296", b"9223372036854775808", b"1e400", b"0.5", b"9" * 40)


def mutated(seeds: Sequence[bytes], words: Sequence[bytes], most_bytes: int, draw: random.Random) -> bytes:
    """Return one of the seeds after some random changes."""
    data = draw.choice(seeds)
    for _ in range(draw.randint(0, MOST_STROKES)):
        data = _stroke(data, seeds, words, draw)
    return data[:most_bytes]


def _stroke(data: bytes, seeds: Sequence[bytes], words: Sequence[bytes], draw: random.Random) -> bytes:
    begin = draw.randint(0, len(data))
    end = min(len(data), begin + draw.choice((0, 1, 1, 4, 16, 64)))
    return data[:begin] + _piece(data, begin, end, seeds, words, draw) + data[end:]


def _piece(
    data: bytes, begin: int, end: int, seeds: Sequence[bytes], words: Sequence[bytes], draw: random.Random
) -> bytes:
    """Return what replaces the bytes between two places."""
    kind = draw.randrange(6)
    if kind == 0:
        return b""
    if kind == 1:
        return bytes(draw.randrange(256) for _ in range(draw.choice((1, 1, 2, 8))))
    if kind == 2 and words:
        return draw.choice(words)
    if kind == 3:
        return draw.choice(NUMBERS)
    if kind == 4:
        return data[begin:end] * draw.choice((2, 3, 50))
    other = draw.choice(seeds)
    at = draw.randint(0, len(other))
    return other[at : at + draw.choice((1, 8, 64, 1024))]
