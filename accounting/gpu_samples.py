"""The GPU spool: what a meter beside the jobs wrote, one JSON object a sample and line.

    {"job_id":"123","node":"n1","time_s":1700000000,"gpu":0,"util_pct":90,"mem_mib":2000,"source":"nvml"}

`source` travels into every report. A sandbox's posing GPUs write `simulated`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from accounting.errors import StoreError
from accounting.records import GpuUse, Quarantined

# Two attempts of one job id lie at least this far apart: a requeue waits in the queue.
ATTEMPT_GAP_S = 30


Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # what a store holds


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of one GPU. Utilisation in per cent, memory in MiB."""

    job_id: Whole
    node: str
    time_s: Whole
    gpu: Whole
    util_pct: float
    mem_mib: float
    source: str


def read_spool(folder: Path) -> tuple[list[GpuUse], list[Quarantined]]:
    """Return the GPU use in all `*.jsonl` files of the spool; a spool that does not exist is empty."""
    quarantined: list[Quarantined] = []
    samples = [sample for file in sorted(folder.glob("*.jsonl")) for sample in _samples(file, quarantined)]
    return aggregate(samples), quarantined


def _samples(file: Path, quarantined: list[Quarantined]) -> Iterator[GpuSample]:
    try:
        complete, _, _ = file.read_bytes().rpartition(b"\n")
    except OSError as error:
        raise StoreError(
            f"cannot read the GPU spool file {file}: {error.strerror}; mend its permissions"
        ) from None
    # A last line without its newline is still being written and waits for the next time.
    for line in filter(None, complete.split(b"\n")):
        try:
            yield msgspec.json.decode(line, type=GpuSample, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            quarantined.append(
                Quarantined(line=line.decode(errors="replace"), reason=f"{file.name}: {error}")
            )


def aggregate(samples: Iterable[GpuSample]) -> list[GpuUse]:
    """Reduce samples to one GpuUse for each job, node, GPU, source and attempt (a gap in time starts a new one)."""
    stretches: dict[tuple[int, str, int, str], list[list[GpuSample]]] = {}
    for sample in sorted(samples, key=lambda sample: sample.time_s):
        runs = stretches.setdefault((sample.job_id, sample.node, sample.gpu, sample.source), [])
        if not runs or sample.time_s - runs[-1][-1].time_s > ATTEMPT_GAP_S:
            runs.append([])
        runs[-1].append(sample)
    return [_reduce(run) for runs in stretches.values() for run in runs]


def _reduce(run: list[GpuSample]) -> GpuUse:
    return GpuUse(
        job_id=run[0].job_id,
        node=run[0].node,
        gpu=run[0].gpu,
        source=run[0].source,
        samples=len(run),
        first_s=run[0].time_s,
        last_s=run[-1].time_s,
        util_max_pct=max(sample.util_pct for sample in run),
        util_mean_pct=sum(sample.util_pct for sample in run) / len(run),
        mem_max_mib=max(sample.mem_mib for sample in run),
    )
