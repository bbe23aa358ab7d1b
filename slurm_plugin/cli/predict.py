"""`rightsizer predict`."""

from __future__ import annotations

import getpass
import time
from pathlib import Path

import click

from accounting.errors import RightsizerError
from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.config import load_config


@click.command("predict", context_settings={"ignore_unknown_options": True})
@click.argument("script", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("sbatch_options", nargs=-1, type=click.UNPROCESSED)
@click.option("--user", help="Whose job it would be; you by default.")
@config_option
@format_option
def predict(
    script: Path,
    sbatch_options: tuple[str, ...],
    user: str | None,
    config_file: str | None,
    output_format: str,
) -> None:
    """Show for a batch script what it asks, what it is predicted to need, what it would get, and why.

    No cluster is asked. Options for sbatch follow the script. The answer is the hook's own.

    \b
    Example:
      rightsizer predict job.sh -c 8 --mem=8000
    """
    from models import registry
    from models.artefact import load_predictor
    from slurm_plugin.sbatch_script import read_submission
    from slurm_plugin.service.decide import chain_settings_of, decide

    config = load_config(config_file)
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RightsizerError(
            f"cannot read the script {script}: {error.strerror}; give the path of a batch script"
        ) from None
    submission = read_submission(text, script.name, user or getpass.getuser(), sbatch_options)
    predictor = load_predictor(
        registry.current_folder(Path(config.models.directory)), chain_settings_of(config)
    )
    answer = decide(submission, predictor, config, "predicted", time.time())
    rows = [
        {
            "resource": {"memory": "memory (MiB)", "cores": "CPUs", "gpus": "GPUs"}[reason.dimension],
            "requested": reason.asked,
            "predicted": reason.predicted,
            "granted": reason.granted,
            "why": reason.reason,
        }
        for reason in answer.decision.dimensions
    ]
    wall = predictor.wall_time(answer.decision.request)
    if wall:
        rows.append(
            {
                "resource": "wall time (s)",
                "requested": answer.decision.request.wall_s,
                "predicted": round(wall.upper),
                "granted": answer.decision.request.wall_s,
                "why": f"never changed; half of the jobs like it took {wall.likely:.0f} s or less",
            }
        )
    print_rows(rows, output_format)
    note(
        f"decision: {answer.decision.reason}; model {predictor.model}; {_closing(answer.decision.applied, config.mode)}"
    )


def _closing(applied: bool, mode: str) -> str:
    if applied:
        return "mode enforce: sbatch would queue it as granted"
    return f"mode {mode}: sbatch would queue it as requested"
