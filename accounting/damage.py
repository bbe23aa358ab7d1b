"""What decoders raise for a damaged line or file; each reader decides what becomes of it."""

from __future__ import annotations

from typing import Annotated

import msgspec

# Decoders skip nested brackets by recursion: thousands of them raise RecursionError, even in fields that nobody reads.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# Decoders accept numbers of any size; stores and Slurm do not. A line with a number beyond these bounds is damaged.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
JobNumber = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Factor = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Moment = Annotated[float, msgspec.Meta(ge=0, le=2.0**53)]
