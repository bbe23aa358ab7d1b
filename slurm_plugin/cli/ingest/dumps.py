"""`rightsizer ingest --from-file`: read dumps one after another, and report on each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from accounting.errors import DumpError
from accounting.units import counted
from slurm_plugin.cli.output import EXIT_PROBLEMS, note, progress_bar

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from accounting.dumps.jobs import DumpSettings
    from accounting.ingest.dumps import DumpReport
    from accounting.ingest.run import IngestReport, IngestSettings


def from_files(
    engine: Engine, settings: IngestSettings, files: Iterable[Path], dumps: DumpSettings
) -> tuple[IngestReport, int]:
    """Read dumps, say what is wrong with each, and return one report and the exit status.

    The status is DumpError's if a file is not a dump (the others are read all the same), else EXIT_PROBLEMS if a dump
    was cut off or nothing in it was understood. Raises DumpError if none of the files is a dump.
    """
    from accounting.ingest.dumps import ingest_dump
    from accounting.ingest.run import IngestReport

    total, all_whole, any_read, refused = IngestReport(), True, False, list[str]()
    for file in files:
        try:
            with progress_bar(f"reading {file.name}") as progress:
                report = ingest_dump(engine, settings, file, dumps, progress)
        except DumpError as error:
            refused.append(str(error) if file.name in str(error) else f"{file.name}: {error}")
            continue
        any_read = True
        say(file.name, report, dumps.zone)
        total += report.ingested
        all_whole = all_whole and not report.cut_off and not is_lost(report)
    for complaint in refused if any_read else refused[:-1]:
        note(complaint)
    if refused and not any_read:
        raise DumpError(refused[-1])
    if refused:
        return total, DumpError.exit_code
    return total, 0 if all_whole else EXIT_PROBLEMS


def is_lost(report: DumpReport) -> bool:
    """Whether nothing at all of a dump was understood."""
    attempts = report.ingested.attempts
    return bool(report.kept_aside) and not (attempts.new or attempts.changed or attempts.same)


def say(name: str, report: DumpReport, zone: ZoneInfo) -> None:
    """Say what a dump lacks, how much of it was not understood, and whether its times look like another zone's."""
    for lack in report.missing:
        note(f"{name} {lack}")
    if report.kept_aside:
        fresh = report.ingested.quarantined
        # For new entries, the end of the command says it.
        hint = "" if fresh else "; `rightsizer ingest --quarantined` shows them"
        note(f"{name}: {counted(report.kept_aside, 'entry')} not understood, {fresh} of them new{hint}")
    if is_lost(report):
        note(
            f"{name}: no entry was understood; `rightsizer ingest --quarantined` says why, and "
            "docs/analyst.md what a dump needs"
        )
    if report.zones_differ:
        note(f"{name}: {said_shift(report.shifted, zone)}")
    if report.cut_off:
        note(f"{name} {report.cut_off}")


def said_shift(shifted: Counter[int], zone: ZoneInfo) -> str:
    """Return what it means that the store has jobs of a dump at shifted times (`shifted`, in seconds)."""
    apart = {shift_s: jobs for shift_s, jobs in shifted.items() if shift_s}
    jobs, shift_s = sum(apart.values()), max(apart, key=lambda one: apart[one])
    far = f"{abs(shift_s) / 3600:g} h {'later' if shift_s > 0 else 'earlier'}"
    return (
        f"{counted(jobs, 'job')} already in the store {far}, and now counted twice: the local times of this dump, "
        f"or of the one before, are not in {zone.key}. Fill a new store, and give --zone the zone of "
        "the cluster"
    )


def dump_zone(name: str | None) -> ZoneInfo:
    """Return the zone of a dump's local times, and say which it is: --zone, else $TZ, else this machine's.

    Raises UsageError if no zone has that name.
    """
    zone, why = _zone(name)
    note(f"local times in dumps are read as {zone.key} ({why})")
    return zone


def _zone(name: str | None) -> tuple[ZoneInfo, str]:
    if name:
        return named_zone(
            name, f"--zone {name}: no such time zone; write for example Europe/Berlin"
        ), "--zone"
    given = os.environ.get("TZ")
    if given is not None:
        # The C library reads an empty $TZ as UTC, ignores a leading colon, and accepts the path of a zone's file.
        plain = zone_of_path(Path(given.removeprefix(":"))) or given.removeprefix(":") or "UTC"
        return named_zone(
            plain, f"$TZ is {given!r}, which is not a time zone; give --zone, for example Europe/Berlin"
        ), "$TZ"
    own = zone_of_path(Path("/etc/localtime").resolve())
    if own is None:
        return ZoneInfo("UTC"), "the zone of this machine has no name; --zone changes it"
    return ZoneInfo(own), "the zone of this machine; --zone changes it"


def named_zone(name: str, wrong: str) -> ZoneInfo:
    """Return a zone by its name; UsageError with the message `wrong` if there is none."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise click.UsageError(wrong) from None


def zone_of_path(path: Path) -> str | None:
    """Return the name of the zone in a file of the zoneinfo database; None if the path is not such a file."""
    parts = path.parts
    return "/".join(parts[parts.index("zoneinfo") + 1 :]) if "zoneinfo" in parts else None


def tres_numbers(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """Return TRES numbers such as 1001,1002; BadParameter if they are not numbers."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise click.BadParameter(
            f"{text!r} are not TRES numbers; write for example 1001,1002", context, parameter
        )
    return tuple(map(int, parts))
