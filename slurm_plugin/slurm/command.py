"""Runs one of Slurm's commands."""

from __future__ import annotations

import subprocess

from accounting.errors import SlurmError

PATIENCE_S = 5.0


def run(*command: str) -> str:
    """Run one of Slurm's commands and return its stdout; SlurmError where it is missing, fails or hangs."""
    try:
        finished = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"cannot run {command[0]}: {error}; put Slurm's commands on the PATH") from None
    if finished.returncode != 0:
        complaint = finished.stderr.strip().splitlines() or ["no message"]
        raise SlurmError(f"{command[0]} failed: {complaint[-1]}; check that slurmctld and slurmdbd run")
    return finished.stdout
