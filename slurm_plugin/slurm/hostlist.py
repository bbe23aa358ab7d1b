"""Expands Slurm's notation for several nodes, `gpu[01-03,7],login`, to their names. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import product

_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})\Z", re.ASCII)
_NOTHING = frozenset({"", "(null)", "None", "none"})
# The most names that an expression may stand for; more is damage, or a user's text that looks like one.
_MOST = 100_000


def expand_nodes(text: str) -> tuple[str, ...]:
    """Return the names in a host list, in its order; none for `(null)`, and none for one that expands to too many."""
    if text in _NOTHING:
        return ()
    parts = [_PIECE.findall(part) for part in _PART.findall(text)]
    if sum(math.prod(_count(inside) for inside, _ in pieces) for pieces in parts) > _MOST:
        return ()
    return tuple(name for pieces in parts for name in _names(pieces))


def _names(pieces: Sequence[tuple[str, str]]) -> list[str]:
    several = [_several(inside) if inside else [plain] for inside, plain in pieces]
    return ["".join(chosen) for chosen in product(*several)]


def _count(inside: str) -> int:
    """Return how many numbers are within brackets, at least 1, without listing them."""
    spans = (_RANGE.match(one) for one in inside.split(","))
    return max(1, sum(max(0, int(span[2]) - int(span[1]) + 1) if span else 1 for span in spans))


def _several(inside: str) -> list[str]:
    numbers: list[str] = []
    for one in inside.split(","):
        span = _RANGE.match(one)
        if span is None:
            numbers.append(one)
        else:
            numbers += [f"{number:0{len(span[1])}d}" for number in range(int(span[1]), int(span[2]) + 1)]
    return numbers
