"""The environment of a sandbox's daemons, commands and users."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from slurm_plugin.config.file import CONFIG_VARIABLE
from slurm_plugin.sandbox.layout import Layout
from slurm_plugin.sandbox.processes import MARKER_VARIABLE

SANDBOX_VARIABLE = "RIGHTSIZER_SANDBOX"
# Variables that another Slurm, or a job from which `up` was called, may have left in the caller's environment.
FOREIGN_PREFIXES = (
    "SLURM_",
    "SLURMD_",
    "SBATCH_",
    "SALLOC_",
    "SRUN_",
    "SACCT_",
    "SQUEUE_",
    "SINFO_",
    "SCANCEL_",
)


def user_environment(layout: Layout, prefix_folders: tuple[Path, ...]) -> dict[str, str]:
    """Return the variables that make plain sbatch, sacct and rightsizer use this sandbox; PATH is complete."""
    first = [str(folder) for folder in (*prefix_folders, layout.bin, command_folder())]
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    rest = [folder for folder in path if folder and not _of_a_sandbox(Path(folder))]
    return {
        "SLURM_CONF": str(layout.slurm_conf),
        CONFIG_VARIABLE: str(layout.rightsizer_toml),
        SANDBOX_VARIABLE: str(layout.root),
        "PATH": os.pathsep.join(dict.fromkeys([*first, *rest])),
    }


def _of_a_sandbox(folder: Path) -> bool:
    """Whether a folder is in a sandbox; on PATH, another sandbox's commands, of another release, would be run here."""
    return os.access(Layout(folder.parent).manifest, os.F_OK)


def foreign_variables() -> list[str]:
    """List the variables of this process that come from another Slurm, or from the job in which this process runs."""
    return [name for name in os.environ if name.startswith(FOREIGN_PREFIXES)]


def command_environment(layout: Layout, prefix_folders: tuple[Path, ...]) -> dict[str, str]:
    """Return a complete environment for a Slurm command on this sandbox, without another Slurm's variables."""
    foreign = foreign_variables()
    kept = {name: value for name, value in os.environ.items() if name not in foreign}
    return {**kept, **user_environment(layout, prefix_folders)}


def daemon_environment(layout: Layout, prefix_folders: tuple[Path, ...]) -> dict[str, str]:
    """Return a complete environment for a daemon: that of a command, and the marker by which `down` finds it."""
    environment = {**command_environment(layout, prefix_folders), MARKER_VARIABLE: str(layout.root)}
    # With this variable, slurmd would take the cgroup of the service in which `up` runs for its own.
    environment.pop("INVOCATION_ID", None)
    return environment


def marks(layout: Layout, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """List the environment entries that identify a process of this sandbox: a daemon's marker, or a job's node."""
    return (f"{MARKER_VARIABLE}={layout.root}", *(f"SLURMD_NODENAME={node}" for node in nodes))


def command_folder() -> Path:
    """Return the folder of the `rightsizer` command that belongs to this interpreter."""
    beside = Path(sys.executable).parent
    if (beside / "rightsizer").exists():
        return beside
    started = Path(sys.argv[0])
    return started.absolute().parent if started.name == "rightsizer" else beside
