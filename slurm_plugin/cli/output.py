"""How every command prints data: a table for people, JSON or CSV for programs, on stdout; the rest on stderr."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
import msgspec

Row = Mapping[str, object]

format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How to print the data.",
)


def config_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--config FILE` to a command."""
    return click.option(
        "--config",
        "config_file",
        metavar="FILE",
        help="The configuration; else $RIGHTSIZER_CONFIG, else /etc/rightsizer/rightsizer.toml.",
    )(function)


def print_rows(rows: Sequence[Row], output_format: str, title: str = "") -> None:
    """Print rows that all have the columns of the first one."""
    if output_format == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(list(rows)), indent=2).decode())
    elif output_format == "csv":
        click.echo(_csv(rows), nl=False)
    else:
        _print_table(rows, title)


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def _print_table(rows: Sequence[Row], title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    if not rows:
        click.echo("nothing to show", err=True)
        return
    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name, value in rows[0].items():
        table.add_column(
            name, justify="right" if isinstance(value, (int, float)) else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(cell(value) for value in row.values()))
    # A pipe has no width: give rows their full length there instead of wrapping them at 80.
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200, highlight=False).print(table)


def cell(value: object) -> str:
    """Return a value as a table shows it."""
    if value is None:
        return "-"
    return f"{value:,.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float], None]]:
    """Hand out a function that takes the share done (0..1) and draws a bar; on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda done: bar.update(task, completed=done)


def note(text: str) -> None:
    """Tell a person something that is not data."""
    click.echo(text, err=True)
