"""`rightsizer config`: show and check the configuration, and write the files that the Lua hook and the filter read."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.cli.reached import check_reached, is_closed
from slurm_plugin.config.file import config_path, load_config
from slurm_plugin.config.settings import Policy


@click.group("config")
def config_group() -> None:
    """Show and check the configuration.

    \b
    Example:
      rightsizer config check
    """


@config_group.command("show")
@config_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["toml", "json"]),
    default="toml",
    show_default=True,
    help="Output format.",
)
def show(config_file: str | None, output_format: str) -> None:
    """Print every key with its current value, defaults included.

    To save the output, write it to a different file than the one that is read: the shell empties its output file
    before the command starts.

    \b
    Example:
      rightsizer config show > rightsizer.toml.new
    """
    from slurm_plugin.config.file import render_config

    config = load_config(config_file)
    click.echo(
        render_config(config)
        if output_format == "toml"
        else msgspec.json.format(msgspec.json.encode(config)).decode(),
        nl=output_format != "toml",
    )


@config_group.command("check")
@config_option
@click.option(
    "--user",
    default="",
    help="The job's user. With any of these options, the command shows which rule applies to such a job.",
)
@click.option(
    "--partition",
    default="",
    help="The job's partition. For a job that names no partition, give the default partition.",
)
@click.option("--account", default="", help="The job's account.")
@click.option("--qos", default="", help="The job's QOS.")
@click.option(
    "--name",
    default="",
    help="The job's name. Rules and gradual rollouts apply to whole job families (one user's jobs "
    "of one name).",
)
@format_option
def check(
    config_file: str | None, user: str, partition: str, account: str, qos: str, name: str, output_format: str
) -> None:
    """Check the configuration; show which rule a job falls under.

    The first problem is reported with its key. Problems include a time zone that this machine does not know, a file
    that cannot be read, and a URL that no database can have. To check whether the store answers, run `rightsizer
    doctor`.

    \b
    Example:
      rightsizer config check --partition gpu --user ann
    """
    from accounting.request import JobRequest
    from slurm_plugin.brakes.pulled import FILE, pulled_file
    from slurm_plugin.brakes.words import words_of
    from slurm_plugin.policy.facts import SiteFacts
    from slurm_plugin.policy.rules import terms_for
    from slurm_plugin.slurm.groups import members_of_rules

    config = load_config(config_file)
    check_reached(config)
    pulled = Path(config.brakes.directory) / FILE
    is_hidden = is_closed(str(pulled))
    brakes = frozenset() if is_hidden else pulled_file(config.brakes).read().brakes
    facts = SiteFacts(groups=members_of_rules(config), brakes=brakes)
    note(
        f"{config_path(config_file) or 'the built-in defaults'}: valid, mode {config.mode}, {len(config.rules)} rules"
    )
    if not any((user, partition, account, qos, name)):
        return
    job = JobRequest(user=user, partition=partition, account=account, qos=qos, job_name=name)
    terms = terms_for(job, config, facts)
    held: dict[str, object] = {
        "rule": terms.rule or "none",
        "mode": terms.mode,
        "enrolled": "yes" if terms.enrolled else "no",
        "brake": "none" if terms.brake is None else words_of(terms.brake),
    }
    if is_hidden:
        held["brake"] = "not known"
        note(f"cannot tell whether a brake is pulled: you may not read {pulled}")
    limits = msgspec.structs.asdict(terms.limits)
    held |= {name: limits[name] for name in limits if name in Policy.__struct_fields__}
    print_rows(
        [{"settings for this job": what, "value": value} for what, value in held.items()], output_format
    )


@config_group.command("hook")
@config_option
def hook(config_file: str | None) -> None:
    """Print rightsizer_site.lua, the hook's settings.

    Save the file next to the job_submit.lua that slurmctld loads.

    \b
    Example:
      rightsizer config hook > /etc/slurm/rightsizer_site.lua
    """
    from slurm_plugin.config.hook import hook_settings

    click.echo(hook_settings(load_config(config_file)), nl=False)


@config_group.command("clients")
@config_option
def clients(config_file: str | None) -> None:
    """Print rightsizer_clients.lua, the cli_filter's settings.

    Save the file next to cli_filter.lua, readable by every user.

    \b
    Example:
      rightsizer config clients > /etc/slurm/rightsizer_clients.lua
    """
    from slurm_plugin.config.hook import client_settings

    click.echo(client_settings(load_config(config_file)), nl=False)


@config_group.command("pseudonym-key")
@click.argument("file", type=click.Path(path_type=Path))
def pseudonym_key(file: Path) -> None:
    """Make a key for pseudonyms, readable only by you.

    Keep the key: with another key the same people get other pseudonyms.

    \b
    Example:
      rightsizer config pseudonym-key /etc/rightsizer/pseudonym.key
    """
    from accounting.key_file import make_key

    make_key(file)
    note(f"made {file}; anyone who can read it can find out whose name a pseudonym stands for")


@config_group.command("journal-key")
@click.argument("file", type=click.Path(path_type=Path))
def journal_key(file: Path) -> None:
    """Make a key for the journal's links, readable only by you.

    Give the file to the service's user (chown), and name it in service.journal_key. Lines that were linked with
    another key cannot be checked with this one.

    \b
    Example:
      rightsizer config journal-key /etc/rightsizer/journal.key
    """
    from accounting.key_file import make_key

    make_key(file, "journal")
    note(f"made {file}; anyone who can read it can forge the journal")
