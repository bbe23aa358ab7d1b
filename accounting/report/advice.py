"""What to change in Slurm's configuration to get better labels. Pure: counts in, lines with their reasons out.

Every line is spelled as in Slurm's own manual pages. Which release has what was read from its change logs:
gres/gpumem and gres/gpuutil came with 23.02, memory.current (which includes the page cache) with 23.11,
no_file_cache with 25.11.1, AccountingStoreFlags with 21.08.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from accounting.labels.quality import release_of
from accounting.report.quality import Labelled, Segment

# From this share of attempts on, a quality is worth a change; every site has a few jobs that run for a second.
MANY = 0.05
# Memory use above the allocation is impossible wherever memory is enforced.
SOME = 0.01
# Fewer attempts than this say nothing about a habit.
ENOUGH = 100

LINUX = "jobacct_gather/linux"
PSS = "JobAcctGatherParams=UsePss"
GATHER = "JobAcctGatherType=jobacct_gather/cgroup"
FREQUENCY = "JobAcctGatherFrequency=task=10"
COMPLETE = "rightsizer ingest --from-file"
GPU_TRES = "AccountingStorageTRES=gres/gpu,gres/gpumem,gres/gpuutil"

# Yields file, line and reason of what it advises for a segment.
Rule = Callable[[Segment], Iterator[tuple[str, str, str]]]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One line for one of Slurm's files (or a command of ours, if `file` is `run`), and the reason."""

    cluster: str
    file: str
    line: str
    reason: str


def advice(segments: Sequence[Segment]) -> list[Advice]:
    """Return what to change, cluster by cluster, judging by what measured each cluster's latest attempts.

    What an earlier release or plugin measured can no longer be changed. Nothing is returned for good labels.
    """
    return [line for segment in latest(segments) for line in _joined(_advice(segment))]


def latest(segments: Iterable[Segment]) -> list[Segment]:
    """Return for each cluster the segment of its latest attempts, in the order of the clusters' names."""
    found: dict[str, Segment] = {}
    for segment in segments:
        known = found.get(segment.cluster)
        if segment.attempts and (known is None or segment.last_s > known.last_s):
            found[segment.cluster] = segment
    return [found[cluster] for cluster in sorted(found)]


def _advice(segment: Segment) -> Iterator[Advice]:
    if segment.since is not None:
        yield Advice(cluster=segment.cluster, file="run", line=COMPLETE, reason=_purged(segment))
        segment = segment.since
    rules: tuple[Rule, ...] = (
        _nothing_gathered, _too_short, _page_cache, _not_enforced, _not_shared, _no_memory_asked, _no_gpus, _no_energy,
        _no_comments,
    )  # fmt: skip
    # Attempts that came without their steps do not show how Slurm is configured.
    for rule in rules if segment.with_steps else (_no_steps,):
        for file, line, reason in rule(segment):
            yield Advice(cluster=segment.cluster, file=file, line=line, reason=reason)


def _joined(lines: Iterable[Advice]) -> list[Advice]:
    """Join the reasons for the same line."""
    found: dict[tuple[str, str], Advice] = {}
    for one in lines:
        key = (one.file, one.line)
        known = found.get(key)
        reason = f"{known.reason}; {one.reason}" if known else one.reason
        found[key] = msgspec.structs.replace(one, reason=reason)
    return list(found.values())


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"


def _purged(segment: Segment) -> str:
    share = _percent(segment.purged / segment.attempts)
    since = f"{datetime.fromtimestamp(segment.since_s).astimezone():%Y-%m-%d}"
    return (
        f"{share} of the attempts, those that ended before {since}, had lost their steps to slurmdbd's "
        "PurgeStepAfter before they were read, and measurements are in the steps. Dumps of sacct from "
        "before then restore them. What was ingested in time is kept"
    )


def _no_steps(segment: Segment) -> Iterator[tuple[str, str, str]]:
    yield (
        "run",
        "rightsizer ingest",
        (
            f"none of {segment.attempts:,} attempts has a step, and measurements are in the steps. "
            "Either the attempts come from a dump without steps, or Slurm stores no steps "
            "(AccountingStorageEnforce with nosteps or nojobs). Ingest from sacct itself, or make the "
            "dump without -X: sacct --allusers --duplicates --parsable2 --noconvert --format=ALL"
        ),
    )


def _nothing_gathered(segment: Segment) -> Iterator[tuple[str, str, str]]:
    dimensions: tuple[Labelled, ...] = ("memory", "cores", "io")
    for dimension in dimensions:
        share = segment.share(dimension, "absent")
        if share < MANY:
            continue
        name = {"memory": "memory", "cores": "CPU time", "io": "input and output"}[dimension]
        if not segment.gather.startswith(("jobacct_gather/cgroup", LINUX)):
            yield "slurm.conf", GATHER, f"{_percent(share)} of the attempts have no figure for {name}"
        elif dimension == "memory":
            yield (
                "slurm.conf",
                FREQUENCY,
                (
                    f"{_percent(share)} of the attempts have no figure for {name} although "
                    f"{segment.gather.split()[0]} is set: an interval of 0 takes a single sample, at "
                    "the end"
                ),
            )


def _too_short(segment: Segment) -> Iterator[tuple[str, str, str]]:
    dimensions: tuple[Labelled, ...] = ("memory", "gpus", "io")
    for dimension in dimensions:
        share = segment.share(dimension, "short")
        if share >= MANY:
            yield (
                "slurm.conf",
                FREQUENCY,
                (
                    f"{_percent(share)} of the attempts ended before their {dimension} was sampled (every 30 s by "
                    "default; an interval of 0 samples nothing)"
                ),
            )


