"""What Slurm tells a job in its environment: after a cut as it would for a job that had asked for less. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tests.cluster.matrix.release import Allocation

# By where it was read and by name without SLURM_: all values that were seen.
Variables = Mapping[tuple[str, str], frozenset[str]]

_LINE = re.compile(r"^(?:\d+: )?(script|step) ([A-Z_]+)=(.*)$", re.MULTILINE)
_REPEATED = re.compile(r"(\d+)(?:\(x(\d+)\))?")
# These say how much there is, which may be less; all others must be as they were.
_AMOUNTS = {
    *("CPUS_PER_TASK", "JOB_CPUS_PER_NODE", "MEM_PER_NODE", "MEM_PER_CPU", "MEM_PER_GPU"),
    *("GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK", "TRES_PER_TASK"),
}
_NODES = {"JOB_NUM_NODES", "NNODES"}
_LAYOUT = {"TASKS_PER_NODE", "STEP_TASKS_PER_NODE"}


def read_variables(said: str) -> Variables:
    """Read what a job's script and tasks said."""
    found: dict[tuple[str, str], set[str]] = {}
    for where, name, value in _LINE.findall(said):
        found.setdefault((where, name), set()).add(value)
    return {key: frozenset(values) for key, values in found.items()}


def per_node_sum(value: str) -> int:
    """Return the sum of Slurm's list by nodes: `4(x2),2` is ten."""
    return sum(int(count) * int(times or 1) for count, times in _REPEATED.findall(value))


def _amount(value: str) -> int:
    """Return the count in `2` or `a:2`."""
    return int(value.rpartition(":")[2])


def _mib(value: str) -> int:
    """Return the MiB in `2000`, or in what the user exported: `2000M`, `2G`."""
    return int(value.rstrip("MG")) * (1024 if value.endswith("G") else 1)


# What each variable stands for in all, from the allocation and the number of tasks.
_MEANS: dict[str, Callable[[str, Allocation, int], bool]] = {
    "JOB_CPUS_PER_NODE": lambda value, has, _: per_node_sum(value) == has.get("cpu", 0),
    "MEM_PER_NODE": lambda value, has, _: _mib(value) * has.get("node", 1) == has.get("mem", 0),
    "MEM_PER_CPU": lambda value, has, _: _mib(value) * has.get("cpu", 0) == has.get("mem", 0),
    "MEM_PER_GPU": lambda value, has, _: _mib(value) * has.get("gres/gpu", 0) == has.get("mem", 0),
    "CPUS_PER_TASK": lambda value, has, tasks: int(value) * tasks == has.get("cpu", 0),
    "GPUS": lambda value, has, _: _amount(value) == has.get("gres/gpu", 0),
    "GPUS_PER_NODE": lambda value, has, _: _amount(value) * has.get("node", 1) == has.get("gres/gpu", 0),
    "GPUS_PER_TASK": lambda value, has, tasks: _amount(value) * tasks == has.get("gres/gpu", 0),
}


def _disagrees(key: tuple[str, str], variables: Variables, has: Allocation) -> bool:
    """Whether a variable does not say what was allocated; one that has several values is not judged."""
    where, name = key
    means, values = _MEANS.get(name), variables[key]
    tasks = variables.get((where, "NTASKS"), frozenset("1"))
    if means is None or len(values) > 1 or len(tasks) > 1:
        return False
    return not means(next(iter(values)), has, int(next(iter(tasks))))


def told_otherwise(
    ours: Variables,
    twin: Variables,
    our_share: Allocation,
    its_share: Allocation,
    *,
    moved: bool,
    shifted: bool,
) -> list[str]:
    """List what a cut job is told in another way than its twin, or not truly although its twin is.

    The allocations are those of one job. If its tasks have `moved`, it has other nodes than its
    twin; if they have `shifted`, other numbers of them on its nodes.
    """
    found = []
    free = _AMOUNTS | (_NODES if moved else set()) | (_LAYOUT if shifted else set())
    for key in sorted(ours.keys() | twin.keys()):
        mine, theirs = (sorted(variables.get(key, ("none",))) for variables in (ours, twin))
        may_differ = key[1] in free and key in ours and key in twin
        name = f"in the {key[0]} SLURM_{key[1]} is {','.join(mine)}"
        if mine != theirs and not may_differ:
            found.append(f"{name}, not {','.join(theirs)}")
        elif may_differ and _disagrees(key, ours, our_share) and not _disagrees(key, twin, its_share):
            found.append(f"{name}, which is not what the job has")
    return found
