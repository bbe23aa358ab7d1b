"""Who measures jobs on this cluster, and how: what a figure of sacct means depends on it."""

from __future__ import annotations

import re

import msgspec

from accounting.errors import SlurmError
from accounting.slurm.sacct import slurm_release
from accounting.slurm.sacct_records import Metering
from slurm_plugin.slurm.command import run
from slurm_plugin.slurm.limits import config_words

_RELEASE = re.compile(r"\d+\.\d+")
_TASK_FREQUENCY = re.compile(r"(?:^|,|task=)(\d+)")
NOTHING = ("", "(null)", "autodetect")


class UnknownMeter(Metering, frozen=True, kw_only=True):
    """What is known of who measures while slurmctld does not say: the release at most. `why` it does not."""

    why: str


def read_metering(sacct: str) -> Metering:
    """Return what is known of Slurm's release and plugins; UnknownMeter where it is not enough to judge a figure by."""
    release = release_of(sacct)
    try:
        metering = parse_metering(release, run("scontrol", "show", "config"))
    except SlurmError as error:
        return UnknownMeter(release=release, why=str(error))
    if not metering.release:
        why = f"neither `{sacct} --version` nor slurmctld tells Slurm's release"
        return UnknownMeter(**msgspec.structs.asdict(metering), why=why)
    return metering


def release_of(sacct: str) -> str:
    """Return Slurm's release as sacct tells it; '' where it does not."""
    try:
        return slurm_release(sacct)
    except SlurmError:
        return ""


def most_likely(now: Metering, before: Metering) -> Metering:
    """Return what is known now; where that is not enough, filled up with what was known before.

    It stays an UnknownMeter: all that may have been changed meanwhile.
    """
    if not isinstance(now, UnknownMeter):
        return now
    return UnknownMeter(
        release=now.release or before.release,
        gather=now.gather or before.gather,
        sampled_every_s=now.sampled_every_s if now.gather else before.sampled_every_s,
        why=now.why,
    )


def parse_metering(release: str, config: str) -> Metering:
    """Read `scontrol show config`; it tells the release where that is ''."""
    values = config_words(config)
    words = [values.get(name, "") for name in ("JobAcctGatherType", "CgroupPlugin", "JobAcctGatherParams")]
    version = _RELEASE.match(values.get("SLURM_VERSION", ""))
    return Metering(
        release=release or (version[0] if version else ""),
        gather=" ".join(word for word in words if word not in NOTHING),
        sampled_every_s=sampled_every_s(values.get("JobAcctGatherFrequency", "")),
    )


def sampled_every_s(frequency: str) -> int:
    """Return how often tasks are sampled, by JobAcctGatherFrequency: `task=10,energy=30`, or `10`; 0 is never."""
    found = _TASK_FREQUENCY.search(frequency)
    return int(found[1]) if found else Metering().sampled_every_s
