"""`rightsizer ingest --quarantined` and `--retry`: show input that was not accepted, and try it again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from slurm_plugin.cli.output import local_time, note, print_rows

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from accounting.ingest.run import IngestReport, IngestSettings
    from accounting.slurm.windows import Fetched, Source
    from accounting.store.quarantine import QuarantineGroup


def show_quarantine(engine: Engine, output_format: str) -> None:
    """Show what was not accepted, by source and reason; JSON also has the lines."""
    from accounting.store.quarantine import list_quarantine, take_quarantined

    lines: dict[tuple[str, str], list[str]] = {}
    with engine.connect() as connection:
        groups = list_quarantine(connection)
        if output_format == "json":
            for _, item in take_quarantined(connection):
                lines.setdefault((item.source, item.reason), []).append(item.line)
    rows = [
        {
            "source": group.source,
            "reason": group.reason,
            "entries": group.lines,
            "first seen": local_time(group.first_seen_s),
            "last seen": local_time(group.last_seen_s),
            **({"lines": lines.get((group.source, group.reason), [])} if output_format == "json" else {}),
        }
        for group in groups
    ]
    print_rows(rows, output_format)
    for hint in hints(groups, output_format):
        note(hint)


def hints(groups: list[QuarantineGroup], output_format: str) -> list[str]:
    """Return what can be done about input that was not accepted."""
    from accounting.ingest.retry import NOT_FROM_FILES, TRIED

    sources = {group.source for group in groups}
    said = (
        (sources & TRIED, "to try {} again: `rightsizer ingest --retry`"),
        (
            sources - NOT_FROM_FILES,
            "{}: correct the file and ingest it again; entries that are understood then leave the list",
        ),
        (
            sources if output_format != "json" else (),
            "`rightsizer ingest --quarantined --format json` shows the lines",
        ),
    )
    return [words.format(", ".join(sorted(named))) for named, words in said if named]


def retry_all(engine: Engine, settings: IngestSettings, now_s: int) -> IngestReport:
    """Try to ingest the quarantined input again."""
    from accounting.ingest.retry import retry
    from accounting.ingest.run import Run
    from slurm_plugin.cli.ingest.settings import source_for

    run = Run(settings, now_s)
    understood = retry(engine, run, asked_when_needed(lambda: source_for(settings, now_s)))
    note(f"{understood} entries of the quarantine are understood now")
    return run.report


def asked_when_needed(make: Callable[[], Source]) -> Source:
    """Return a source that is made at its first use, because making one asks sacct which columns it knows."""
    made = cache(make)

    def source(begin_s: int, end_s: int) -> Fetched:
        return made()(begin_s, end_s)

    return source
