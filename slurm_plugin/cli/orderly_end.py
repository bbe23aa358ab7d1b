"""Let a command clean up after itself also when another process ends it or its terminal is closed."""

from __future__ import annotations

import contextlib
import signal
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


def _leave(number: int, _frame: FrameType | None) -> None:
    # Both the shell and the kernel send SIGHUP when the terminal is gone: the second would interrupt the clean-up.
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)
