"""What an attempt cost in energy and carbon, and how much of that was wasted. Pure: no clock, no file.

Sources of the figures, best first:

    cores, memory   Slurm's ConsumedEnergy; else the site's table: watts per core (idle and busy) and per GiB
    GPUs            Slurm's ConsumedEnergy if its plugin counts GPUs (ipmi, xcc and pm_counters do, rapl does not);
                    else the collector's power readings while it saw the GPU; else the site's table

For every job, useful + wasted = total. Wasted is:

    lost    everything of an attempt that was not completed: cut short, timed out, killed for memory
    unused  of a completed attempt, what resources drew that it held and did not use: its idle cores (the mean number),
            the memory beyond its peak, and its GPUs while they were idle

Use that is not known (no memory peak, no utilisation) does not count as unused. Energy is that of the job's
hardware; the site's PUE, for cooling and the like, is added in carbon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec
from numpy import float64
from numpy.typing import NDArray

from accounting.gpu_spool.samples import merge_uses
from accounting.labels.carbon import CarbonIntensity
from accounting.records import Attempt, GpuUse

J_PER_KWH = 3.6e6
MIB_PER_GIB = 1024
# More than the largest nodes of 2026 draw. A mean beyond it is a counter overflow, not energy.
MOST_NODE_W = 50_000.0
# No meter reads the power of a MIG instance: it is taken as that of the smallest, one of seven.
MIG_SLICES = 7
# With any other outcome, the energy is lost. An attempt that still runs is not judged yet.
KEPT = ("completed", "unfinished")

EnergyQuality = Literal["measured", "partly", "estimated"]
# A figure, or a column of figures.
Amount = TypeVar("Amount", float, NDArray[float64])


class EnergySite(msgspec.Struct, frozen=True, kw_only=True):
    """What a site knows about its machines; the defaults are averages, with their sources in etc/rightsizer.toml.

    `watts_per_core` and `watts_per_gpu` are the draw of a busy one, the idle shares (0..1) the part of that drawn
    when idle; a core is a CPU as Slurm allocates it. `slurm_counts_gpus`: whether ConsumedEnergy includes the GPUs.
    """

    carbon: CarbonIntensity
    pue: float = 1.58
    watts_per_core: float = 12.0
    core_idle_share: float = 0.3
    watts_per_gib: float = 0.3725
    watts_per_gpu: float = 200.0
    gpu_idle_share: float = 0.15
    slurm_counts_gpus: bool = True


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt cost, in joules and kilograms of CO2.

    `unused_j` and `lost_j` are the wasted parts of `energy_j`, `estimated_j` the part that was not measured.
    `source` names what measured: `slurm`, a meter such as `nvml`, `site` for the site's table, joined by `+`.
    """

    energy_j: float
    carbon_kg: float
    unused_j: float
    lost_j: float
    estimated_j: float
    source: str

    @property
    def wasted_j(self) -> float:
        """The energy that was wasted."""
        return self.unused_j + self.lost_j

    @property
    def quality(self) -> EnergyQuality:
        """Whether all of the energy was measured, part of it, or none."""
        if self.estimated_j <= 0.0:
            return "measured"
        return "partly" if self.estimated_j < self.energy_j else "estimated"


class _Part(msgspec.Struct, frozen=True):
    """What one kind of resource drew, how much of that by unused resources, and how much of it is estimated."""

    drawn_j: float = 0.0
    unused_j: float = 0.0
    estimated_j: float = 0.0
    sources: frozenset[str] = frozenset()

    def __add__(self, other: _Part) -> _Part:
        return _Part(
            self.drawn_j + other.drawn_j,
            self.unused_j + other.unused_j,
            self.estimated_j + other.estimated_j,
            self.sources | other.sources,
        )

    def measured(self, energy_j: float, source: str) -> _Part:
        """Replace the estimate by a measured figure; the unused share stays."""
        share = self.unused_j / self.drawn_j if self.drawn_j else 0.0
        return _Part(energy_j, energy_j * share, 0.0, frozenset({source}))


def cores_w(busy: Amount, idle: Amount, site: EnergySite) -> Amount:
    """Return the draw of busy and idle cores, in watts."""
    return (busy + idle * site.core_idle_share) * site.watts_per_core


def memory_w(held_mib: Amount, site: EnergySite) -> Amount:
    """Return the draw of memory, in watts: the same whether it is used or not."""
    return held_mib * (site.watts_per_gib / MIB_PER_GIB)


def gpus_w(busy: Amount, idle: Amount, site: EnergySite) -> Amount:
    """Return the draw of busy and idle GPUs, in watts."""
    return (busy + idle * site.gpu_idle_share) * site.watts_per_gpu


