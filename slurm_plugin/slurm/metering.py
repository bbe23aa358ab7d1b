"""Who measures jobs on this cluster, and how: what a figure of sacct means depends on it."""

from __future__ import annotations

import re

from accounting.errors import SlurmError
from accounting.sacct import slurm_release
from accounting.sacct_records import Metering
from slurm_plugin.slurm.command import run

_CONFIG_LINE = re.compile(r"^(\w+)\s*= (.*)$", re.MULTILINE)
_TASK_FREQUENCY = re.compile(r"(?:^|,|task=)(\d+)")
NOTHING = ("", "(null)", "autodetect")


def read_metering(sacct: str) -> Metering:
    """Return what is known of Slurm's release and plugins; what Slurm does not tell is left open."""
    try:
        release = slurm_release(sacct)
        return parse_metering(release, run("scontrol", "show", "config"))
    except SlurmError:
        return Metering()


def parse_metering(release: str, config: str) -> Metering:
    """Read `scontrol show config`."""
    values = {name: value.strip() for name, value in _CONFIG_LINE.findall(config)}
    words = [values.get(name, "") for name in ("JobAcctGatherType", "CgroupPlugin", "JobAcctGatherParams")]
    frequency = _TASK_FREQUENCY.search(values.get("JobAcctGatherFrequency", ""))
    return Metering(
        release=release,
        gather=" ".join(word for word in words if word not in NOTHING),
        sampled_every_s=int(frequency[1]) if frequency else Metering().sampled_every_s,
    )
