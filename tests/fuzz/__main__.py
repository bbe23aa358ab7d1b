"""Fuzz every parser, each in a process of its own, and print a table: `python -m tests.fuzz` (make fuzz).

Exit 1: an input was a fault. The folder that is named holds it, with what came of it; put into tests/fuzz/found it
becomes a test.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

HEADING = ("TARGET", "INPUTS", "EDGES", "SLOWEST", "FAULTS", "TOOK")
_EDGES = re.compile(r"\bcov: (\d+)")


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a target's process reported; `died` says how it ended if it did not end normally. Times are CPU time."""

    target: str
    inputs: int = 0
    slowest_s: float = 0.0
    faults: tuple[str, ...] = ()
    edges: int | None = None
    died: str = ""
    took_s: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the targets one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the parsers.")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="in all, shared out among the targets")
    parser.add_argument("--seed", type=int, default=1, help="the same one makes the same inputs")
    parser.add_argument(
        "--target", action="append", choices=[*TARGETS], help="only this one; may be repeated"
    )
    parser.add_argument("--folder", type=Path, help="where findings go; else a new folder in /tmp")
    options = parser.parse_args(arguments)
    chosen = [TARGETS[name] for name in options.target or TARGETS]
    folder = options.folder or Path(tempfile.mkdtemp(prefix="rightsizer-fuzz-"))
    print("{:<10} {:>9} {:>7} {:>10} {:>7} {:>8}".format(*HEADING), flush=True)
    told = []
    for target, inputs in zip(chosen, shared_out(options.inputs, chosen), strict=True):
        told.append(run(target, inputs, options.seed, folder / target.name))
        print(row(told[-1]), flush=True)
    total = sum(one.inputs for one in told)
    faults = sum(len(one.faults) + bool(one.died) for one in told)
    print(f"{total} inputs, {faults} faults" + (f"; they lie in {folder}" if faults else ""))
    for one in told:
        for fault in (*one.faults, *filter(None, [one.died])):
            print(f"{one.target}: {fault}")
    if not faults and not options.folder:
        shutil.rmtree(folder)
    return 1 if faults else 0


def shared_out(inputs: int, targets: Sequence[Target]) -> list[int]:
    """Return how many inputs each target gets."""
    whole = sum(target.share for target in targets)
    return [max(1, round(inputs * target.share / whole)) for target in targets]


def run(target: Target, inputs: int, seed: int, folder: Path) -> Told:
    """Run one target in a process of its own, so that even its death does not end the others."""
    folder.mkdir(parents=True, exist_ok=True)
    begin_s = time.monotonic()
    command = [sys.executable, "-m", "tests.fuzz.guided", target.name, str(inputs), str(seed), str(folder)]
    # In memory where possible, since most inputs become a file, and libFuzzer ends without cleaning up.
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a folder of its own there
    with tempfile.TemporaryDirectory(prefix="rightsizer-fuzz-", dir=shared) as scratch:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            env={**os.environ, "TMPDIR": scratch},
        )
    log = done.stdout.decode(errors="replace")
    (folder / "log").write_text(log, encoding="utf-8")
    written = folder / "told.json"
    told = msgspec.json.decode(written.read_bytes()) if written.exists() else {}
    edges = _EDGES.findall(log)
    return msgspec.convert(
        {
            **told,
            "target": target.name,
            "edges": int(edges[-1]) if edges else None,
            "died": f"its process ended with {done.returncode}: see {folder / 'log'}"
            if done.returncode
            else "",
            "took_s": time.monotonic() - begin_s,
        },
        Told,
    )


def row(one: Told) -> str:
    """Return a target's line of the table."""
    edges = "-" if one.edges is None else str(one.edges)
    faults = len(one.faults) + bool(one.died)
    slowest = f"{one.slowest_s * 1000:.0f} ms"
    return f"{one.target:<10} {one.inputs:>9} {edges:>7} {slowest:>10} {faults:>7} {one.took_s:>6.0f} s"


if __name__ == "__main__":
    sys.exit(main())
