"""One form of request: what is typed, and what in Slurm's allocation must differ from the untouched twin's."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

USED_MIB = 200.0

Command = Literal["sbatch", "#SBATCH", "sbatch --wrap", "srun", "salloc"]


@dataclass(frozen=True, kw_only=True)
class Form:
    """One form of request. `cut` are the words of AllocTRES that must differ from the twin's, as counts and MiB.

    `asks` are options, on the command line or in `#SBATCH` lines. `tasks` is how many tasks the past jobs of its family
    had, and `used_mib` what they used. `jobs` is how many rows sacct shows for one submission (tasks of an array, parts
    of a heterogeneous job). `srun` is whether its script starts a step; `script` replaces the usual one. A form that is
    `alone` runs before the others, while all nodes are free: slurmctld 22.05 takes the first node's CPUs for those of
    every node (`_pick_step_nodes` in step_mgr.c), and refuses the step if a busy first node took fewer tasks than the
    second.
    """

    name: str
    asks: str
    cut: Mapping[str, int]
    command: Command = "sbatch"
    environment: Mapping[str, str] = field(default_factory=dict)
    tasks: int = 1
    jobs: int = 1
    used_mib: float = USED_MIB
    srun: bool = True
    script: str = ""
    alone: bool = False

    @property
    def asked(self) -> str:
        """Return the form as its user types it."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return " ".join([*variables, self.command, self.asks]).strip()

    @property
    def is_direct(self) -> bool:
        """Whether it is not a batch job."""
        return self.command in {"srun", "salloc"}

    @property
    def wants_gpus(self) -> bool:
        """Whether its job should see GPUs."""
        return "gpu" in self.asks or any("GPU" in name or "GRES" in name for name in self.environment)

    @property
    def parts(self) -> list[list[str]]:
        """Return its options; for a heterogeneous job those of each part."""
        parts: list[list[str]] = [[]]
        for word in shlex.split(self.asks):
            if word == ":":
                parts.append([])
            else:
                parts[-1].append(word)
        return parts


def form(
    name: str,
    asks: str,
    *,
    cpu: int | None = None,
    mem: int | None = None,
    gpu: int | None = None,
    tasks: int = 1,
    jobs: int = 1,
    used_mib: float = USED_MIB,
    srun: bool = True,
    script: str = "",
    alone: bool = False,
    command: Command = "sbatch",
    **environment: str,
) -> Form:
    """Make a row of the table: what is cut in AllocTRES, to how many CPUs, MiB and GPUs of the whole job."""
    words = {"cpu": cpu, "mem": mem, "gres/gpu": gpu}
    cut = {word: value for word, value in words.items() if value is not None}
    return Form(
        name=name,
        asks=asks,
        cut=cut,
        tasks=tasks,
        jobs=jobs,
        used_mib=used_mib,
        srun=srun,
        script=script,
        alone=alone,
        command=command,
        environment=environment,
    )
