"""What a decoder raises of a line or a file that something damaged; whoever reads one says what becomes of it."""

from __future__ import annotations

import msgspec

# Thousands of brackets one within the other are passed over by recursion, also where nobody asked for what is in them.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
