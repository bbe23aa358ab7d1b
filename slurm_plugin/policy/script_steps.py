"""The sruns in a script: what each asks for, and which run side by side. Pure; continued lines must be joined."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence

import msgspec

_INNER = re.compile(r"srun(?<!\wsrun)\b(?!=)([^\n;|&]*)")
# Where commands end, with their pipes. A lone `&` leaves one in the background; `2>&1`, `&>` and `|&` end none.
_LIST_END = re.compile(r"\n|;|&&|\|\||(?<![<>|&])&(?![>&])")
_LOOP = re.compile(r"\b(?:for|while|until|foreach|repeat)\b|\(\)")
# GNU parallel, recognised by its options, what it starts, or its list of inputs; xargs with several processes.
_FARM = re.compile(
    r"parallel(?<![\w-]parallel)[ \t]+[\"']?(?:-|srun)|:::|xargs\b[^\n|;]{0,80}\s-(?:\w*P|-max-procs)"
)
# Arithmetic is short: each unclosed `$((` would otherwise be looked through to the end of the line.
_WORD = re.compile(r"(?:\$\(\([^)]{0,80}\)\)|\"[^\"]*\"|'[^']*'|`[^`]*`|\S)+")
# Options of srun that take no argument.
_FLAGS = frozenset(
    (
        "--exact", "--exclusive", "--overlap", "--whole", "--overcommit", "--oversubscribe", "--label", "--multi-prog",
        "--pty", "--contiguous", "--spread-job", "--use-min-nodes", "--no-kill", "--kill-on-bad-exit", "--unbuffered",
        "--verbose", "--quiet", "--disable-status", "--quit-on-interrupt", "--preserve-env", "--immediate",
        *(f"-{letter}" for letter in "HIKOQXZklsuv"),
    )
)  # fmt: skip
_OVERLAPS = re.compile(r"\s--overlap\b")


class Step(msgspec.Struct, frozen=True):
    """An srun inside a script: its line from its name on, and whether the script goes on without waiting for it."""

    options: str
    background: bool

    @property
    def own(self) -> str:
        """Its line up to its program, as far as that can be read: `srun -n $N sh -c $COMMAND` asks for no CPUs."""
        end, takes_next = 0, False
        for word in _WORD.finditer(self.options):
            text = word[0]
            # A variable may stand for more options.
            if not takes_next and text[0] not in '-$"':
                break
            takes_next = not takes_next and text[0] == "-" and _takes_next(text)
            end = word.end()
        return self.options[:end]


def _takes_next(option: str) -> bool:
    is_whole = "=" not in option if option.startswith("--") else len(option) == 2
    return is_whole and option not in _FLAGS


def read_steps(body: str) -> list[Step]:
    """Return the sruns of a script in their order."""
    found = list(_INNER.finditer(body))
    return [
        Step(step[1], background) for step, background in zip(found, in_background(body, found), strict=True)
    ]


def in_background(body: str, found: Sequence[re.Match[str]]) -> list[bool]:
    """Return for each match whether the script goes on without waiting for the command that it is in."""
    # One pass for all: a search for each would read on to the end of a long line.
    ends = [(end.start(), end[0] == "&") for end in _LIST_END.finditer(body)] if found else []
    ends.append((len(body), False))
    return [ends[bisect.bisect_left(ends, (match.end(), False))][1] for match in found]


def farmed(body: str, steps: list[Step]) -> list[Step]:
    """Return the steps of which more may run at once than are written: how often a loop starts one is not counted."""
    if not steps:
        return []
    is_farm, is_loop = bool(_FARM.search(body)), bool(_LOOP.search(body))
    started = (step for step in steps if is_farm or (is_loop and step.background))
    return [step for step in started if not _OVERLAPS.search(step.options)]
