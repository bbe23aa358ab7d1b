"""Brakes in words, and the commands that release them. Pure."""

from __future__ import annotations

import shlex

from slurm_plugin.policy.braked import ALL, Brake


def words_of(brake: Brake) -> str:
    """Return in words what a brake stops."""
    if brake.level == "family":
        return f"jobs of {brake.user} named {brake.name}"
    return "everything" if brake == ALL else f"partition {brake.name}"


def release_of(brake: Brake) -> str:
    """Return the command that releases a brake, quoted for a shell: users choose the names of their jobs."""
    if brake.level == "family":
        return f"rightsizer enable --family {shlex.quote(f'{brake.user}:{brake.name}')}"
    return (
        "rightsizer enable --all"
        if brake == ALL
        else f"rightsizer enable --partition {shlex.quote(brake.name)}"
    )
