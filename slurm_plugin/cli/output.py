"""How every command prints: data on stdout, as a table for people or as JSON or CSV; everything else on stderr."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

import click
import msgspec

from slurm_plugin.cli.shown_text import csv_value, encodable, visible, visible_json

if TYPE_CHECKING:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

Row = Mapping[str, object]
# The exit code of a command that looks for problems and has found some.
EXIT_PROBLEMS = 3
# The width, in characters, at which a table's column is still readable, including the gap to the next one.
LEAST_COLUMN = 5

format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="Output format.",
)

config_option = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="Configuration file. Default: $RIGHTSIZER_CONFIG, else /etc/rightsizer/rightsizer.toml.",
)


def print_rows(rows: Sequence[Row], output_format: str, title: str = "", columns: Sequence[str] = ()) -> None:
    """Print rows; all have the columns of the first one. Without rows, a CSV has the header `columns`."""
    if output_format == "json":
        click.echo(visible_json(msgspec.json.format(_json(list(rows)), indent=2).decode()))
    elif output_format == "csv":
        click.echo(_csv(rows, columns), nl=False)
    else:
        _print_table(rows, title)


def _json(rows: list[Row]) -> bytes:
    try:
        return msgspec.json.encode(rows)
    except UnicodeEncodeError:
        return msgspec.json.encode(encodable(rows))


def _csv(rows: Sequence[Row], columns: Sequence[str]) -> str:
    text = io.StringIO()
    names = list(rows[0]) if rows else columns
    if names:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(csv_value(name) for name in names)
        writer.writerows([csv_value(row[name]) for name in names] for row in rows)
    return text.getvalue()


def _print_table(rows: Sequence[Row], title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table

    if not rows:
        click.echo("nothing to show", err=True)
        return
    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    # A pipe has no width: allow 200 characters there instead of wrapping rows at 80.
    # No markup: rich must not take a name such as «fit[1-3]» for a style.
    console = Console(
        file=sys.stdout, width=None if sys.stdout.isatty() else 200, highlight=False, markup=False
    )
    cells = [[cell(value) for value in row.values()] for row in rows]
    # People copy the first column (a model's version) into the next command, so it is not wrapped if there is room.
    # Texts of several words are not copied; they may wrap between words, so that figures stay whole.
    names = [next(iter(rows[0])), *(first for first, *_ in cells)]
    called = max(map(cell_len, names))
    fits = called <= console.width // 2 and called + LEAST_COLUMN * (len(rows[0]) - 1) <= console.width
    fits = fits and not any(" " in name for name in names)
    for place, (name, value) in enumerate(rows[0].items()):
        justify: Literal["left", "right"] = "right" if isinstance(value, (int, float)) else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=fits and place == 0)
    for row in cells:
        table.add_row(*row)
    console.print(table)


def cell(value: object) -> str:
    """Return a value as a table shows it, without characters that move a terminal's cursor or change its colours."""
    if value is None:
        return "-"
    if not isinstance(value, float):
        return visible(str(value))
    # A small value must not look like 0 because of two decimals.
    return f"{value:.1g}" if 0 < abs(value) < 0.005 else f"{value:,.2f}".rstrip("0").rstrip(".")


class Progress(Protocol):
    """A function that takes the share done (0..1) and, if rows are counted, how many have been read."""

    def __call__(self, done: float, rows: int | None = None) -> None:
        """Show the progress."""


@contextmanager
def progress_bar(label: str) -> Iterator[Progress]:
    """Yield a function that draws a bar with its rate and the time that remains; it draws only on a terminal.

    Until it is called, the bar moves to and fro: how much there is to do is not known.
    """
    if not sys.stderr.isatty():
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)  # honours NO_COLOR
    left = TimeRemainingColumn(elapsed_when_finished=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), _rate_column(), left)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=None, rows=None)

        def draw(done: float, rows: int | None = None) -> None:
            bar.update(task, total=1.0, completed=done, rows=rows)

        yield draw


def _silent(done: float, rows: int | None = None) -> None:
    """Draw nothing."""


def _rate_column() -> ProgressColumn:
    """Return the part of a bar that shows the mean number of rows per second so far."""
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(rate_of(task.fields.get("rows"), task.elapsed))

    return Rate()


def rate_of(rows: int | None, elapsed_s: float | None) -> str:
    """Return a rate in words, '' if nothing has been counted yet."""
    return f"{rows / elapsed_s:,.0f} rows/s" if rows and elapsed_s else ""


def local_time(time_s: int) -> str:
    """Return a time (unix seconds) as local date and time, with its zone, to the minute."""
    return datetime.fromtimestamp(time_s).astimezone().isoformat(sep=" ", timespec="minutes")


def local_second(time_s: float) -> str:
    """Return a time (unix seconds) as local date and time, with its UTC offset, to the second."""
    return datetime.fromtimestamp(int(time_s)).astimezone().isoformat(sep=" ")


def note(text: str) -> None:
    """Print one line on stderr, for people, that is not data."""
    click.echo(visible(text), err=True)
