#!/usr/bin/python3 -IS
"""A sacct that loses the end of the real output, as a wrapper at a site may (ssh, or a container's command).

cutting_sacct.py …       as accounting.sacct, with these variables set:

CUT_SACCT    the real sacct
CUT_CALL     which question about a window is cut, the first being 0
CUT_AT       where: a share of the bytes (0.5), or with `line:` of the lines, which then are all whole (`line:0.5`)
CUT_STATUS   its exit status
CUT_COUNT    a file in which it counts the questions about a window
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Ask the real sacct, and print what is left of its answer."""
    answer = subprocess.run([os.environ["CUT_SACCT"], *sys.argv[1:]], stdout=subprocess.PIPE, check=False)
    printed = answer.stdout
    # A question about one job has no window.
    window = any(word.startswith("--starttime") for word in sys.argv)
    if not window or any(word.startswith("--jobs") for word in sys.argv) or asked() != os.environ["CUT_CALL"]:
        sys.stdout.buffer.write(printed)
        return answer.returncode
    sys.stdout.buffer.write(cut(printed, os.environ["CUT_AT"]))
    return int(os.environ["CUT_STATUS"])


def asked() -> str:
    """Return how many questions about a window came before this one."""
    count = Path(os.environ["CUT_COUNT"])
    before = count.stat().st_size if count.exists() else 0
    with count.open("ab") as file:
        file.write(b"x")
    return str(before)


def cut(printed: bytes, where: str) -> bytes:
    """Return the beginning of the output."""
    kind, _, share = where.rpartition(":")
    if not kind:
        return printed[: int(len(printed) * float(share))]
    lines = printed.splitlines(keepends=True)
    return b"".join(lines[: int(len(lines) * float(share))])


if __name__ == "__main__":
    sys.exit(main())
