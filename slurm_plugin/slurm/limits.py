"""What Slurm's own configuration sets as the least: a job cut below it would wait for ever, or run otherwise.

MinTRES of a QOS is the least that a job may ask for. And where cores have two threads, an srun in a job of an odd
number of CPUs per task starts more tasks than before (seen on 24.11: without `-n`, `-c 1` starts two).
"""

from __future__ import annotations

import re
import subprocess

from accounting.errors import SlurmError
from accounting.tres import parse_tres
from slurm_plugin.policy.facts import Minimum

PATIENCE_S = 5.0
_THREADS = re.compile(r"\bThreadsPerCore=(\d{1,3})\b")
_MAX_MEM_PER_CPU = re.compile(r"\bMaxMemPerCPU\s*=\s*([1-9]\d{0,8})\b")
_PARTITION_NAME = re.compile(r"^PartitionName=(\S+) ")
_PARTITION = re.compile(r"^PartitionName=(\S+) .*\bQoS=(\S+)", re.MULTILINE)


def read_qos_minimums() -> dict[str, Minimum]:
    """Return the minimum of each QOS that has one; SlurmError where sacctmgr does not answer."""
    return parse_qos(run("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=Name,MinTRES"))


def read_partition_qos() -> dict[str, str]:
    """Return the QOS of each partition that has one of its own; SlurmError where scontrol does not answer."""
    return parse_partitions(run("scontrol", "--oneliner", "show", "partition"))


def read_threads_per_core() -> int:
    """Return the most threads that a core of any node has; SlurmError where scontrol does not answer."""
    return parse_threads(run("scontrol", "--oneliner", "show", "node"))


def read_max_mem_per_cpu() -> dict[str, int]:
    """Return the MaxMemPerCPU, in MiB, of each partition that has one; SlurmError where scontrol does not answer."""
    return parse_max_mem_per_cpu(
        run("scontrol", "show", "config"), run("scontrol", "--oneliner", "show", "partition")
    )


def parse_qos(text: str) -> dict[str, Minimum]:
    """Read `name|cpu=4,gres/gpu=1,mem=10G` lines; a QOS without a minimum is left out."""
    minimums: dict[str, Minimum] = {}
    for line in text.splitlines():
        name, _, tres = line.partition("|")
        least = parse_tres(tres)
        if least.cpus or least.gpus or least.mem_mib:
            minimums[name] = Minimum(cpus=least.cpus or 0, gpus=least.gpus or 0, mem_mib=least.mem_mib or 0)
    return minimums


def parse_partitions(text: str) -> dict[str, str]:
    """Read `scontrol --oneliner show partition`; partitions without a QOS are left out."""
    return {name: qos for name, qos in _PARTITION.findall(text) if qos != "N/A"}


def parse_threads(text: str) -> int:
    """Read `scontrol --oneliner show node`; 1 where no node says."""
    return max((int(threads) for threads in _THREADS.findall(text)), default=1)


def parse_max_mem_per_cpu(config: str, partitions: str) -> dict[str, int]:
    """Read `scontrol show config` and `scontrol --oneliner show partition`: MiB by partition, '' is the default one.

    A partition without a limit of its own has the cluster's.
    """
    limits: dict[str, int] = {}
    everywhere = _MAX_MEM_PER_CPU.search(config)
    for line in partitions.splitlines():
        name, limit = _PARTITION_NAME.search(line), _MAX_MEM_PER_CPU.search(line) or everywhere
        if name and limit:
            names = (name[1], "") if " Default=YES " in line else (name[1],)
            limits |= dict.fromkeys(names, int(limit[1]))
    return limits


def run(*command: str) -> str:
    """Run one of Slurm's commands and return its stdout; SlurmError where it is missing, fails or hangs."""
    try:
        finished = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(
            f"cannot run {command[0]}: {error}; put Slurm's commands on the service's PATH"
        ) from None
    if finished.returncode != 0:
        complaint = finished.stderr.strip().splitlines() or ["no message"]
        raise SlurmError(f"{command[0]} failed: {complaint[-1]}; check that slurmctld and slurmdbd run")
    return finished.stdout
