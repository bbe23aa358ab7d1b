"""Memory that was freed, given back to the system.

The C library keeps what a large round freed between what is still held; a program that goes on for months then holds
the sum of its worst rounds. Seen at 300 jobs a second: `ingest --watch` grew by 9 % in ten minutes while what it used
stayed the same.
"""

from __future__ import annotations

import ctypes


def give_back_memory() -> None:
    """Give back whole pages of freed memory (malloc_trim(3), a few milliseconds); nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
