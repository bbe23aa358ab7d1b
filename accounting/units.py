"""Slurm's ways of writing memory and time, and ours. Memory is MiB, time is seconds, everywhere inside."""

from __future__ import annotations

import math
import re
from datetime import datetime
from zoneinfo import ZoneInfo

MIB_IN_BYTES = 1024**2

# Eighteen digits are an exabyte in bytes; more are damage, and would not fit the store.
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
# From here on a request's number is one of Slurm's flags that an old release printed along with it.
SENTINEL_MEM_MIB = 2**31


def parse_memory_mib(text: str, *, bare_unit: str = "M") -> float | None:
    """Return MiB for Slurm's `3000M`, `2G`, `204800K`; None where it is not an amount of memory.

    `bare_unit` is the unit of a number without a suffix: `M` in requests, `B` (bytes) in usage that was
    printed with `--noconvert`.
    """
    match = _MEMORY.match(text.strip())
    if match is None:
        return None
    number, suffix = float(match[1]), match[2].upper() or bare_unit
    return number * _BYTES_PER.get(suffix, 1) / MIB_IN_BYTES


def parse_duration_s(text: str) -> float | None:
    """Return seconds for `[D-][[HH:]MM:]SS[.mmm]`; None where it is not a duration."""
    match = _DURATION.match(text.strip())
    if match is None:
        return None
    days, hours, minutes = (int(match[part] or 0) for part in ("days", "hours", "minutes"))
    return days * 86400 + hours * 3600 + minutes * 60 + float(match["seconds"])


def whole(text: str | None) -> int | None:
    """Return a non-negative whole number of at most 18 digits (what a store holds); None where it is none."""
    return int(text) if text is not None and _WHOLE.match(text) else None


def parse_requested_mib(text: str) -> tuple[float, str] | None:
    """Return MiB and `c` (a CPU), `n` (a node) or '' (in all) for ReqMem's `100Mc`, `2000Mn`, `4G`.

    None where it tells nothing: 0 is all the memory of a node, and 2147486648Mn a flag that was printed as a number.
    """
    match = _REQUESTED.match(text)
    mem_mib = parse_memory_mib(match[1]) if match else None
    return (mem_mib, match[2]) if match and mem_mib and mem_mib < SENTINEL_MEM_MIB else None


def parse_time_s(text: str, zone: ZoneInfo) -> int | None:
    """Return unix seconds for unix seconds or a local time (`2024-06-24T12:33:26`); None for `Unknown` and the like.

    A local time that comes twice, in the hour after summer time, is taken for the first; one that never comes, in the
    hour before it, is read by the clock that was not put forward yet.
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
    """Return an amount of memory for people: `640 MiB`, `7.8 GiB`."""
    if mib < 1024:
        return f"{mib:.0f} MiB"
    gib = mib / 1024
    return f"{gib:.0f} GiB" if gib >= 100 or gib == int(gib) else f"{gib:.1f} GiB"


def round_up(value: float, step: int) -> int:
    """Return the smallest multiple of `step` (> 0) that is not below `value`."""
    # 512.0000001 is 512 that went through a logarithm: it must not cost another step.
    return step * math.ceil(value / step - 1e-6)


def parse_time_limit_min(text: str) -> int | None:
    """Return minutes for sbatch's `--time`: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S; None where it is no limit.

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
