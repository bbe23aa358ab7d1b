"""What the kernel says of a process (proc(5)): the little that doctor and the sandbox ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Stat:
    """What /proc/PID/stat says that is needed here: its state, its parent's pid, its start in ticks since the boot."""

    state: str
    parent: int
    start_ticks: int


def parse_stat(text: str) -> Stat:
    """Read a line of /proc/PID/stat; the command in it may hold spaces and parentheses."""
    fields = text.rpartition(")")[2].split()
    return Stat(state=fields[0], parent=int(fields[1]), start_ticks=int(fields[19]))


def read_stat(pid: int) -> Stat | None:
    """Return the state of process `pid`; None where there is none, or /proc hides it (hidepid)."""
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError, PermissionError, IndexError):
        return None
