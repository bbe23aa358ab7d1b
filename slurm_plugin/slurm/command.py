"""Runs one of Slurm's commands."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from accounting.errors import SlurmError
from accounting.slurm.environment import slurm_environment

PATIENCE_S = 5.0
# A time without its zone occurs twice in the hour after summer time, and the caller's environment may set another
# format.
UNIX_TIMES = {"SLURM_TIME_FORMAT": "%s"}
# The end of what `scontrol show config` prints, for each controller.
_PING_LOST = re.compile(r"^Slurmctld\(\w+\) at \S+ is DOWN$", re.MULTILINE)
_DENIED = "Access/permission denied"
_HIDDEN = "slurm.conf (PrivateData) hides that from this user; run this as SlurmUser or an operator"


def run(*command: str, patience_s: float = PATIENCE_S, variables: Mapping[str, str] | None = None) -> str:
    """Run one of Slurm's commands and return its stdout; raises SlurmError if it is missing, fails or hangs.

    `variables` are set in its environment (accounting/slurm/environment.py).
    """
    try:
        finished = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",  # as the hook sends it, whatever the locale
            errors="replace",
            check=False,
            timeout=patience_s,
            env=slurm_environment(variables),
        )
    except subprocess.TimeoutExpired as error:
        said = _last_line((error.stderr or b"").decode("utf-8", errors="replace"))
        raise SlurmError(
            f"{command[0]} did not answer within {patience_s:g} s{said and f' ({said})'}; check that slurmctld "
            "and slurmdbd run"
        ) from None
    except OSError as error:
        raise SlurmError(f"cannot run {command[0]}: {error}; put Slurm's commands on the PATH") from None
    if finished.returncode != 0 and not _tells_all(finished.stdout, finished.stderr):
        complaint = _last_line(finished.stderr) or "no message"
        fix = _HIDDEN if _DENIED in complaint else "check that slurmctld and slurmdbd run"
        raise SlurmError(f"{command[0]} failed: {complaint}; {fix}")
    return finished.stdout


def _last_line(said: str) -> str:
    return (said.strip().splitlines() or [""])[-1]


def _tells_all(stdout: str, stderr: str) -> bool:
    """Whether a command that failed still printed all that it was asked for.

    After all its output, `scontrol show config` asks slurmctld once more whether it is up, and fails silently if that
    is not answered: for example to a user whom it throttles (SlurmctldParameters=rl_enable, seen on 26.05).
    """
    return not stderr.strip() and _PING_LOST.search(stdout) is not None