def energy_of(attempt: Attempt, gpu_use: Sequence[GpuUse], site: EnergySite) -> Energy:
    """Return what an attempt cost; `gpu_use` is what meters saw of its job, including other attempts."""
    row = attempt.row
    wall_s = float(max(0, attempt.use.wall_s))
    host = _cores(attempt, wall_s, site) + _memory(attempt, wall_s, site)
    # A GPU of another attempt, or of an earlier job with the same number, did not idle in this one.
    during = [use for use in gpu_use if use.first_s <= row.end_s and use.last_s >= row.start_s]
    gpus = _gpus(attempt, during, wall_s, site)
    slurm_j = _slurm_energy_j(attempt, wall_s)
    if slurm_j is None:
        total = host + gpus
    elif site.slurm_counts_gpus and slurm_j >= gpus.drawn_j - gpus.estimated_j:
        total = (host + gpus).measured(slurm_j, "slurm")
    else:
        # A figure below the measured draw of the GPUs alone cannot include them.
        total = host.measured(slurm_j, "slurm") + gpus
    outcome = attempt.use.outcome
    grams = site.carbon.mean(row.start_s, row.end_s)
    return Energy(
        energy_j=total.drawn_j,
        carbon_kg=total.drawn_j * site.pue / J_PER_KWH * grams / 1000,
        unused_j=total.unused_j if outcome in KEPT else 0.0,
        lost_j=0.0 if outcome in KEPT else total.drawn_j,
        estimated_j=total.estimated_j,
        source="+".join(sorted(total.sources)),
    )


def _slurm_energy_j(attempt: Attempt, wall_s: float) -> float | None:
    """Return ConsumedEnergy if it is plausible; in Slurm, 0 means not measured."""
    energy_j, most_j = attempt.use.energy_j, MOST_NODE_W * max(1, attempt.row.nodes) * wall_s
    return energy_j if energy_j is not None and 0.0 < energy_j <= most_j else None


def _estimate(drawn_j: float, unused_j: float) -> _Part:
    return _Part(drawn_j, unused_j, drawn_j, frozenset({"site"})) if drawn_j else _Part()


def _cores(attempt: Attempt, wall_s: float, site: EnergySite) -> _Part:
    held = attempt.row.alloc_cpus or 0
    # Unknown use counts as busy, as in Green Algorithms: only what was seen idle is called unused.
    busy = held if attempt.use.cores is None else min(float(held), attempt.use.cores)
    idle = held - busy
    return _estimate(cores_w(busy, idle, site) * wall_s, cores_w(0.0, idle, site) * wall_s)


def _memory(attempt: Attempt, wall_s: float, site: EnergySite) -> _Part:
    held_mib = float(attempt.row.alloc_mem_mib or 0)
    peak_mib = attempt.use.peak_mem_mib
    unused_mib = 0.0 if peak_mib is None else max(0.0, held_mib - peak_mib)
    return _estimate(memory_w(held_mib, site) * wall_s, memory_w(unused_mib, site) * wall_s)


def _gpus(attempt: Attempt, gpu_use: Sequence[GpuUse], wall_s: float, site: EnergySite) -> _Part:
    metered: dict[tuple[str, int, int], list[GpuUse]] = {}
    for use in merge_uses(gpu_use):
        metered.setdefault((use.node, use.gpu, use.instance), []).append(use)
    parts = [_one_gpu(attempt, uses, wall_s, site) for uses in metered.values()]
    unmetered = max(0, (attempt.row.alloc_gpus or 0) - len(metered))
    if len({node for node, _, _ in metered}) < max(1, attempt.row.nodes):
        # If not every node was watched, unmetered GPUs count as busy: as many as Slurm saw busy, else all.
        busy = unmetered if metered or attempt.use.gpus is None else min(unmetered, attempt.use.gpus)
        parts.append(_estimate(gpus_w(busy, 0.0, site) * wall_s, 0.0))
        unmetered -= busy
    idle_j = gpus_w(0.0, unmetered, site) * wall_s
    return sum(parts, start=_estimate(idle_j, idle_j))


def _one_gpu(attempt: Attempt, uses: Sequence[GpuUse], wall_s: float, site: EnergySite) -> _Part:
    """Return what one GPU drew: by its meter while it was seen, as an idle GPU for the rest of the time."""
    busy_w = site.watts_per_gpu / (1 if uses[0].instance < 0 else MIG_SLICES)
    # Two meters that watch one GPU count once; one with power readings is preferred.
    source = min(uses, key=lambda use: (use.power_mean_w is None, use.source)).source
    total, seen_s = _Part(), 0.0
    for use in uses:
        if use.source == source:
            within_s = min(use.last_s, attempt.row.end_s) - max(use.first_s, attempt.row.start_s)
            time_s = min(float(within_s), wall_s - seen_s)
            seen_s += time_s
            total += _seen(use, time_s, busy_w, site)
    rest_j = busy_w * site.gpu_idle_share * (wall_s - seen_s)
    return total + _estimate(rest_j, rest_j)


def _seen(use: GpuUse, time_s: float, busy_w: float, site: EnergySite) -> _Part:
    share = None if use.util_mean_pct is None else use.util_mean_pct / 100
    idle_draw = 0.0 if share is None else site.gpu_idle_share * (1.0 - share)
    draw = 1.0 if share is None else share + idle_draw
    unused_share = idle_draw / draw if draw else 0.0
    if use.power_mean_w is not None:
        drawn_j = use.power_mean_w * time_s
        return _Part(drawn_j, drawn_j * unused_share, 0.0, frozenset({use.source}))
    drawn_j = busy_w * draw * time_s
    return _estimate(drawn_j, drawn_j * unused_share)
