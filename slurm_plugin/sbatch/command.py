"""A command line of sbatch taken apart as sbatch does it: options, then a script and its arguments, or --wrap. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec

from accounting.errors import RightsizerError
from slurm_plugin.sbatch.script import option_parser

# What sbatch makes of `--wrap=COMMAND`, and calls such a job; and one whose script comes by standard input.
WRAPPED = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{}\n"
WRAPPED_NAME, STDIN_NAME = "wrap", "sbatch"


class Command(msgspec.Struct, frozen=True):
    """Options of sbatch, and what it would run: the path of a script, or a wrapped command; standard input without."""

    options: tuple[str, ...]
    script: str = ""
    wrap: str | None = None


def take_apart(words: Sequence[str]) -> Command:
    """Return what a command line of sbatch's says; RightsizerError where sbatch would refuse it.

    Where the script stands first, what follows are options too: so are they written most easily behind a name that
    stands there already.
    """
    if words and not words[0].startswith("-"):
        return Command(tuple(words[1:]), words[0])
    parser = option_parser()
    parser.add_argument("--wrap")
    # The first word that is no option, nor an option's value, and all that follows: those are the script's own.
    parser.add_argument("command", nargs=argparse.PARSER).required = False
    words = [parser.whole(word) for word in words]
    known, _ = parser.read(words)
    command: list[str] = known.command or []
    options = tuple(words[: len(words) - len(command)])
    if known.wrap is None:
        return Command(options, command[0] if command else "")
    if command:
        raise RightsizerError(
            f"both --wrap and {command[0]} say what to run, and sbatch accepts only one of them; leave "
            "the other out"
        )
    return Command(_without_wrap(options), wrap=known.wrap)


def _without_wrap(options: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    words = iter(options)
    for word in words:
        if word == "--wrap":
            next(words, None)
        elif not word.startswith("--wrap="):
            kept.append(word)
    return tuple(kept)
