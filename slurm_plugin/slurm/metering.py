"""How jobs are measured on this cluster: the meaning of sacct's figures depends on it."""

from __future__ import annotations

import re

import msgspec

from accounting.errors import SlurmError
from accounting.slurm.sacct import slurm_release
from accounting.slurm.sacct_records import Metering
from slurm_plugin.slurm.cluster_lines import parse_cluster_name
from slurm_plugin.slurm.command import run
from slurm_plugin.slurm.limits import config_words

_RELEASE = re.compile(r"\d+\.\d+")
_TASK_FREQUENCY = re.compile(r"(?:^|,|task=)(\d+)")
NOTHING = ("", "(null)", "autodetect")


class UnknownMeter(Metering, frozen=True, kw_only=True):
    """What is known of the measuring while slurmctld does not answer: at most the release. `why` has the reason."""

    why: str


def read_metering(sacct: str, cluster: str = "") -> Metering:
    """Return what is known of Slurm's release and plugins; UnknownMeter if that is not enough to judge a figure by.

    `cluster` is that of the jobs, in lower case; '' for this machine's own. What slurmctld and commands of another
    one say does not hold for it: slurmdbd's database may be read from anywhere.
    """
    release = release_of(sacct)
    try:
        config = run("scontrol", "show", "config")
    except SlurmError as error:
        return UnknownMeter(release=release, why=str(error))
    here = parse_cluster_name(config).lower()
    if cluster and here and cluster != here:
        return UnknownMeter(why=f"slurmctld here is of cluster {here}, and accounting.cluster is {cluster}")
    metering = parse_metering(release, config)
    if not metering.release:
        why = f"neither `{sacct} --version` nor slurmctld gives Slurm's release"
        return UnknownMeter(**msgspec.structs.asdict(metering), why=why)
    return metering


def release_of(sacct: str) -> str:
    """Return Slurm's release according to sacct; '' if it does not say."""
    try:
        return slurm_release(sacct)
    except SlurmError:
        return ""


def most_likely(now: Metering, before: Metering) -> Metering:
    """Return what is known now; if that is not enough, completed by what was known before.

    It then stays an UnknownMeter: any of it may have changed meanwhile.
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
    """Read `scontrol show config`, which also gives the release if `release` is ''."""
    values = config_words(config)
    words = [values.get(name, "") for name in ("JobAcctGatherType", "CgroupPlugin", "JobAcctGatherParams")]
    version = _RELEASE.match(values.get("SLURM_VERSION", ""))
    return Metering(
        release=release or (version[0] if version else ""),
        gather=" ".join(word for word in words if word not in NOTHING),
        sampled_every_s=sampled_every_s(values.get("JobAcctGatherFrequency", "")),
    )


def sampled_every_s(frequency: str) -> int:
    """Return the seconds between task samples by JobAcctGatherFrequency: `task=10,energy=30`, or `10`; 0 is never."""
    found = _TASK_FREQUENCY.search(frequency)
    return int(found[1]) if found else Metering().sampled_every_s
