"""`rightsizer disable` and `enable`: stop cutting all jobs (kill switches), or a part of them (brakes), and resume."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import click

from accounting.errors import ServiceError, SlurmError
from accounting.schema_hints import nearest
from models.versions.promotion_log import user_name
from slurm_plugin.brakes.pulled import Pulled, pulled_file
from slurm_plugin.brakes.words import release_of, words_of
from slurm_plugin.cli.output import config_option, note
from slurm_plugin.config.file import load_config
from slurm_plugin.config.settings import Config
from slurm_plugin.policy.braked import ALL, Brake, family_brake, partition_brake
from slurm_plugin.slurm.command import run
from slurm_plugin.switches import switches, throw

Command = Callable[..., Any]
# Other texts would stop nothing, as no partition has such a name: an empty shell variable, a list, a pattern.
PARTITION = re.compile(r"[^\s,*?\[\]]+")
# Matches the output of `scontrol --oneliner show partition`.
NAMED = re.compile(r"^PartitionName=(\S+)", re.MULTILINE)


def part_options(command: Command) -> Command:
    """Add the options that name a part of the jobs."""
    family = click.option(
        "--family",
        metavar="USER:NAME",
        help="Only one user's jobs of one name. Numbers, and ids that workflow engines put into "
        "names, are ignored.",
    )
    return family(click.option("--partition", help="Only the jobs of this partition.")(command))


@click.command("disable")
@part_options
@config_option
def disable(config_file: str | None, family: str | None, partition: str | None) -> None:
    """Stop changing submissions, from the next one on. The service may keep running.

    Without options, this sets the kill switches: every job is left unchanged. With --family or --partition, it pulls a
    brake: only those jobs are left unchanged.

    \b
    Example:
      rightsizer disable
      rightsizer disable --partition gpu
    """
    check_partition(partition)
    config = load_config(config_file)
    brake = brake_of(family, partition, everything=False)
    if brake is not None:
        why = f"by hand: {user_name()}"
        pulled_file(config.brakes).pull(Pulled(brake=brake, time_s=time.time(), why=why))
        note(f"stopped cutting {words_of(brake)}; to undo: `{release_of(brake)}`")
        if partition is not None and (unknown := unknown_partition(partition)):
            note(unknown)
        return
    for switch in switches(config):
        try:
            throw(switch)
        except OSError as error:
            raise ServiceError(
                f"cannot make {switch}: {error.strerror}; run this as root, or as a user who "
                "may write to that folder"
            ) from None
        note(f"disabled: every job is left unchanged while {switch} exists; to undo: `rightsizer enable`")


def check_partition(name: str | None) -> None:
    """Raise UsageError if an option is not the name of one partition."""
    if name is not None and not PARTITION.fullmatch(name):
        raise click.UsageError(
            f"--partition '{name}': give the name of one partition; patterns and lists are not supported"
        )


def unknown_partition(name: str) -> str:
    """Return a warning for a partition that slurmctld does not know; '' if it does, or does not answer."""
    try:
        known = NAMED.findall(run("scontrol", "--all", "--oneliner", "show", "partition"))
    except SlurmError:
        return ""
    if not known or name in known:
        return ""
    told = nearest(name, known) or f"its partitions are {', '.join(known)}"
    return f"slurmctld has no partition {name}, so this affects no current job; {told}"


@click.command("enable")
@part_options
@click.option("--all", "everything", is_flag=True, help="Also release the brake on everything.")
@config_option
def enable(config_file: str | None, everything: bool, family: str | None, partition: str | None) -> None:
    """Change submissions again: remove the kill switches, or release a brake.

    Without options, the hook asks the service again about every job. With --family or --partition, this releases one
    brake that the service or an administrator has pulled. With --all, it also releases the brake on everything.

    \b
    Example:
      rightsizer enable
      rightsizer enable --family ann:align
    """
    config = load_config(config_file)
    brake = brake_of(family, partition, everything=everything)
    if brake is not None:
        if brake not in pulled_file(config.brakes).read().brakes:
            # Earlier releases pulled brakes of any name: those can still be released.
            check_partition(partition)
        release(config, brake)
    if brake is None or brake == ALL:
        remove_switches(config)
    stopped = pulled_file(config.brakes).read()
    if stopped.damaged:
        note(f"nothing is cut: {stopped.damaged}; `rightsizer enable --all` starts again without brakes")
    for one in stopped.pulled:
        note(f"still not cut: {words_of(one.brake)} ({one.why}); to undo: `{release_of(one.brake)}`")


def brake_of(family: str | None, partition: str | None, *, everything: bool) -> Brake | None:
    """Return the brake that the options name, None without any; UsageError for several, or without user and name."""
    if sum((family is not None, partition is not None, everything)) > 1:
        raise click.UsageError("give only one of --family, --partition and --all")
    if family is not None:
        user, colon, name = family.partition(":")
        if not (user and colon and name):
            raise click.UsageError(f"--family {family}: write USER:NAME, as `rightsizer doctor` shows it")
        return family_brake(user, name)
    if partition is not None:
        return partition_brake(partition)
    return ALL if everything else None


def release(config: Config, brake: Brake) -> None:
    """Release a brake, and say so."""
    if pulled_file(config.brakes).let_go(brake):
        note(f"brake released: {words_of(brake)} may be cut again, if the configuration allows it")
    else:
        note(f"no brake was pulled on {words_of(brake)}")


def remove_switches(config: Config) -> None:
    """Remove the kill switches."""
    for switch in switches(config):
        try:
            switch.unlink(missing_ok=True)
        except OSError as error:
            raise ServiceError(
                f"cannot remove {switch}: {error.strerror}; run this as root, or as a user who "
                "may write to that folder"
            ) from None
    note("enabled: the hook asks the service again")
