"""How every command prints data: a table for people, JSON or CSV for programs, on stdout; the rest on stderr."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

import click
import msgspec

from slurm_plugin.cli.shown_text import csv_value, encodable, visible, visible_json

if TYPE_CHECKING:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

Row = Mapping[str, object]
# The exit code of a command that looks for problems, where it has found some.
EXIT_PROBLEMS = 3
# The fewest characters of a terminal's line with which a column can still be read, with what parts it from the next.
LEAST_COLUMN = 5

format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="Output format.",
)


def config_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--config FILE` to a command."""
    return click.option(
        "--config",
        "config_file",
        metavar="FILE",
        help="Configuration file. Default: $RIGHTSIZER_CONFIG, else /etc/rightsizer/rightsizer.toml.",
    )(function)


def print_rows(rows: Sequence[Row], output_format: str, title: str = "", columns: Sequence[str] = ()) -> None:
    """Print rows that all have the columns of the first one; `columns` are those of a CSV that has no row."""
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
    # A pipe has no width: give rows their full length there instead of wrapping them at 80.
    # Names are what they are: «fit[1-3]» is no style of rich's.
    console = Console(
        file=sys.stdout, width=None if sys.stdout.isatty() else 200, highlight=False, markup=False
    )
    cells = [[cell(value) for value in row.values()] for row in rows]
    # What a row is called is copied into the next command (a model's version): where there is room it is not broken.
    # What has several words is not, and may break between them, so that figures stay whole.
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
    """Return a value as a table shows it: nothing in it can move a terminal's cursor or change its colours."""
    if value is None:
        return "-"
    if not isinstance(value, float):
        return visible(str(value))
    # What two decimals would make 0 is not nothing.
    return f"{value:.1g}" if 0 < abs(value) < 0.005 else f"{value:,.2f}".rstrip("0").rstrip(".")


class Progress(Protocol):
    """Takes the share done (0..1), and how many rows that were where they are counted."""

    def __call__(self, done: float, rows: int | None = None) -> None:
        """Draw it."""


@contextmanager
def progress_bar(label: str) -> Iterator[Progress]:
    """Hand out a function that draws a bar with its rate and the time that remains; on a terminal only."""
    if not sys.stderr.isatty():
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)  # it honours NO_COLOR
    left = TimeRemainingColumn(elapsed_when_finished=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), _rate_column(), left)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=1.0, rows=None)

        def draw(done: float, rows: int | None = None) -> None:
            bar.update(task, completed=done, rows=rows)

        yield draw


def _silent(done: float, rows: int | None = None) -> None:
    """Draw nothing."""


def _rate_column() -> ProgressColumn:
    """Return the part of a bar that says how many rows a second came, over the whole time so far."""
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(rate_of(task.fields.get("rows"), task.elapsed))

    return Rate()


def rate_of(rows: int | None, elapsed_s: float | None) -> str:
    """Return a rate in words, '' where nothing was counted yet."""
    return f"{rows / elapsed_s:,.0f} rows/s" if rows and elapsed_s else ""


def local_time(time_s: int) -> str:
    """Return a time for people."""
    return datetime.fromtimestamp(time_s).astimezone().isoformat(sep=" ", timespec="minutes")


def note(text: str) -> None:
    """Tell a person something that is not data, in one line."""
    click.echo(visible(text), err=True)
