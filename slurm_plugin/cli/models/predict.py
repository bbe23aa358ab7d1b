"""`rightsizer predict`."""

from __future__ import annotations

import os
import pwd
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from accounting.errors import RightsizerError, SlurmError
from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.config.file import load_config
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from accounting.decisions.decision import Decision
    from models.demand.prediction import Predictor
    from slurm_plugin.policy.facts import SiteFacts
    from slurm_plugin.policy.submission import Submission


@click.command("predict", context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SBATCH OPTIONS] [SCRIPT]")
@click.option("--user", help="The user whose job it would be. Default: you.")
@click.option("--why", "with_why", is_flag=True, help="Show what each figure is based on instead.")
@config_option
@format_option
def predict(
    words: tuple[str, ...],
    user: str | None,
    with_why: bool,
    config_file: str | None,
    output_format: str,
) -> None:
    """Show what a batch job asks for, is predicted to need and would be granted, and why.

    Give it what you would give sbatch: options and a script, --wrap, or a script on standard input. Options may also
    follow the script. The answer is the one that the hook would get, with the same facts about the cluster. If Slurm's
    commands do not answer, a line says so.

    \b
    Example:
      rightsizer predict -c 8 --mem=8000 job.sh
      rightsizer predict --why job.sh -c 8 --mem=8000
    """
    from accounting.unnamed import user_name
    from models.versions import registry
    from models.versions.feed import join_feed
    from slurm_plugin.service.decide import chain_settings_of, decide

    config = load_config(config_file)
    submission = read_command(words, user or user_name(os.getuid()))
    folder = registry.current_folder(Path(config.models.directory))
    predictor = registry.load_version(folder.parent, folder.name, chain_settings_of(config))
    for name, problem in join_feed(predictor, Path(config.models.directory)).items():
        note(f"the service may know more about the latest jobs: {name} {problem}")
    submission, facts = as_slurm_would(submission, config)
    input_mib = input_of(submission, config)
    answer = decide(submission, predictor, config, "predicted", time.time(), facts, input_mib)
    decision = answer.decision
    if with_why:
        from slurm_plugin.cli.why import why

        print_rows(why(predictor, decision.request, folder), output_format)
    else:
        print_rows(predicted_rows(decision, predictor), output_format)
    note(
        f"decision: {decision.reason}; model {predictor.model}; {_closing(decision, config.hook.kill_switch)}"
    )


def predicted_rows(decision: Decision, predictor: Predictor) -> list[dict[str, object]]:
    """Return what a job asks for, is predicted to need and would get, and why.

    The rows include predictions that no grant depends on: wall time, and the memory of a GPU.
    """
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
                "why": f"never changed; half of the similar jobs took {wall.likely:.0f} s or less",
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
                "why": (
                    f"Slurm has no request for it; half of the similar jobs used {gpu_mem.likely:.0f} MiB "
                    "or less"
                ),
            }
        )
    return rows


def read_command(words: tuple[str, ...], user: str) -> Submission:
    """Return what `sbatch WORDS` would submit; UsageError if there is nothing to submit."""
    from slurm_plugin.sbatch.command import STDIN_NAME, WRAPPED, WRAPPED_NAME, take_apart

    command = take_apart(words)
    note_unknown(command.options)
    if command.script:
        return read_script(Path(command.script), user, command.options)
    if command.wrap is not None:
        return read_content(WRAPPED.format(command.wrap).encode(), WRAPPED_NAME, user, command.options)
    content = _standard_input()
    if not content:
        raise click.UsageError("Missing argument 'SCRIPT': give a script, or pipe one to standard input.")
    return read_content(content, STDIN_NAME, user, command.options)


def _standard_input() -> bytes:
    """Return what standard input holds; nothing if it is a terminal."""
    try:
        return b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
    except OSError:
        return b""


def read_script(script: Path, user: str, options: tuple[str, ...]) -> Submission:
    """Return the submission as the hook would send it; RightsizerError if the script cannot be read."""
    try:
        content = script.read_bytes()
    except OSError as error:
        raise RightsizerError(
            f"cannot read the script {script}: {error.strerror}; give the path of a batch script"
        ) from None
    return read_content(content, script.name, user, options)


def read_content(content: bytes, name: str, user: str, options: tuple[str, ...]) -> Submission:
    """Return a script's submission as the hook would send it; `name` is the job's name if the script sets none."""
    from slurm_plugin.sbatch.script import directives, read_submission
    from slurm_plugin.sbatch.wire_text import as_sent

    whole = content.decode("utf-8", errors="replace")
    submission = read_submission(whole, name, user, options, os.environ)
    note_unknown(directives(whole))
    return as_sent(submission, content)


def note_unknown(options: Sequence[str]) -> None:
    """Say which options sbatch itself does not have: mistyped ones, or those of a plugin, which no hook sees."""
    from slurm_plugin.sbatch.script import option_parser

    for name, meant in option_parser().unknown(options).items():
        told = f"; did you mean {' or '.join(f'`{option}`' for option in meant)}?" if meant else ""
        note(f"{name} is no option of sbatch itself, and is ignored{told}")


def input_of(submission: Submission, config: Config) -> float | None:
    """Return the size of the input (MiB), as far as this process may look at the files; None if it is not known."""
    from slurm_plugin.service.input_sizes import InputSizes

    if not config.inputs.roots:
        return None
    try:
        folder, uid = Path.cwd() / submission.work_dir, pwd.getpwnam(submission.user).pw_uid
    except OSError as error:
        note(f"the size of the input is not considered: {error}")
        return None
    except KeyError:
        note(
            f"the size of the input is not considered: this machine has no user {submission.user} to "
            "read it as"
        )
        return None
    return InputSizes(config).look(msgspec.structs.replace(submission, work_dir=str(folder), uid=uid))


def as_slurm_would(submission: Submission, config: Config) -> tuple[Submission, SiteFacts]:
    """Return the submission with Slurm's defaults, and the facts that the service uses.

    What Slurm does not answer is left out of both, with a note.
    """
    from slurm_plugin.brakes.pulled import pulled_file
    from slurm_plugin.policy.facts import SiteFacts
    from slurm_plugin.slurm.associations import read_associations, with_defaults
    from slurm_plugin.slurm.facts import gather
    from slurm_plugin.slurm.groups import members_of_rules

    brakes = pulled_file(config.brakes).read().brakes
    gathered = gather(SiteFacts(groups=members_of_rules(config), brakes=brakes))
    if gathered.complaints:
        note(f"Slurm's limits, or some of them, are not considered: {'; '.join(gathered.complaints)}")
    try:
        return with_defaults(submission, read_associations(submission.user)), gathered.facts
    except SlurmError as error:
        note(f"Slurm's defaults, which the hook knows, are not considered: {error}")
        return submission, gathered.facts


def _closing(decision: Decision, kill_switch: str) -> str:
    if os.path.exists(kill_switch):  # noqa: PTH110 - False where that is closed to whoever asks; Path's raises
        return (
            f"but {kill_switch} exists, so the hook does not ask the service: sbatch would queue the job as "
            "requested"
        )
    if decision.applied:
        return "mode enforce: sbatch would queue the job as granted"
    return f"mode {decision.mode}: sbatch would queue the job as requested"
