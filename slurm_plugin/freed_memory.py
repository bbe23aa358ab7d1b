"""Memory that was freed, given back to the system.

The C library, and Arrow's own pool, keep what a large round freed between what is still held; a program that goes on
for months then holds the sum of its worst rounds. Seen at 300 jobs a second: `ingest --watch` grew by 9 % in ten
minutes while what it used stayed the same, and Arrow's pool by 50 MiB while it held nothing.
"""

from __future__ import annotations

import ctypes
import sys


def give_back_memory() -> None:
    """Give back whole pages of freed memory, Arrow's and glibc's (malloc_trim(3)); it takes some milliseconds."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
