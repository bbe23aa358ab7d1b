"""How a command ends that another process, or its terminal, asks to end: it finishes, or cleans up after itself."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def orderly_end() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit in the block, much as Ctrl-C does; ignored signals (nohup) stay so."""
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in ENDING:
        if before[number] == signal.SIG_DFL:
            signal.signal(number, _leave)
    try:
        yield
    finally:
        for number in ENDING:
            signal.signal(number, before[number])


def stopped_by_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set from now on: what is under way is finished first."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _leave(number: int, _frame: FrameType | None) -> None:
    # Both the shell and the kernel send SIGHUP when the terminal is gone: the second would interrupt the clean-up.
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)
