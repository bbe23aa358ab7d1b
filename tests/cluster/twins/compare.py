"""What a request lost by being cut, against its twin that Slurm got as it was typed. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from tests.cluster.matrix.release import Allocation
from tests.cluster.twins.variables import read_variables, told_otherwise

# More of these than the twin has would cost the site, or the user's limits.
_COUNTED = ("cpu", "mem", "gres/gpu")
# What srun says while its step waits for others in the job to end.
_WAITS = "step creation temporarily disabled"


@dataclass(frozen=True)
class Outcome:
    """What became of a submission.

    `end` is the job's state, or `refused` or `waits` if it did not start on an idle cluster. `allocated` is AllocTRES
    of all its `jobs` (several for an array), in MiB and counts. `tasks` has the node (0 for the job's first) of each
    task that its steps started, and how many GPUs the task saw. `said` is everything that was printed.
    """

    end: str
    allocated: Allocation = field(default_factory=dict)
    jobs: int = 1
    tasks: tuple[tuple[int, int], ...] = ()
    said: str = ""

    @property
    def layout(self) -> tuple[int, ...]:
        """How many tasks each node has, by the order of the nodes."""
        counts = Counter(node for node, _ in self.tasks)
        return tuple(counts[node] for node in sorted(counts))

    @property
    def share(self) -> Allocation:
        """What one of its jobs has."""
        return {word: amount // self.jobs for word, amount in self.allocated.items()}

    @property
    def nodes(self) -> int:
        """On how many nodes its jobs were, each counted for itself."""
        return self.allocated.get("node", 0)

    @property
    def waits(self) -> int:
        """How many of its steps waited for another one."""
        return self.said.count(_WAITS)

    @property
    def amounts(self) -> Allocation:
        """What is counted, 0 for none."""
        return {word: self.allocated.get(word, 0) for word in _COUNTED}

    @property
    def least_gpus_seen(self) -> int:
        """The fewest GPUs that a task saw; 0 if there was none."""
        return min((gpus for _, gpus in self.tasks), default=0)


Verdict = Literal["cut", "as it was", "not run"]


def losses(
    ours: Outcome,
    twin: Outcome,
    used_mib: float,
    used_cores: float,
    *,
    says_nodes: bool = True,
    says_tasks: bool = True,
    lists_partitions: bool = False,
) -> list[str]:
    """List what the cut request lost, or has too much of; none if its twin did not run either.

    `used_mib` is what its family's jobs used on a node, `used_cores` the cores that they kept busy in all: no less may
    be left. Unless the request says how many tasks are on each node, these may be others, but for tasks with GPUs; and
    unless it says how many nodes, fewer may have all of them, or more, if it lists several partitions, of which one was
    too small for the twin.
    """
    if twin.end != "COMPLETED":
        return []
    if ours.end != "COMPLETED":
        return [f"{ours.end}, not COMPLETED: {' '.join(ours.said.split())[-200:]}"]
    as_many = not says_tasks and len(ours.tasks) == len(twin.tasks)
    moved = as_many and not says_nodes and (ours.nodes < twin.nodes or lists_partitions)
    shifted = moved or (as_many and twin.least_gpus_seen == 0)
    found = [
        f"{name} {mine}, not {theirs}"
        for name, mine, theirs, may_differ in (
            ("nodes", ours.nodes, twin.nodes, moved),
            ("tasks on each node", ours.layout, twin.layout, shifted),
        )
        if mine != theirs and not may_differ
    ]
    found += [
        f"{word} {ours.amounts[word]}, more than {amount}"
        for word, amount in twin.amounts.items()
        if ours.amounts[word] > amount
    ]
    used_in_all_mib = used_mib * ours.nodes
    if ours.amounts["mem"] < min(used_in_all_mib, twin.amounts["mem"]):
        found.append(f"{ours.amounts['mem']} MiB, less than the {used_in_all_mib:.0f} that are used")
    if ours.amounts["cpu"] < min(used_cores, twin.amounts["cpu"]):
        found.append(f"{ours.amounts['cpu']} CPUs, fewer than the {used_cores:g} that are busy")
    if ours.waits > twin.waits:
        found.append(f"{ours.waits} of its steps wait for others, not {twin.waits}")
    told = read_variables(ours.said), read_variables(twin.said)
    found += told_otherwise(*told, ours.share, twin.share, moved=moved, shifted=shifted)
    if twin.least_gpus_seen > 0 == ours.least_gpus_seen:
        found.append("a task sees no GPU")
    return found


def verdict(ours: Outcome, twin: Outcome) -> Verdict:
    """Say what was done to a request: a run that cuts nothing would prove nothing."""
    if "COMPLETED" not in (ours.end, twin.end):
        return "not run"
    return "as it was" if ours.amounts == twin.amounts else "cut"
