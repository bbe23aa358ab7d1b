"""The `rightsizer` command: plain functions behind click; heavy modules are imported only when they are used."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from pathlib import Path

import click

from accounting.errors import RightsizerError
from slurm_plugin.cli.lazy import Lazy, LazyGroup
from slurm_plugin.cli.shown_text import visible

# The disk or quota is full, the file may not grow, or the disk or terminal is gone.
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# Grouped by the user's task; each text is a short form of the command's own help.
SECTIONS: dict[str, dict[str, Lazy]] = {
    "Try it": {
        "demo": Lazy(
            "slurm_plugin.cli.demo:demo", "run the whole demonstration on a private Slurm, in a few minutes"
        ),
        "sandbox": Lazy(
            "slurm_plugin.cli.sandbox:sandbox_group", "run a private Slurm in one folder, to try things out"
        ),
    },
    "Set it up": {
        "config": Lazy(
            "slurm_plugin.cli.config:config_group", "show and check the configuration, write the hook's file"
        ),
        "serve": Lazy("slurm_plugin.cli.serve:serve", "answer the hook, until stopped"),
        "doctor": Lazy(
            "slurm_plugin.cli.doctor:doctor", "check this installation, and say how to fix each problem"
        ),
        "store": Lazy("slurm_plugin.cli.store:store_group", "manage the store's schema"),
    },
    "Read accounting": {
        "ingest": Lazy(
            "slurm_plugin.cli.ingest.command:ingest",
            "read new jobs from Slurm's accounting, or from dumps of it",
        ),
        "collect": Lazy(
            "slurm_plugin.cli.collect:collect", "record what jobs do on this node's GPUs, until stopped"
        ),
        "report": Lazy(
            "slurm_plugin.cli.report.command:report_group",
            "show what jobs asked for and used, and what was cut",
        ),
        "export": Lazy(
            "slurm_plugin.cli.export:export", "write a table of the store to a Parquet or CSV file"
        ),
        "forecast": Lazy(
            "slurm_plugin.cli.forecast.command:forecast", "forecast the demand of the next hours or days"
        ),
    },
    "Models": {
        "train": Lazy(
            "slurm_plugin.cli.models.train:train",
            "train a model from the store; promote it if it is no worse",
        ),
        "evaluate": Lazy(
            "slurm_plugin.cli.models.evaluate:evaluate",
            "show what sizing would have saved, and how many jobs it would fail",
        ),
        "models": Lazy(
            "slurm_plugin.cli.models.registry:models", "list the trained models, or show the card of one"
        ),
        "promote": Lazy("slurm_plugin.cli.models.registry:promote", "make a model the current one"),
        "rollback": Lazy("slurm_plugin.cli.models.registry:rollback", "go back to the previous model"),
    },
    "One job": {
        "predict": Lazy(
            "slurm_plugin.cli.models.predict:predict", "show what a job would be granted, and why"
        ),
        "explain": Lazy(
            "slurm_plugin.cli.explain.command:explain",
            "show what a job was granted and why; when a waiting job may start",
        ),
    },
    "The cluster": {
        "advise": Lazy(
            "slurm_plugin.cli.advise:advise", "show the best order for the pending queue; set it with --apply"
        ),
        "recover": Lazy("slurm_plugin.cli.recover:recover", "requeue jobs that failed because they were cut"),
        "disable": Lazy("slurm_plugin.cli.switch:disable", "stop changing submissions, from the next one on"),
        "enable": Lazy("slurm_plugin.cli.switch:enable", "change submissions again, or release a brake"),
        "audit": Lazy("slurm_plugin.cli.audit:audit", "check that journal, store and Slurm agree"),
    },
    "What if": {
        "replay": Lazy(
            "slurm_plugin.cli.simulation.replay:replay",
            "simulate your own past jobs, as asked and with the service",
        ),
        "simulate": Lazy(
            "slurm_plugin.cli.simulation.simulate:simulate",
            "simulate any load on an imaginary cluster under several policies",
        ),
        "share": Lazy(
            "slurm_plugin.cli.share:share", "show which kinds of jobs run well together on one GPU"
        ),
    },
}
COMMANDS = {name: lazy for section in SECTIONS.values() for name, lazy in section.items()}


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    sections=SECTIONS,
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
    # The caller may have closed both streams (`>&-`).
    nowhere = Path(os.devnull)
    sys.stdout, sys.stderr = sys.stdout or nowhere.open("w"), sys.stderr or nowhere.open("w")
    if isinstance(sys.stdout, TextIOWrapper):
        # In a locale without UTF-8, characters that it lacks (an arrow, a job's name) are escaped, as on stderr.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        rightsizer(prog_name="rightsizer")
    except RightsizerError as error:
        click.echo(f"rightsizer: {visible(str(error))}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        # An error that names no file comes from a stream that was open already, such as stdout.
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        # Otherwise Python would try to flush the rest at exit, and report another error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        click.echo(f"rightsizer: cannot write: {error.strerror}; the output may be incomplete", err=True)
        sys.exit(1)
