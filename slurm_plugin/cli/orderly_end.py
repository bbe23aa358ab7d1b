"""Commands that clean up after themselves do so, too, where they are ended by others or their terminal is closed."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def orderly_end() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit in the block, as Ctrl-C raises; what is ignored (nohup) stays so."""
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
    # A shell and the kernel both say that the terminal is gone: the second time would cut the cleaning short.
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)
