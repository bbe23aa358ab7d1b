"""What is fuzzed: a parser with its seeds, and a watch that runs it on one input after another."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

# An input that takes more CPU time than this is a fault.
MOST_S = 1.0
# So many faults of one kind are kept.
KEPT_ALIKE = 2


@dataclass(frozen=True)
class Target:
    """A parser under test. `check` raises on every fault; the errors that are meant for invalid input are no fault.

    `share` is its weight among all inputs; `words` are bytes that often occur in its inputs.
    """

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    share: int
    words: tuple[bytes, ...] = ()
    most_bytes: int = 4096


@dataclass(frozen=True)
class Fault:
    """An input that a target cannot handle, and why."""

    why: str
    data: bytes


@dataclass
class Watch:
    """Runs a target on inputs; a fault does not end the run, so that one run finds them all."""

    target: Target
    inputs: int = 0
    slowest_s: float = 0.0
    slowest: bytes = b""
    faults: dict[str, list[Fault]] = field(default_factory=dict)

    def run(self, data: bytes) -> None:
        """Run the target on one input. CPU time is measured, because wall time means nothing on a busy machine."""
        self.inputs += 1
        begin_s = time.process_time()
        try:
            self.target.check(data)
        except Exception as error:  # noqa: BLE001 - whatever comes out of it is what is looked for
            self._keep(_kind(error), "".join(traceback.format_exception(error)), data)
        spent_s = time.process_time() - begin_s
        if spent_s > self.slowest_s:
            self.slowest_s, self.slowest = spent_s, data
        if spent_s > MOST_S:
            self._keep("slow", f"it took {spent_s:.1f} s", data)

    def _keep(self, kind: str, why: str, data: bytes) -> None:
        alike = self.faults.setdefault(kind, [])
        if len(alike) < KEPT_ALIKE:
            alike.append(Fault(why, data))

    def write(self, folder: Path) -> None:
        """Write the faults, and the slowest input, into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for one in (fault for alike in self.faults.values() for fault in alike):
            name = hashlib.sha256(one.data).hexdigest()[:12]
            (folder / f"{name}.bin").write_bytes(one.data)
            (folder / f"{name}.txt").write_text(one.why, encoding="utf-8", errors="backslashreplace")
        (folder / "slowest.bin").write_bytes(self.slowest)


def _kind(error: Exception) -> str:
    """Return what an exception is and where it was raised: two of one kind have one cause."""
    places = traceback.extract_tb(error.__traceback__)[-3:]
    return " ".join(
        [type(error).__name__, *(f"{Path(place.filename).name}:{place.lineno}" for place in places)]
    )