def _page_cache(segment: Segment) -> Iterator[tuple[str, str, str]]:
    share = segment.share("memory", "contaminated")
    if share < MANY:
        return
    said = (
        f"{_percent(share)} of the attempts come near their memory limit, because the page cache is counted"
    )
    release = release_of(segment.release)
    if release is not None and release < (25, 11):
        yield (
            "slurm.conf",
            "JobAcctGatherType=jobacct_gather/linux",
            (
                f"{said}; this plugin counts only the memory of the processes. Slurm 25.11.1 and newer "
                "can keep jobacct_gather/cgroup with JobAcctGatherParams=no_file_cache"
            ),
        )
        return
    if "cgroup/v1" in segment.gather:
        yield "cgroup.conf", "CgroupPlugin=cgroup/v2", "no_file_cache has no effect with cgroup/v1"
    yield (
        "slurm.conf",
        "JobAcctGatherParams=no_file_cache",
        f"{said}; with this setting, Slurm 25.11.1 and newer leave it out, and then rely on samples",
    )
    yield "slurm.conf", FREQUENCY, "with no_file_cache, a peak is seen only if it is sampled"


def _not_enforced(segment: Segment) -> Iterator[tuple[str, str, str]]:
    share = segment.above_memory / segment.attempts
    if share < SOME:
        return
    said = f"{_percent(share)} of the attempts used more memory than they were allocated"
    unless = ""
    if segment.gather.startswith(LINUX) and "usepss" not in segment.gather.lower():
        unless = ", unless that is memory that processes share"
        yield "slurm.conf", PSS, f"{said}: memory that processes share is counted for each of them"
    yield "cgroup.conf", "ConstrainRAMSpace=yes", f"{said}: the limit is not enforced{unless}"
    yield "slurm.conf", "TaskPlugin=task/cgroup,task/affinity", "ConstrainRAMSpace needs task/cgroup"


def _not_shared(segment: Segment) -> Iterator[tuple[str, str, str]]:
    if segment.gather.startswith(LINUX) and "noshared" in segment.gather.lower():
        yield (
            "slurm.conf",
            PSS,
            (
                "NoShared leaves out memory that processes share, but the memory limit counts it: a job "
                "that is cut accordingly is killed"
            ),
        )


def _no_memory_asked(segment: Segment) -> Iterator[tuple[str, str, str]]:
    share = segment.without_memory / segment.attempts
    if share >= 0.5:
        yield (
            "slurm.conf",
            "SelectTypeParameters=CR_Core_Memory",
            (
                f"{_percent(share)} of the attempts neither asked for memory nor were allocated any: "
                "Slurm does not allocate memory, so there is nothing to right-size; also set "
                "DefMemPerCPU"
            ),
        )


def _no_gpus(segment: Segment) -> Iterator[tuple[str, str, str]]:
    added_up = segment.gpus_added_up / (segment.of("gpus") or 1)
    if added_up >= MANY:
        yield (
            "run",
            "rightsizer collect",
            (
                f"{_percent(added_up)} of the {segment.of('gpus'):,} attempts with GPUs have "
                "gres/gpuutil recorded, but for several GPUs together it does not say how many were "
                "busy; `rightsizer collect` measures each GPU"
            ),
        )
    share = segment.share("gpus", "absent") - added_up
    if share < MANY:
        return
    said = f"{_percent(share)} of the {segment.of('gpus'):,} attempts with GPUs have no figure for their use"
    release = release_of(segment.release)
    if release is None or release >= (23, 2):
        yield (
            "slurm.conf",
            GPU_TRES,
            f"{said}; Slurm 23.02 and newer record it, unless JobAcctGatherParams=DisableGPUAcct is set",
        )
        yield (
            "gres.conf",
            "AutoDetect=nvml",
            "Slurm meters GPUs of NVIDIA only by NVML (of AMD: AutoDetect=rsmi)",
        )
    yield (
        "run",
        "rightsizer collect",
        f"{said}; `rightsizer collect` also measures MIG instances and power, on any release",
    )


def _no_energy(segment: Segment) -> Iterator[tuple[str, str, str]]:
    share = segment.share("energy", "absent")
    if share < 0.5:
        return
    yield (
        "slurm.conf",
        "AcctGatherEnergyType=acct_gather_energy/rapl",
        (
            f"{_percent(share)} of the attempts have no energy; it is then estimated by the site's "
            "table. Set this only if jobs do not share nodes: each job is given all energy of its "
            "nodes, and the table is better. rapl measures CPUs and memory, and needs the kernel "
            "module msr; ipmi, xcc (Lenovo) and pm_counters (HPE Cray) measure nodes"
        ),
    )
    yield (
        "slurm.conf",
        "AcctGatherNodeFreq=30",
        "0, the default, reads no energy of nodes; rapl needs less than 300",
    )


def _no_comments(segment: Segment) -> Iterator[tuple[str, str, str]]:
    if segment.commented or segment.attempts < ENOUGH:
        return
    release = release_of(segment.release)
    old = release is not None and release < (21, 8)
    yield (
        "slurm.conf",
        "AccountingStoreJobComment=YES" if old else "AccountingStoreFlags=job_comment",
        (
            f"none of {segment.attempts:,} attempts has a comment. Without this line Slurm stores no "
            "comments, so a client's own decisions and opting out by comment cannot be seen later; if "
            "it is set already, nobody has written a comment"
        ),
    )
