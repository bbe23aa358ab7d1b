"""`rightsizer sandbox`: a private Slurm in one folder, for experiments and tests."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import click
import msgspec

from accounting.decisions.decision import Mode
from slurm_plugin.cli.orderly_end import orderly_end
from slurm_plugin.cli.output import EXIT_PROBLEMS
from slurm_plugin.sandbox import cluster, files
from slurm_plugin.sandbox.environment import SANDBOX_VARIABLE, foreign_variables
from slurm_plugin.sandbox.status import Status, status_of

MODES = click.Choice(["observe", "advise", "enforce"])

dir_option = click.option(
    "--dir",
    "directory",
    required=True,
    envvar=SANDBOX_VARIABLE,
    type=click.Path(file_okay=False, path_type=Path),
    help=f"The sandbox's folder. Default: ${SANDBOX_VARIABLE}.",
)


def say(line: str) -> None:
    """Report progress on stderr; stdout is for data."""
    click.echo(line, err=True)


@click.group("sandbox")
def sandbox_group() -> None:
    """Run a private Slurm in one folder, with accounting, the hook and the service.

    \b
    Example:
      rightsizer sandbox up --dir /tmp/sandbox
      eval "$(rightsizer sandbox env --dir /tmp/sandbox)"
      sbatch --wait --wrap hostname && sleep 2 && sacct
      rightsizer sandbox down --dir /tmp/sandbox
    """


@sandbox_group.command()
@dir_option
@click.option(
    "--nodes",
    default=4,
    show_default=True,
    type=click.IntRange(1, cluster.NODES_MAX),
    help="Number of nodes.",
)
@click.option(
    "--slurm-prefix",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Run the Slurm installed under this folder (./configure --prefix, or a debootstrap) instead of the "
    "system's.",
)
@click.option("--no-hook", is_flag=True, help="Do not load rightsizer's submission hook into slurmctld.")
@click.option("--mode", type=MODES, help="The service's mode. Default in a new folder: observe.")
@click.option("--no-serve", is_flag=True, help="Do not start `rightsizer serve`.")
def up(
    directory: Path, nodes: int, slurm_prefix: Path | None, no_hook: bool, mode: Mode | None, no_serve: bool
) -> None:
    """Start the private Slurm; create its folder if needed.

    Each node claims to have 16 CPUs, 64 GB, 4 GPUs and 16 shards. If the folder has accounting already, it is kept.

    \b
    Example:
      rightsizer sandbox up --dir /tmp/sandbox --nodes 2
    """
    options = cluster.Options(
        directory=directory,
        nodes=nodes,
        slurm_prefix=slurm_prefix,
        hook=not no_hook,
        mode=mode,
        serve=not no_serve,
    )
    with orderly_end():
        sandbox = cluster.start(options, say)
    enforcement = sandbox.manifest.enforcement
    say(f"memory enforcement {'on' if enforcement.memory else 'off'}: {enforcement.reason}")
    note_closed_parent(files.closed_parent(sandbox.directory))
    say(f'{sandbox.manifest.release} is up; next: eval "$(rightsizer sandbox env --dir {directory})"')


@sandbox_group.command()
@dir_option
def env(directory: Path) -> None:
    """Print shell lines that make sbatch and rightsizer use it.

    After these lines, plain sbatch, sacct and rightsizer work on the sandbox. The lines also unset variables that
    belong to another Slurm, such as SBATCH_PARTITION, or a job's SLURM_JOB_ID.

    \b
    Example:
      eval "$(rightsizer sandbox env --dir /tmp/sandbox)"
    """
    ours = cluster.load(directory).environment()
    # A name that no shell accepts cannot be unset, and must not be evaluated as a command.
    foreign = [
        name for name in foreign_variables() if name not in ours and re.fullmatch(r"\w+", name, re.ASCII)
    ]
    if foreign:
        click.echo(f"unset {' '.join(foreign)}")
    for name, value in ours.items():
        click.echo(f"export {name}={shlex.quote(value)}")


@sandbox_group.command()
@dir_option
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print the data.",
)
@click.pass_context
def status(context: click.Context, directory: Path, style: str) -> None:
    """Show which daemons run and which nodes accept jobs.

    Exit code 3: something that should run does not.

    \b
    Example:
      rightsizer sandbox status --dir /tmp/sandbox
    """
    found = status_of(cluster.load(directory))
    if style == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        click.echo(status_table(found))
    if not found.healthy:
        context.exit(EXIT_PROBLEMS)


@sandbox_group.command()
@dir_option
@click.argument("mode", type=MODES)
def mode(directory: Path, mode: Mode) -> None:
    """Set the mode of the sandbox's service.

    \b
    Example:
      rightsizer sandbox mode --dir /tmp/sandbox enforce
    """
    cluster.set_mode(directory, mode)
    say(f"mode {mode}")


@sandbox_group.command()
@dir_option
@click.option("--remove", is_flag=True, help="Also remove the folder.")
def down(directory: Path, remove: bool) -> None:
    """Stop every process of the sandbox, jobs included.

    The files stay for the next `up`, unless --remove is given.

    \b
    Example:
      rightsizer sandbox down --dir /tmp/sandbox --remove
    """
    cluster.stop(directory, remove=remove, progress=say)
    say(f"the sandbox {directory} is stopped")


def note_closed_parent(folder: Path | None) -> None:
    """Say so if other users cannot submit because a parent of the folder is closed to them."""
    if folder is not None and os.geteuid() == 0:
        say(
            f"note: other users may not enter {folder}, so only root can submit jobs; `chmod o+x "
            f"{folder}` allows it"
        )


def status_table(found: Status) -> str:
    """Format a status as lines of text."""
    rows = [("NAME", "PID", "STATE")]
    rows += [
        (one.name, str(one.pid or "-"), "running" if one.running else "not running") for one in found.daemons
    ]
    rows += [("", "", ""), ("NODE", "", "STATE")]
    rows += [(node, "", state) for node, state in found.node_states.items()]
    width = max(len(row[0]) for row in rows)
    lines = [f"{name:<{width}}  {pid:>7}  {state}".rstrip() for name, pid, state in rows]
    enforced = "on" if found.memory_enforced else "off"
    lines += [
        "",
        f"release             {found.release}",
        f"memory enforcement  {enforced} ({found.memory_reason})",
    ]
    if found.closed_parent:
        lines.append(f"other users         cannot submit (they may not enter {found.closed_parent})")
    return "\n".join(lines)
