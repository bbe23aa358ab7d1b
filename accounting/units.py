"""Parses and formats memory and time. Inside this project, memory is always MiB and time always seconds."""

from __future__ import annotations

import math
import re
from datetime import datetime
from zoneinfo import ZoneInfo

MIB_IN_BYTES = 1024**2

# Eighteen digits are an exabyte in bytes; a longer number is damage, and would not fit the store.
_MEMORY = re.compile(r"^(\d{1,18}(?:\.\d{1,18})?)([KMGTPE]?)(?:i?B)?$", re.IGNORECASE | re.ASCII)
_BYTES_PER = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5, "E": 1024**6}
_DURATION = re.compile(
    r"^(?:(?P<days>\d{1,9})-)?(?:(?:(?P<hours>\d{1,9}):)?(?P<minutes>\d{1,9}):)?"
    r"(?P<seconds>\d{1,18}(?:\.\d{1,18})?)$",
    re.ASCII,
)
_WHOLE = re.compile(r"^[0-9]{1,18}\Z")
_REQUESTED = re.compile(r"^(\d{1,18}(?:\.\d{1,18})?[KMGTPE]?)([cn]?)\Z", re.ASCII)
_LOCAL_TIME = re.compile(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\Z", re.ASCII)
# From here on, the number in a request includes one of Slurm's flags, which an old release printed along with it.
SENTINEL_MEM_MIB = 2**31


def parse_memory_mib(text: str, *, bare_unit: str = "M") -> float | None:
    """Parse Slurm's `3000M`, `2G`, `204800K` into MiB; None if it is not an amount of memory.

    `bare_unit` is the unit of a number without a suffix: `M` in requests, `B` (bytes) in usage printed with
    `--noconvert`.
    """
    match = _MEMORY.match(text.strip())
    if match is None:
        return None
    number, suffix = float(match[1]), match[2].upper() or bare_unit
    return number * _BYTES_PER.get(suffix, 1) / MIB_IN_BYTES


def parse_duration_s(text: str) -> float | None:
    """Parse `[D-][[HH:]MM:]SS[.mmm]` into seconds; None if it is not a duration."""
    match = _DURATION.match(text.strip())
    if match is None:
        return None
    days, hours, minutes = (int(match[part] or 0) for part in ("days", "hours", "minutes"))
    return days * 86400 + hours * 3600 + minutes * 60 + float(match["seconds"])


def whole(text: str | None) -> int | None:
    """Parse a non-negative whole number of at most 18 digits (what a store holds); None if it is not one."""
    return int(text) if text is not None and _WHOLE.match(text) else None


def parse_requested_mib(text: str) -> tuple[float, str] | None:
    """Parse ReqMem's `100Mc`, `2000Mn`, `4G` into MiB and `c` (per CPU), `n` (per node) or '' (in total).

    None if it states no amount: 0 means all the memory of a node, and 2147486648Mn is a flag printed as a number.
    """
    match = _REQUESTED.match(text)
    mem_mib = parse_memory_mib(match[1]) if match else None
    return (mem_mib, match[2]) if match and mem_mib and mem_mib < SENTINEL_MEM_MIB else None


def parse_time_s(text: str, zone: ZoneInfo) -> int | None:
    """Parse unix seconds or a local time (`2024-06-24T12:33:26`) into unix seconds; None for `Unknown` and such.

    A local time that occurs twice, when summer time ends, is taken as the first; one that never occurs, when summer
    time begins, is read by the clock before it was put forward.
    """
    if _WHOLE.match(text):
        return int(text)
    try:
        local = datetime.fromisoformat(text) if _LOCAL_TIME.match(text) else None
        unix_s = -1 if local is None else int(local.replace(tzinfo=zone).timestamp())
    except (ValueError, OverflowError):
        return None
    return unix_s if unix_s >= 0 else None


def format_mib(mib: float) -> str:
    """Format memory for people: `640 MiB`, `7.8 GiB`."""
    if mib < 1024:
        return f"{mib:.0f} MiB"
    gib = mib / 1024
    return f"{gib:.0f} GiB" if gib >= 100 or gib == int(gib) else f"{gib:.1f} GiB"


def counted(number: int, noun: str) -> str:
    """Return how many there are of something: `1 job`, `2,500 jobs`, `2 families`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("y") else f"{number:,} {noun}s"


def round_up(value: float, step: int) -> int:
    """Return the smallest multiple of `step` (> 0) that is not below `value`."""
    # A 512 that went through a logarithm may be 512.0000001: it must not cost another step.
    return step * math.ceil(value / step - 1e-6)


def parse_time_limit_min(text: str) -> int | None:
    """Parse sbatch's `--time` (M, M:S, H:M:S, D-H, D-H:M, D-H:M:S) into minutes; None if it sets no limit.

    Slurm rounds seconds up to a whole minute; 0 and UNLIMITED ask for no limit.
    """
    days, dash, clock = text.strip().rpartition("-")
    parts = clock.split(":")
    counted = [*parts, days] if dash else parts
    if not all(_WHOLE.match(part) for part in counted) or len(parts) > 3:
        return None
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    total_s = int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    return math.ceil(total_s / 60) or None
