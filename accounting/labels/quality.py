"""How far each figure of an attempt can be trusted. Pure: arrays in, arrays out.

The words are those of `Quality` in accounting/records.py. The meaning of Slurm's figures depends on release and plugin:

    jobacct_gather/linux             anonymous and mapped memory of the processes, sampled
    jobacct_gather/cgroup cgroup/v1  before 24.11: anonymous memory of the cgroup, sampled
    jobacct_gather/cgroup cgroup/v2  22.05: anonymous memory, in which huge pages count twice, sampled
                                     23.02: anonymous memory, sampled
                                     23.11, 24.05: all memory with the page cache, sampled
    jobacct_gather/cgroup, either    24.11 and later: the kernel's own peak, with the page cache
    … with no_file_cache (v2)        25.11 and later: all memory but the cache of files on disk, sampled

With Slurm's default, CgroupPlugin=autodetect, nobody says which version of cgroups the nodes have.
"""

from __future__ import annotations

import re

import numpy as np

from accounting.frames import Flags, Floats, Ints, Texts

# Slurm's default sampling interval, used if none is known.
SAMPLED_EVERY_S = 30
# Steps with more than this share of a job's CPU time did its work; a short `srun hostname` before them did not.
MOST = 0.5
# The cache fills whatever a job was given: a peak this near to the limit may be cache.
NEAR_THE_LIMIT = 0.9
CACHE_SINCE = {"cgroup/v1": (24, 11), "cgroup/v2": (23, 11)}
KERNEL_PEAK_SINCE = (24, 11)
# Before this release, jobacct_gather/cgroup looks for a task under its number in the step, while task/cgroup puts
# it under its number on the node (seen on 22.05, fixed in 23.11.1): on all nodes but the first, and in all
# components of a heterogeneous job but the first, memory is counted for few tasks or none. CPU time is right.
COUNTS_ALL_TASKS_SINCE = (23, 11)
Release = tuple[int, int]
_RELEASE = re.compile(r"(\d+)\.(\d+)", re.ASCII)


def counts_cache(release: str, gather: str) -> bool:
    """Whether a release and plugin count the page cache as a job's memory; if either version may do it, both must."""
    since = [first for plugin, first in CACHE_SINCE.items() if plugin in gather]
    return _reads_cgroups(gather) and _release(release) >= min(since, default=max(CACHE_SINCE.values()))


def knows_peak(release: str, gather: str) -> bool:
    """Whether a release and plugin report the kernel's own peak, which no sampling misses."""
    return _reads_cgroups(gather) and _release(release) >= KERNEL_PEAK_SINCE


def loses_tasks(release: str, gather: str) -> bool:
    """Whether a release and plugin lose memory of tasks that are not on the first node of the first component."""
    return "jobacct_gather/cgroup" in gather and (0, 0) < _release(release) < COUNTS_ALL_TASKS_SINCE


def kills_over_memory(gather: str) -> bool:
    """Whether slurmd ends a step after sampling it above its limit (JobAcctGatherParams=OverMemoryKill)."""
    return "overmemorykill" in gather.lower()


def _reads_cgroups(gather: str) -> bool:
    return "jobacct_gather/cgroup" in gather and "no_file_cache" not in gather.lower()


def release_of(text: str) -> Release | None:
    """Parse `24.11.5` into (24, 11); None if it is not a release."""
    match = _RELEASE.match(text)
    return (int(match[1]), int(match[2])) if match else None


def _release(text: str) -> Release:
    return release_of(text) or (0, 0)


def seen_once(elapsed_s: Ints, brief_share: Floats, sampled_every_s: int) -> Flags:
    """Flag attempts sampled at most once: they, or the steps with most of their CPU time, were too short.

    Each step is sampled on its own schedule, first at its start: the many steps of a long job, or the one after its
    input was copied, may all end before their second sample. `brief_share` is the share of CPU time in steps no
    longer than one interval, NaN if not known. sacct's seconds are whole: one second may have been a tenth of that.
    An interval of 0 samples nothing, however long they ran: jobacct_gather/linux then reports what a process had
    when it was started, 1 MiB of 300.
    """
    flags: Flags = (elapsed_s <= sampled_every_s) | (brief_share > MOST) | (sampled_every_s == 0)
    return flags


def memory_quality(
    peak_mib: Floats,
    limit_mib: Floats,
    at_least: Flags,
    with_cache: Flags,
    by_kernel: Flags,
    seen_once: Flags,
) -> Texts:
    """Return the quality of memory peaks; those flagged `at_least` are known to be lower bounds.

    What was sampled at most once (`seen_once`) may have been sampled before it had grown.
    """
    known = ~np.isnan(peak_mib)
    near = with_cache & (peak_mib >= NEAR_THE_LIMIT * limit_mib)
    return _first(
        (at_least & known, "censored"),
        (near, "contaminated"),
        (known & by_kernel, "exact"),
        (known & ~seen_once, "sampled"),
        (seen_once, "short"),
    )


def cores_quality(cores: Floats, elapsed_s: Ints, node_failed: Flags, least_s: int) -> Texts:
    """Return the quality of busy cores: the kernel counts CPU time, which is lost only with the node."""
    known = ~np.isnan(cores)
    return _first((known & node_failed, "sampled"), (known, "exact"), (elapsed_s < least_s, "short"))


def wall_quality(outcome: Texts, started: Flags) -> Texts:
    """Return the quality of elapsed times: of an attempt that was cut short, they are lower bounds."""
    completed = outcome == "completed"
    return _first((~started, "absent"), (completed, "exact"), (~completed, "censored"))


def sampled_quality(known: Flags, elapsed_s: Ints, least_s: int = 0) -> Texts:
    """Return `sampled` if a figure is known, else `short` below `least_s` seconds, else `absent`."""
    return _first((known, "sampled"), (elapsed_s < least_s, "short"))


def _first(*cases: tuple[Flags, str]) -> Texts:
    """Return the word of the first case that holds, `absent` if none does."""
    words = np.full(len(cases[0][0]), "absent", dtype=object)
    for holds, word in reversed(cases):
        words[holds] = word
    return words
