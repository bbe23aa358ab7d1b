"""What a request lost by being cut, against its twin that Slurm got as it was typed. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from tests.cluster.matrix.release import Allocation

# More of these than the twin has would cost the site, or the user's limits.
_COUNTED = ("cpu", "mem", "gres/gpu")


@dataclass(frozen=True)
class Outcome:
    """What became of a submission.

    `end` is the job's state, or `refused` or `waits` if it did not start on an idle cluster. `allocated` is AllocTRES
    of the whole job, in MiB and counts. `tasks` has the node (0 for the job's first) of each task that its step
    started, and how many GPUs the task saw. `said` is everything that was printed.
    """

    end: str
    allocated: Allocation = field(default_factory=dict)
    tasks: tuple[tuple[int, int], ...] = ()
    said: str = ""

    @property
    def layout(self) -> tuple[int, ...]:
        """How many tasks each node has, by the order of the nodes."""
        counts = Counter(node for node, _ in self.tasks)
        return tuple(counts[node] for node in sorted(counts))

    @property
    def amounts(self) -> Allocation:
        """What is counted, 0 for none."""
        return {word: self.allocated.get(word, 0) for word in _COUNTED}

    @property
    def least_gpus_seen(self) -> int:
        """The fewest GPUs that a task saw; 0 if there was none."""
        return min((gpus for _, gpus in self.tasks), default=0)


Verdict = Literal["cut", "as it was", "not run"]


def losses(ours: Outcome, twin: Outcome, used_mib: float, used_cores: float) -> list[str]:
    """List what the cut request lost, or has too much of; none if its twin did not run either.

    `used_mib` is what its family's jobs used on a node, `used_cores` the cores that they kept busy in all: no less may
    be left.
    """
    if twin.end != "COMPLETED":
        return []
    if ours.end != "COMPLETED":
        return [f"{ours.end}, not COMPLETED: {' '.join(ours.said.split())[-200:]}"]
    found = [
        f"{name} {mine}, not {theirs}"
        for name, mine, theirs in (
            ("nodes", ours.allocated.get("node"), twin.allocated.get("node")),
            ("tasks on each node", ours.layout, twin.layout),
        )
        if mine != theirs
    ]
    found += [
        f"{word} {ours.amounts[word]}, more than {amount}"
        for word, amount in twin.amounts.items()
        if ours.amounts[word] > amount
    ]
    used_in_all_mib = used_mib * ours.allocated.get("node", 1)
    if ours.amounts["mem"] < min(used_in_all_mib, twin.amounts["mem"]):
        found.append(f"{ours.amounts['mem']} MiB, less than the {used_in_all_mib:.0f} that are used")
    if ours.amounts["cpu"] < min(used_cores, twin.amounts["cpu"]):
        found.append(f"{ours.amounts['cpu']} CPUs, fewer than the {used_cores:g} that are busy")
    if twin.least_gpus_seen > 0 == ours.least_gpus_seen:
        found.append("a task sees no GPU")
    return found


def verdict(ours: Outcome, twin: Outcome) -> Verdict:
    """Say what was done to a request: a run that cuts nothing would prove nothing."""
    if "COMPLETED" not in (ours.end, twin.end):
        return "not run"
    return "as it was" if ours.amounts == twin.amounts else "cut"
