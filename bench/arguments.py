"""What the command lines of benchmarks have in common: how tables are printed, and where public traces are."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_plugin.cli.output import Row, print_rows


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser of --format, described by the first line of a doc string."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--format", default="table", choices=["table", "json", "csv"])
    return parser


def add_traces(parser: argparse.ArgumentParser) -> None:
    """Add --traces: the folder of public traces."""
    parser.add_argument("--traces", type=Path, default=os.environ.get("RIGHTSIZER_TRACES", "."))


def folder_with(traces: Path, *patterns: str) -> Path:
    """Return the folder of traces; exit if there is a pattern that none of its files fits."""
    if not all(any(traces.glob(pattern)) for pattern in patterns):
        sys.exit(f"no traces: set RIGHTSIZER_TRACES to the folder that holds {' and '.join(patterns)}")
    return traces


def print_tables(tables: Mapping[str, tuple[str, Sequence[Row]]], arguments: argparse.Namespace) -> None:
    """Print the table that --show names, else all of them, and of json and csv the first, unless it has no rows."""
    everything = list(tables) if arguments.format == "table" else list(tables)[:1]
    for name in [arguments.show] if arguments.show else everything:
        title, rows = tables[name]
        if rows:
            print_rows(rows, arguments.format, title)
