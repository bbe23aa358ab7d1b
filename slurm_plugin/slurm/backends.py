"""Chooses the backend of the queue: pyslurm if it imports and suits the cluster, else Slurm's own commands."""

from __future__ import annotations

import subprocess
import sys
from typing import Literal

from accounting.errors import SlurmError
from slurm_plugin.slurm.command import run
from slurm_plugin.slurm.limits import config_words
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue

# slurmctld answers within milliseconds, or is down or too busy.
CONFIG_PATIENCE_S = 10.0
# Other releases of pyslurm name other attributes of a job.
IMPORT = (
    "import pyslurm, sys; v = pyslurm.__version__; v.startswith('25.11.') or sys.exit(f'{v} is not 25.11')"
)


def open_queue(name: Literal["auto", "scontrol", "pyslurm"]) -> ScontrolQueue:
    """Return a backend; raises SlurmError if pyslurm is asked for and does not import.

    `auto` leaves clusters with GPUs to scontrol: pyslurm does not tell which types some jobs ask for, nor what comes
    with a GPU.
    """
    if name == "scontrol" or (name == "auto" and may_have_gpus()):
        return ScontrolQueue()
    complaint = why_no_pyslurm()
    if not complaint:
        from slurm_plugin.slurm.pyslurm_queue import PyslurmQueue

        return PyslurmQueue()
    if name == "auto":
        return ScontrolQueue()
    raise SlurmError(f'pyslurm cannot be used: {complaint}; set queue = "scontrol" in [advisor]')


def may_have_gpus() -> bool:
    """Whether slurmctld knows GPUs, or does not answer."""
    try:
        config = config_words(run("scontrol", "show", "config", patience_s=CONFIG_PATIENCE_S))
    except SlurmError:
        return True
    return "gpu" in config.get("GresTypes", "").split(",")


def why_no_pyslurm() -> str:
    """Return why pyslurm does not import, '' if it does.

    It is tried in another process: without a slurm.conf, libslurm does not fail but ends the process that loads it.
    That process runs in `/`: with `-c`, Python first looks in the current folder, which may be anybody's.
    """
    tried = subprocess.run(
        (sys.executable, "-c", IMPORT),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd="/",
    )
    said = tried.stderr.strip().splitlines()
    return (
        ""
        if tried.returncode == 0
        else (said[-1] if said else f"its import ends with code {tried.returncode}")
    )
