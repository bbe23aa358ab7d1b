"""`rightsizer doctor`: find what is wrong with this installation, and how to fix it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accounting.errors import ConfigError, RightsizerError, ServiceError
from slurm_plugin.cli.output import EXIT_PROBLEMS, config_option, format_option, note, print_rows
from slurm_plugin.cli.reached import check_reached
from slurm_plugin.config.file import config_path, load_config
from slurm_plugin.doctor.checks import judge, not_configured
from slurm_plugin.doctor.finding import Finding
from slurm_plugin.doctor.look import complaint_of, look

if TYPE_CHECKING:
    from slurm_plugin.config.settings import Config
    from slurm_plugin.doctor.seen import Complaint, Seen


@click.command("doctor")
@click.option(
    "--metrics",
    "metrics_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the findings for node_exporter's textfile collector. The file is replaced in "
    "one step; its name must end in .prom.",
)
@config_option
@format_option
def doctor(metrics_file: Path | None, config_file: str | None, output_format: str) -> None:
    """Check this installation, and say how to fix each problem. Exit code 3: there are problems.

    Run it as the service's user on the host where the service runs. What the service's user cannot read is a problem;
    any other user may see problems with files that are closed only to that user. The command changes nothing and
    trains nothing. Drift and calibration are read from the newest model's card; `rightsizer evaluate --drift` computes
    both anew.

    \b
    Example:
      rightsizer doctor
      rightsizer doctor --metrics /run/rightsizer-metrics/rightsizer.prom
    """
    if metrics_file is not None and metrics_file.suffix != ".prom":
        raise click.UsageError(
            f"--metrics {metrics_file}: the name must end in .prom; node_exporter reads no other files"
        )
    now_s = time.time()
    seen, findings = examined(config_file, now_s)
    if metrics_file is not None:
        _write_metrics(metrics_file, seen, findings, now_s)
    rows = [{"check": one.check, "state": one.state, "saw": one.what, "fix": one.fix} for one in findings]
    print_rows(rows, output_format)
    problems = sum(one.state == "problem" for one in findings)
    if problems:
        note(f"{problems} of {len(findings)} checks found a problem")
        sys.exit(EXIT_PROBLEMS)


def examined(config_file: str | None, now_s: float) -> tuple[Seen | None, list[Finding]]:
    """Return what was seen and the findings; what was seen is None if the configuration does not load."""
    try:
        config, path = load_config(config_file), config_path(config_file)
    except ConfigError as error:
        return None, not_configured(complaint_of(error))
    said = f"read from {path}" if path else "no file found: the defaults apply"
    seen = look(config, _reached(config) or said, now_s, config_file)
    return seen, judge(seen)


def _reached(config: Config) -> Complaint | None:
    """Return why something that the configuration names, such as a file, cannot be used; None if all of it can."""
    try:
        check_reached(config)
    except RightsizerError as error:
        return complaint_of(error)
    return None


def _write_metrics(file: Path, seen: Seen | None, findings: list[Finding], now_s: float) -> None:
    from prometheus_client import write_to_textfile

    from slurm_plugin.doctor.metrics import registry_of

    try:
        write_to_textfile(str(file), registry_of(seen, findings, now_s))
    except OSError as error:
        raise ServiceError(
            f"cannot write metrics to {file}: {error.strerror}; give --metrics a file in a "
            "folder that you may write"
        ) from None
