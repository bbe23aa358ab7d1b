"""Slurm's way to write several nodes, `gpu[01-03,7],login`, as their names. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product

_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})\Z", re.ASCII)
_NOTHING = frozenset({"", "(null)", "None", "none"})
# What an expression may stand for at most; more is damage.
_MOST = 1_000_000


@lru_cache(maxsize=65_536)
def expand_nodes(text: str) -> tuple[str, ...]:
    """Return the names in a host list, in its order; none for `(null)`."""
    if text in _NOTHING:
        return ()
    return tuple(name for part in _PART.findall(text) for name in _names(part))


def _names(part: str) -> list[str]:
    pieces = [_several(inside) if inside else [plain] for inside, plain in _PIECE.findall(part)]
    return ["".join(chosen) for chosen in product(*pieces)]


def _several(inside: str) -> list[str]:
    numbers: list[str] = []
    for one in inside.split(","):
        span = _RANGE.match(one)
        if span is None:
            numbers.append(one)
        elif int(span[2]) - int(span[1]) < _MOST:
            numbers += [f"{number:0{len(span[1])}d}" for number in range(int(span[1]), int(span[2]) + 1)]
    return numbers
