"""What cutting has saved, or would have saved, and how many jobs got less than they needed.

The source is the decision that each job carries in its admin comment: in observe mode, what it would have been
given is compared with what it then used. A job that got too little, or would have, counts as lost and run again
with its own request: everything that it held in vain is subtracted from the savings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec
import pyarrow as pa
from sqlalchemy import Engine, select

from accounting.decisions.token import asked_request, find_token, granted_by, would_grant
from accounting.report.measures import TRUSTED
from accounting.report.selection import RAN, Selection
from accounting.request import granted
from accounting.store.batches import read_batches
from accounting.store.schema import attempts

By = Literal["all", "partition", "user", "account"]
COLUMNS = (
    "user", "account", "partition", "admin_comment", "outcome", "wall_s", "nodes", "alloc_cpus", "alloc_mem_mib",
    "peak_mem_mib", "memory_quality", "cores", "cores_quality", "gpus",
)  # fmt: skip
OUT_OF_MEMORY, CUT_SHORT, ENFORCE = "out_of_memory", "cut_short", "enforce"
# The quality of a peak that may be less than shown: all others are peaks, or less than the peak was.
UPPER_BOUND = "contaminated"
MIB_A_GIB, S_AN_HOUR = 1024, 3600.0
# The confidence of the highest share.
CONFIDENCE = 0.95
# A term below this share of a sum of floats does not change the sum.
NOTHING = 2.0**-53


class Cut(NamedTuple):
    """One attempt with a decision. Amounts are of the job, asked and given; `short` is of memory or GPUs.

    The second amount of each pair is what the job was given, or would have been if not `enforced`; `judged` says
    whether it is known if its memory was enough, or known that its GPUs were not.
    """

    name: str
    enforced: bool
    is_cut: bool
    cores: tuple[int, int]
    mem_mib: tuple[int, int]
    gpus: tuple[int, int]
    hours: float
    judged: bool
    short: bool
    busy: bool


class CutRow(msgspec.Struct, frozen=True, kw_only=True):
    """What cutting did for one partition, user or account: `done`, or what it would have done.

    Hours saved are of CPUs, of GiB and of GPUs, less what short jobs held in vain. Of the `judged` jobs, whose
    memory was measured to their end or whose GPUs were too few, `short` needed more than was given: their share is
    at most `short_at_most_pct`, with 95 % confidence, if jobs fail independently. `busy` jobs kept more cores busy
    than was given: they take longer, or would have.
    """

    name: str
    cuts: Literal["done", "would be"]
    jobs: int
    cut: int
    saved_core_h: float
    saved_gib_h: float
    saved_gpu_h: float
    judged: int
    short: int
    short_pct: float | None
    short_at_most_pct: float | None
    busy: int


def read_cuts(engine: Engine, selection: Selection, by: By) -> Iterator[Cut]:
    """Yield the selected attempts that ran and carry a decision, batch by batch."""
    query = select(*(attempts.c[name] for name in COLUMNS)).where(*selection.conditions(), RAN)
    for batch in read_batches(engine, query):
        yield from cuts_in(batch, by)


def cuts_in(batch: pa.Table, by: By) -> Iterator[Cut]:
    """Yield the cuts in a table with COLUMNS."""
    for row in batch.to_pylist():
        found = _cut(row, "all jobs" if by == "all" else row[by])
        if found is not None:
            yield found


def _cut(row: Mapping[str, object], name: str) -> Cut | None:
    token = find_token(str(row["admin_comment"] or ""))
    asked = None if token is None else asked_request(token, str(row["user"]))
    # An attempt that ran again with the original request was not cut: the failed attempt before it was.
    if token is None or asked is None or token.recovered_at is not None:
        return None
    if asked.nodes is None and row["nodes"]:
        # For a job that names no number of nodes, amounts per node apply to each of the nodes it ran on.
        asked = msgspec.structs.replace(asked, nodes=int(str(row["nodes"])))
    enforced = token.mode == ENFORCE
    grant = granted_by(token) if enforced else would_grant(token)
    given = granted(asked, grant)
    cores, gpus = (asked.cpus, given.cpus), (asked.gpus or 0, given.gpus or 0)
    mem = (asked.mem_mib or 0, given.mem_mib or 0)
    if enforced:
        cores, mem = _as_started(cores, row["alloc_cpus"]), _as_started(mem, row["alloc_mem_mib"])
    killed, cut_short = row["outcome"] == OUT_OF_MEMORY, row["outcome"] == CUT_SHORT
    # A job that was cut and came to its end had enough.
    needs_more = killed if enforced else _above(row["peak_mem_mib"], mem[1])
    # A job killed with everything that it had asked for fails either way. Of one that was preempted, cancelled or
    # failed, or was hardly sampled, nobody knows whether it would have needed more, unless it did.
    quality = row["memory_quality"]
    needed_more = needs_more and quality != UPPER_BOUND
    judged = enforced if killed else needed_more or (quality in TRUSTED and not cut_short)
    # Memory that nobody asked for came with the CPUs (DefMemPerCPU), as in models/past/jobs.py.
    came_with_cpus = enforced and asked.mem_mib is None
    short = (
        _short(mem, needs_more, judged=judged)
        or _short(cores, killed, judged=came_with_cpus)
        # However little was seen of GPUs, those that were busy were needed.
        or _short(gpus, _above(row["gpus"], gpus[1]), judged=True)
    )
    return Cut(
        name=name,
        enforced=enforced,
        is_cut=any(has < wanted for wanted, has in (cores, mem, gpus)),
        cores=cores,
        mem_mib=mem,
        gpus=gpus,
        hours=float(str(row["wall_s"])) / S_AN_HOUR,
        # A job with too few GPUs is judged, whatever is known of its memory: `short` is a part of `judged`.
        judged=judged or short,
        short=short,
        busy=_short(cores, _above(row["cores"], cores[1]), judged=row["cores_quality"] in TRUSTED),
    )


def _as_started(amounts: tuple[int, int], allocated: object) -> tuple[int, int]:
    """Return what was asked and given of a job that was started.

    Its user may have restored the original request, and Slurm allocates whole cores, with CR_Socket whole sockets.
    """
    asked, given = amounts
    return asked, min(asked, max(given, allocated if isinstance(allocated, int) else 0))


def _short(amounts: tuple[int, int], needs_more: bool, *, judged: bool) -> bool:
    """Whether a job needed more of something than it was given, if that was less than it had asked for."""
    asked, given = amounts
    return judged and given < asked and needs_more


def _above(used: object, given: int) -> bool:
    return isinstance(used, int | float) and used > given


def cut_rows(cuts: Iterable[Cut]) -> list[CutRow]:
    """Return a row for each name, separately for what was done and would have been; the highest savings come first."""
    groups: dict[tuple[str, bool], _Sums] = {}
    for cut in cuts:
        groups.setdefault((cut.name, cut.enforced), _Sums()).add(cut)
    rows = [sums.row(name, enforced=enforced) for (name, enforced), sums in groups.items()]
    return sorted(rows, key=lambda row: (-row.saved_core_h, -row.saved_gib_h, row.name, row.cuts))


class _Sums:
    """Adds up the attempts of one row."""

    def __init__(self) -> None:
        self.jobs = self.cut = self.judged = self.short = self.busy = 0
        self.saved = [0.0, 0.0, 0.0]

    def add(self, cut: Cut) -> None:
        """Count an attempt."""
        self.jobs += 1
        if not cut.is_cut:
            return
        self.cut += 1
        self.judged += cut.judged
        self.short += cut.short
        self.busy += cut.busy
        for place, (asked, given) in enumerate((cut.cores, cut.mem_mib, cut.gpus)):
            self.saved[place] += cut.hours * (-given if cut.short else asked - given)

    def row(self, name: str, *, enforced: bool) -> CutRow:
        """Return the sums."""
        cores, mem_mib, gpus = self.saved
        return CutRow(
            name=name,
            cuts="done" if enforced else "would be",
            jobs=self.jobs,
            cut=self.cut,
            saved_core_h=_hours(cores),
            saved_gib_h=_hours(mem_mib / MIB_A_GIB),
            saved_gpu_h=_hours(gpus),
            judged=self.judged,
            short=self.short,
            short_pct=round(100 * self.short / self.judged, 2) if self.judged else None,
            short_at_most_pct=round(100 * highest_share(self.short, self.judged), 2) if self.judged else None,
            busy=self.busy,
        )


def _hours(amount: float) -> float:
    # A tiny negative amount would be rounded to -0.
    return round(amount, 2) + 0.0


def highest_share(found: int, of: int) -> float:
    """Return the highest share that `found` of `of` do not refute, with CONFIDENCE (Clopper and Pearson, 1934)."""
    if found >= of:
        return 1.0
    low, high = found / of, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _chance_of_no_more(found, of, middle) > 1 - CONFIDENCE else (low, middle)
        )
    return high


def _chance_of_no_more(found: int, of: int, share: float) -> float:
    """Return the probability of `found` or fewer of `of`, each with probability `share`: above found / of, below 1."""
    ways = math.lgamma(of + 1) - math.lgamma(found + 1) - math.lgamma(of - found + 1)
    term = math.exp(ways + found * math.log(share) + (of - found) * math.log1p(-share))  # of exactly `found`
    odds, total = share / (1 - share), 0.0
    for number in range(found, -1, -1):
        total += term
        # Smaller numbers are ever less likely: of a million terms, all but some thousand are nothing.
        if term <= total * NOTHING:
            break
        term *= number / ((of - number + 1) * odds)
    return total
