"""What a decoder raises of a line or a file that something damaged; whoever reads one says what becomes of it."""

from __future__ import annotations

from typing import Annotated

import msgspec

# Thousands of brackets one within the other are passed over by recursion, also where nobody asked for what is in them.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# Decoders take numbers of any size, stores and Slurm do not: beyond these a line is damaged.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
JobNumber = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Factor = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Moment = Annotated[float, msgspec.Meta(ge=0, le=2.0**53)]
