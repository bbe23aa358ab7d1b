"""Jobs that sacct reports, and what ingesting them needs."""

from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from accounting.ingest.run import IngestSettings
from tests import stores
from tests.builders import DAY_S, T0, FakeSacct, SacctRow, job_line, step_line

NOW_S = T0 + 10 * DAY_S


def recorded(first_s: int = T0, jobs: int = 60) -> list[SacctRow]:
    """Jobs spread over ten days; every fifth was requeued once, every seventh name breaks its line."""
    lines: list[SacctRow] = []
    for number in range(1, jobs + 1):
        start_s = first_s + number * 10 * DAY_S // (jobs + 1)
        name = f"bad\nname {number}" if number % 7 == 0 else f"fit-{number}"
        if number % 5 == 0:
            lines += [
                job_line(number, start_s, 50, State="REQUEUED", JobName=name),
                step_line(number, start_s=start_s, seconds=50),
            ]
            start_s += 100
        lines += [job_line(number, start_s, JobName=name), step_line(number, start_s=start_s)]
    return lines


def settings_of(fake: FakeSacct, tmp_path: Path) -> IngestSettings:
    return IngestSettings(
        sacct=fake.command,
        overlap_s=3600,
        first_days=12,
        gpu_spool=tmp_path / "spool",
        journal=tmp_path / "journal",
    )


def content(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """All that a store holds, except for the times at which it was written."""
    return stores.content(engine, frozenset({"seen_s", "read_until_s"}))
