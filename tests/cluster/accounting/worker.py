"""The program that the jobs of these tests run: it holds memory, burns CPU time, and records what it really did.

    worker.py FOLDER [MIB:SECONDS | cpu:SECONDS | meet:NUMBER | exit:CODE]…

The parts are done in order, and the memory of a part is freed at its end. The facts come from the kernel (/proc), not
from Slurm, and are written before each part and after the last, so that a worker that is killed leaves them too. It
needs only Python, so that it runs wherever a job does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

MIB = 1024**2
# A worker does not take everything at once: samples see one that grows slowly on the way.
GROW_MIB = 8


def main(folder: str, parts: list[str]) -> int:
    """Do the parts one after another; return the exit status."""
    facts = Facts(folder)
    facts.write()
    for part in parts:
        kind, _, amount = part.partition(":")
        if kind == "exit":
            facts.write(ended=True)
            return int(amount)
        if kind == "cpu":
            burn(float(amount))
        elif kind == "meet":
            meet(int(amount), facts)
        elif kind == "grow":
            grow(int(amount), facts)
        else:
            hold(int(kind), float(amount), facts)
    facts.write(ended=True)
    return 0


def meet(number: int, facts: Facts) -> None:
    """Wait until `number` workers of this attempt are there: a busy machine starts them one after another."""
    ours = f"{facts.who['job']}-{facts.who['attempt']}-*.json"
    while len(list(facts.path.parent.glob(ours))) < number:
        time.sleep(0.05)


def hold(mib: int, seconds: float, facts: Facts) -> None:
    """Hold this much memory for this long, every page written; note what the process held, from when to when."""
    held = b"1" * (mib * MIB)
    from_s = time.time()
    # A worker that is killed meanwhile holds it until then, so it is noted before its time is over.
    facts.note(memory_mib(), from_s, from_s + seconds)
    time.sleep(seconds)
    facts.holds[-1][2] = time.time()
    del held


def grow(until_mib: int, facts: Facts) -> None:
    """Hold more and more memory, a little every tenth of a second, up to `until_mib`."""
    held = []
    for _ in range(0, until_mib, GROW_MIB):
        held.append(b"1" * (GROW_MIB * MIB))
        facts.note(memory_mib(), time.time(), time.time() + 0.1)
        time.sleep(0.1)


def burn(seconds: float) -> None:
    """Compute until this process has used this much CPU time."""
    until_s = time.process_time() + seconds
    while time.process_time() < until_s:
        pass


def memory_mib() -> float:
    """Return the anonymous memory of this process in MiB, which includes no page cache."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines["RssAnon"].split()[0]) / 1024


class Facts:
    """What this process has done so far; `holds` are MiB with begin and end."""

    def __init__(self, folder: str) -> None:
        self.began_s = time.time()
        self.holds: list[list[float]] = []
        here = os.environ
        in_step = "SLURM_PROCID" in here and "SLURM_STEP_ID" in here
        self.who = {
            "job": int(here["SLURM_JOB_ID"]),
            "attempt": int(here.get("SLURM_RESTART_COUNT", "0")),
            "step": here["SLURM_STEP_ID"] if in_step else "batch",
            "task": int(here.get("SLURM_PROCID", "0")),
            "node": here.get("SLURMD_NODENAME", ""),
        }
        name = "-".join(str(self.who[part]) for part in ("job", "attempt", "step", "task"))
        self.path = Path(folder) / f"{name}-{os.getpid()}.json"

    def note(self, mib: float, from_s: float, until_s: float) -> None:
        """Note memory that is held, and write it down."""
        self.holds.append([mib, from_s, until_s])
        self.write()

    def write(self, *, ended: bool = False) -> None:
        """Write the facts so far, completely or not at all."""
        measured = {
            "began_s": self.began_s,
            "cpu_s": time.process_time(),
            "holds": self.holds,
            "ended": ended,
        }
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps({**self.who, **measured}), encoding="ascii")
        part.replace(self.path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
