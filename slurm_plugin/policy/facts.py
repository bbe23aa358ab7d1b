"""What policy must know of the cluster and its people, gathered beforehand. Pure: `slurm_plugin/slurm` gathers it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slurm_plugin.policy.submission import Submission


class Minimum(msgspec.Struct, frozen=True, kw_only=True):
    """The least that a job must ask for in all; memory is MiB, 0 = no minimum."""

    cpus: int = 0
    gpus: int = 0
    mem_mib: int = 0


class SiteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Group → users; QOS → its minimum; partition → its own QOS; the most threads that a core of any node has.

    `max_mem_per_cpu_mib` is the MaxMemPerCPU of each partition that has one, under '' that of the default partition.
    """

    groups: Mapping[str, frozenset[str]] = {}
    qos_minimums: Mapping[str, Minimum] = {}
    partition_qos: Mapping[str, str] = {}
    threads_per_core: int = 1
    max_mem_per_cpu_mib: Mapping[str, int] = {}

    def minimum_for(self, submission: Submission) -> Minimum:
        """Return the least that this job must ask for: of its QOS and of any partition it may run in."""
        names = [
            submission.qos,
            *(self.partition_qos.get(name, "") for name in submission.partition.split(",")),
        ]
        least = [self.qos_minimums[name] for name in names if name in self.qos_minimums]
        return Minimum(
            cpus=max((one.cpus for one in least), default=0),
            gpus=max((one.gpus for one in least), default=0),
            mem_mib=max((one.mem_mib for one in least), default=0),
        )
