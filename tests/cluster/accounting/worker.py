"""What the jobs of these tests run: it holds memory, burns CPU time, and writes down what it really did.

    worker.py FOLDER [MIB:SECONDS | cpu:SECONDS | exit:CODE]…

Each part follows the one before; memory of a part is given back at its end. The facts are the kernel's (/proc), not
Slurm's, and are written before each part and after the last, so that a worker that is killed leaves them too. It needs
nothing but Python: it runs wherever a job does.
"""

from __future__ import annotations

import json
import os
import sys
import time

MIB = 1024**2
# A worker does not hold everything at once: who grows slowly is seen by samples on the way.
GROW_MIB = 8


def main(folder: str, parts: list[str]) -> int:
    """Do the parts one after another; returns the exit status."""
    began_s, holds = time.time(), list[list[float]]()
    for part in parts:
        kind, _, amount = part.partition(":")
        write(folder, began_s, holds, ended=False)
        if kind == "exit":
            write(folder, began_s, holds, ended=True)
            return int(amount)
        if kind == "cpu":
            burn(float(amount))
        elif kind == "grow":
            grow(int(amount), folder, began_s, holds)
        else:
            hold(int(kind), float(amount), holds)
    write(folder, began_s, holds, ended=True)
    return 0


def hold(mib: int, seconds: float, holds: list[list[float]]) -> None:
    """Hold so much memory, every page of it written, for so long; note what the process had, from when to when."""
    held = b"1" * (mib * MIB)
    from_s = time.time()
    time.sleep(seconds)
    holds.append([memory_mib(), from_s, time.time()])
    del held


def grow(until_mib: int, folder: str, began_s: float, holds: list[list[float]]) -> None:
    """Hold more and more, a little each tenth of a second, up to so much."""
    held = []
    for _ in range(0, until_mib, GROW_MIB):
        held.append(b"1" * (GROW_MIB * MIB))
        now_s = time.time()
        write(folder, began_s, [*holds, [memory_mib(), now_s, now_s]], ended=False)
        time.sleep(0.1)


def burn(seconds: float) -> None:
    """Compute until so much CPU time of this process is used."""
    until_s = time.process_time() + seconds
    while time.process_time() < until_s:
        pass


def memory_mib() -> float:
    """Return the anonymous memory of this process in MiB: what no page cache is counted in."""
    with open("/proc/self/status", encoding="ascii") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["RssAnon"].split()[0]) / 1024


def write(folder: str, began_s: float, holds: list[list[float]], *, ended: bool) -> None:
    """Write the facts so far, whole or not at all."""
    here = os.environ
    facts = {
        "job": int(here["SLURM_JOB_ID"]),
        "attempt": int(here.get("SLURM_RESTART_COUNT", "0")),
        "step": here.get("SLURM_STEP_ID", "")
        if "SLURM_PROCID" in here and "SLURM_STEP_ID" in here
        else "batch",
        "task": int(here.get("SLURM_PROCID", "0")),
        "node": here.get("SLURMD_NODENAME", ""),
        "began_s": began_s,
        "wrote_s": time.time(),
        "cpu_s": time.process_time(),
        "holds": holds,
        "ended": ended,
    }
    path = f"{folder}/{facts['job']}-{facts['attempt']}-{facts['step']}-{facts['task']}-{os.getpid()}.json"
    with open(f"{path}.part", "w", encoding="ascii") as file:
        json.dump(facts, file)
    os.replace(f"{path}.part", path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
