"""`rightsizer predict`."""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from accounting.errors import RightsizerError, SlurmError
from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.config import Config
from slurm_plugin.config_file import load_config

if TYPE_CHECKING:
    from accounting.decisions import Decision
    from models.demand.prediction import Predictor
    from slurm_plugin.policy.facts import SiteFacts
    from slurm_plugin.policy.submission import Submission


@click.command("predict", context_settings={"ignore_unknown_options": True})
@click.argument("script", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("sbatch_options", nargs=-1, type=click.UNPROCESSED)
@click.option("--user", help="Whose job it would be; you by default.")
@click.option("--why", "with_why", is_flag=True, help="Show instead what each figure rests on.")
@config_option
@format_option
def predict(
    script: Path,
    sbatch_options: tuple[str, ...],
    user: str | None,
    with_why: bool,
    config_file: str | None,
    output_format: str,
) -> None:
    """Show for a batch script what it asks, what it is predicted to need, what it would get, and why.

    Options for sbatch follow the script. The answer is the hook's own, by the same facts about the cluster; where
    Slurm's commands do not answer, one line says so.

    \b
    Example:
      rightsizer predict job.sh -c 8 --mem=8000
      rightsizer predict --why job.sh -c 8 --mem=8000
    """
    from models import registry
    from models.feed import join_feed
    from slurm_plugin.service.decide import chain_settings_of, decide
    from slurm_plugin.slurm.scontrol_queue import user_name

    config = load_config(config_file)
    submission = read_script(script, user or user_name(os.getuid()), sbatch_options)
    folder = registry.current_folder(Path(config.models.directory))
    predictor = registry.load_version(folder.parent, folder.name, chain_settings_of(config))
    for name, problem in join_feed(predictor, Path(config.models.directory)).items():
        note(f"the service may know more of the latest jobs: {name} {problem}")
    submission, facts = as_slurm_would(submission, config)
    input_mib = input_of(submission, config)
    answer = decide(submission, predictor, config, "predicted", time.time(), facts, input_mib)
    decision = answer.decision
    if with_why:
        from slurm_plugin.cli.why import why

        print_rows(why(predictor, decision.request, folder), output_format)
    else:
        print_rows(predicted_rows(decision, predictor), output_format)
    note(f"decision: {decision.reason}; model {predictor.model}; {_closing(decision.applied, decision.mode)}")


def predicted_rows(decision: Decision, predictor: Predictor) -> list[dict[str, object]]:
    """Return what a job asks, is predicted to need and would get, and why; also what no grant rests on."""
    rows: list[dict[str, object]] = [
        {
            "resource": {"memory": "memory (MiB)", "cores": "CPUs", "gpus": "GPUs"}[reason.dimension],
            "requested": reason.asked,
            "predicted": reason.predicted,
            "granted": reason.granted,
            "why": reason.reason,
        }
        for reason in decision.dimensions
    ]
    wall = predictor.wall_time(decision.request)
    if wall:
        rows.append(
            {
                "resource": "wall time (s)",
                "requested": decision.request.wall_s,
                "predicted": round(wall.upper),
                "granted": decision.request.wall_s,
                "why": f"never changed; half of the jobs like it took {wall.likely:.0f} s or less",
            }
        )
    gpu_mem = predictor.gpu_mem_mib(decision.request) if decision.request.gpus else None
    if gpu_mem:
        rows.append(
            {
                "resource": "memory of a GPU (MiB)",
                "requested": None,
                "predicted": round(gpu_mem.upper),
                "granted": None,
                "why": f"Slurm has no request for it; half of the jobs like it used {gpu_mem.likely:.0f} MiB or less",
            }
        )
    return rows


def read_script(script: Path, user: str, options: tuple[str, ...]) -> Submission:
    """Return the submission as the hook would send it; RightsizerError where the script cannot be read."""
    from slurm_plugin.sbatch_script import read_submission
    from slurm_plugin.wire_text import as_sent

    try:
        content = script.read_bytes()
    except OSError as error:
        raise RightsizerError(
            f"cannot read the script {script}: {error.strerror}; give the path of a batch script"
        ) from None
    whole = content.decode("utf-8", errors="replace")
    submission = read_submission(whole, script.name, user, options, os.environ)
    return as_sent(submission, content)


def input_of(submission: Submission, config: Config) -> float | None:
    """Return the size of the input (MiB), as far as whoever asks sees the files too; None where it is not known."""
    from slurm_plugin.service.input_sizes import InputSizes

    if not config.inputs.roots:
        return None
    try:
        folder, uid = Path.cwd() / submission.work_dir, pwd.getpwnam(submission.user).pw_uid
    except (OSError, KeyError) as error:
        note(f"without the size of the input: {error}")
        return None
    return InputSizes(config).look(msgspec.structs.replace(submission, work_dir=str(folder), uid=uid))


def as_slurm_would(submission: Submission, config: Config) -> tuple[Submission, SiteFacts]:
    """Return the submission with Slurm's defaults, and the service's facts; without Slurm less of both, and a note."""
    from slurm_plugin.brakes.pulled import pulled_file
    from slurm_plugin.policy.facts import SiteFacts
    from slurm_plugin.slurm.associations import read_associations, with_defaults
    from slurm_plugin.slurm.facts import gather
    from slurm_plugin.slurm.groups import members_of_rules

    brakes = pulled_file(config.brakes).read().brakes
    gathered = gather(SiteFacts(groups=members_of_rules(config), brakes=brakes))
    if gathered.complaints:
        note(f"without Slurm's limits, or some of them: {'; '.join(gathered.complaints)}")
    try:
        return with_defaults(submission, read_associations(submission.user)), gathered.facts
    except SlurmError as error:
        note(f"without Slurm's defaults, which the hook knows: {error}")
        return submission, gathered.facts


def _closing(applied: bool, mode: str) -> str:
    if applied:
        return "mode enforce: sbatch would queue it as granted"
    return f"mode {mode}: sbatch would queue it as requested"
