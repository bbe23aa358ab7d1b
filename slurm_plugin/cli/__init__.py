"""The `rightsizer` command: plain functions behind click, heavy imports only where they are used."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from pathlib import Path

import click

from accounting.errors import RightsizerError
from slurm_plugin.cli.lazy import LazyGroup
from slurm_plugin.cli.shown_text import visible

# A disk or quota that is full, a file that may not grow, a disk or terminal that is gone.
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

COMMANDS = {
    "advise": "slurm_plugin.cli.advise:advise",
    "audit": "slurm_plugin.cli.audit:audit",
    "collect": "slurm_plugin.cli.collect:collect",
    "config": "slurm_plugin.cli.config:config_group",
    "demo": "slurm_plugin.cli.demo:demo",
    "disable": "slurm_plugin.cli.switch:disable",
    "doctor": "slurm_plugin.cli.doctor:doctor",
    "enable": "slurm_plugin.cli.switch:enable",
    "evaluate": "slurm_plugin.cli.models.evaluate:evaluate",
    "explain": "slurm_plugin.cli.explain.command:explain",
    "export": "slurm_plugin.cli.export:export",
    "forecast": "slurm_plugin.cli.forecast.command:forecast",
    "ingest": "slurm_plugin.cli.ingest.command:ingest",
    "models": "slurm_plugin.cli.models.registry:models",
    "predict": "slurm_plugin.cli.models.predict:predict",
    "promote": "slurm_plugin.cli.models.registry:promote",
    "recover": "slurm_plugin.cli.recover:recover",
    "replay": "slurm_plugin.cli.simulation.replay:replay",
    "report": "slurm_plugin.cli.report.command:report_group",
    "rollback": "slurm_plugin.cli.models.registry:rollback",
    "sandbox": "slurm_plugin.cli.sandbox:sandbox_group",
    "serve": "slurm_plugin.cli.serve:serve",
    "simulate": "slurm_plugin.cli.simulation.simulate:simulate",
    "store": "slurm_plugin.cli.store:store_group",
    "train": "slurm_plugin.cli.models.train:train",
}


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    commands_in=COMMANDS,
)
@click.version_option(package_name="slurm-rightsizer", prog_name="rightsizer")
def rightsizer() -> None:
    """Make a Slurm cluster hand out what jobs need instead of what people ask for.

    \b
    Example:
      rightsizer demo
    """


def main() -> None:
    """Run the command line; an expected failure is one line on stderr, never a traceback."""
    # A caller may have closed them (`>&-`).
    nowhere = Path(os.devnull)
    sys.stdout, sys.stderr = sys.stdout or nowhere.open("w"), sys.stderr or nowhere.open("w")
    if isinstance(sys.stdout, TextIOWrapper):
        # In a locale without UTF-8, what it cannot show (an arrow, a job's name) is written out, as stderr does.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        rightsizer(prog_name="rightsizer")
    except RightsizerError as error:
        click.echo(f"rightsizer: {visible(str(error))}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        # One that names no file is of what was open already.
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        # Python would complain of the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        click.echo(f"rightsizer: cannot write: {error.strerror}; what was printed may not be whole", err=True)
        sys.exit(1)
