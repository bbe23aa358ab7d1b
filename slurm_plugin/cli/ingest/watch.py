"""`rightsizer ingest --watch`: ingest again and again, so that jobs count within seconds of their end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from accounting.errors import RightsizerError
from slurm_plugin.cli.ingest.feeding import tidy_feed
from slurm_plugin.cli.ingest.settings import doubt, source_for
from slurm_plugin.cli.orderly_end import stopped_by_signals
from slurm_plugin.cli.output import note
from slurm_plugin.freed_memory import give_back_memory
from slurm_plugin.log_lines import SaidOnce

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from accounting.ingest.run import IngestReport, IngestSettings
    from accounting.slurm.windows import Pace

# How far back most rounds read, in seconds: most records arrive within seconds. A wide round, once every
# `accounting.overlap_s`, reads all of that span again.
NARROW_S = 120


def watch(
    engine: Engine,
    settings: IngestSettings,
    anew: Callable[[IngestSettings], IngestSettings],
    pause_s: int,
    models: Path,
) -> None:
    """Ingest again and again, with pauses, until SIGTERM or SIGINT; the current window is finished first.

    A failing round is reported once, and the next round reads what it left, as does the next run after a stop.
    Before each wide round except the first, `anew` updates the settings: Slurm may have been upgraded, or may not have
    answered before.
    """
    from accounting.slurm.windows import Pace
    from accounting.store.database import hold_little

    hold_little(engine)
    stop = stopped_by_signals()
    failures, doubts, wide_s, pace, is_first = SaidOnce(), SaidOnce(), 0.0, Pace(), True
    while not stop.is_set():
        is_wide = time.monotonic() >= wide_s
        if is_wide:
            settings = settings if is_first else anew(settings)
            tell_doubt(settings, doubts)
        is_first = False
        try:
            report = _round(engine, settings, stop.is_set, pace, is_wide=is_wide)
        except RightsizerError as error:
            if failures.is_new(str(error)):
                note(f"this round failed, the next one will try again: {error}")
        else:
            failures.over()
            if is_wide:
                wide_s = time.monotonic() + settings.overlap_s
                tidy_feed(models)
            _say(report)
        give_back_memory()
        stop.wait(pause_s)
    note("stopped")


def tell_doubt(settings: IngestSettings, doubts: SaidOnce) -> None:
    """Say that it is not known how jobs are measured, unless that was just said, and when it is known again."""
    said = doubt(settings)
    if said and doubts.is_new(said):
        note(said)
    elif not said and doubts.is_new(""):
        note("Slurm's release and accounting plugin are known now")


def _round(
    engine: Engine, settings: IngestSettings, stopped: Callable[[], bool], pace: Pace, *, is_wide: bool
) -> IngestReport:
    from accounting.ingest.ingesting import ingest

    now_s = int(time.time())
    overlap_s = settings.overlap_s if is_wide else min(settings.overlap_s, NARROW_S)
    try:
        narrowed = msgspec.structs.replace(settings, overlap_s=overlap_s)
        return ingest(engine, narrowed, now_s, source=source_for(narrowed, now_s), stopped=stopped, pace=pace)
    finally:
        # A kept connection grows with what it has read from the store, up to SQLite's cache_size.
        engine.dispose()


def _say(report: IngestReport) -> None:
    """Report in one line what a round brought, if anything."""
    counts = {
        "attempts": report.attempts,
        "GPU uses": report.gpu_use,
        "decisions": report.decisions,
        "cycles": report.cycles,
        "recoveries": report.recoveries,
    }
    brought = [f"{count.new} {name}" for name, count in counts.items() if count.new]
    brought += [f"{report.quarantined} not understood"] if report.quarantined else []
    if brought:
        note(f"{time.strftime('%H:%M:%S')} new: {', '.join(brought)}")
