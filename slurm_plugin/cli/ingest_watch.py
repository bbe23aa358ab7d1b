"""`rightsizer ingest --watch`: the same again and again, so that jobs count within seconds of their end."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from accounting.errors import RightsizerError
from slurm_plugin.cli.feeding import tidy_feed
from slurm_plugin.cli.output import note

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from accounting.ingest import IngestReport, IngestSettings

# Most records arrive in seconds. All of `accounting.overlap_s` is read again as often as that is long.
NARROW_S = 120


def watch(engine: Engine, settings: IngestSettings, pause_s: int, models: Path) -> None:
    """Ingest, pause and ingest again until SIGTERM or SIGINT, which end it after the round that it is in.

    A round that fails is said once, and the next one reads what it has left.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    complaint, wide_s = "", 0.0
    while not stop.is_set():
        is_wide = time.monotonic() >= wide_s
        try:
            report = _round(engine, settings, is_wide=is_wide)
        except RightsizerError as error:
            if str(error) != complaint:
                note(f"this round failed, the next one tries again: {error}")
            complaint = str(error)
        else:
            complaint = ""
            if is_wide:
                wide_s = time.monotonic() + settings.overlap_s
                tidy_feed(models)
            _say(report)
        stop.wait(pause_s)
    note("stopped")


def _round(engine: Engine, settings: IngestSettings, *, is_wide: bool) -> IngestReport:
    from accounting.ingest import ingest

    overlap_s = settings.overlap_s if is_wide else min(settings.overlap_s, NARROW_S)
    return ingest(engine, msgspec.structs.replace(settings, overlap_s=overlap_s), int(time.time()))


def _say(report: IngestReport) -> None:
    """Say what a round brought, in one line; nothing where it brought nothing."""
    counts = {
        "attempts": report.attempts,
        "GPU uses": report.gpu_use,
        "decisions": report.decisions,
        "cycles": report.cycles,
    }
    brought = [f"{count.new} {name}" for name, count in counts.items() if count.new]
    brought += [f"{report.quarantined} not understood"] if report.quarantined else []
    if brought:
        note(f"{time.strftime('%H:%M:%S')} new: {', '.join(brought)}")
