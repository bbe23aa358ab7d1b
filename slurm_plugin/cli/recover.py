"""`rightsizer recover`: requeue jobs that failed because we cut them, as asked; a dry run without --apply."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accounting.errors import ServiceError
from slurm_plugin.cli.orderly_end import stopped_by_signals
from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.config.file import load_config
from slurm_plugin.config.settings import Config
from slurm_plugin.day_files import DAY_S
from slurm_plugin.log_lines import log_to_stderr

if TYPE_CHECKING:
    from accounting.decisions.decision import Decision
    from slurm_plugin.recovery.rounds import Outcome, Recoverer


COLUMNS = ("job", "user", "name", "cause", "given MiB", "asked MiB", "given CPUs", "asked CPUs", "what")


@click.command("recover")
@click.option("--job", "job_id", type=click.IntRange(1), help="Look only at this job, after it has ended.")
@click.option(
    "--watch", "watches", is_flag=True, help="Look again every recovery.period_s seconds, until stopped."
)
@click.option("--apply", is_flag=True, help="Requeue the jobs. Without it, nothing is written to Slurm.")
@config_option
@format_option
def recover(
    job_id: int | None, watches: bool, apply: bool, config_file: str | None, output_format: str
) -> None:
    """Show which jobs failed because we had cut their requests, and requeue them with --apply.

    A job counts if it was killed for memory with less memory than requested, if it ran out of time with fewer CPUs
    than requested, or (with recovery.read_output) if its own output says that memory, CPUs or GPUs were too few. Such
    a job is requeued once, under its own job id, with its original request. A job that may not be requeued is recorded
    as lost, and `rightsizer explain` shows that. slurmctld forgets ended jobs after MinJobAge, so keep --watch
    running.

    \b
    Example:
      rightsizer recover
      rightsizer recover --watch --apply
      rightsizer recover --job 4711 --apply
    """
    if watches and job_id is not None:
        raise click.UsageError("--watch and --job do not go together; give one of them")
    config = load_config(config_file)
    log_to_stderr(warnings_alone=not apply)
    recoverer = recoverer_of(config, apply=apply, goes_on=watches, reads=reads_output(config, job_id))
    if watches:
        watch_on(recoverer, config.recovery.period_s)
        return
    found = recoverer.round() if job_id is None else recoverer.one(job_id, config.recovery.patience_s)
    print_rows([row_of(one) for one in found], output_format, columns=COLUMNS)
    many = (
        "1 job failed because we cut it"
        if len(found) == 1
        else f"{len(found)} jobs failed because we cut them"
    )
    note(many + ("" if apply or not found else "; add --apply to requeue"))


def reads_output(config: Config, job_id: int | None) -> bool:
    """Whether the output of jobs is read; ServiceError if the site wants that and this process may not.

    With `job_id`, a note replaces the error: slurmctld's epilog calls us as SlurmUser, which may not become another
    user. Slurm itself says of most such jobs that they ran out of memory; --watch reads the output of the others.
    """
    from slurm_plugin.recovery.output import why_unable

    if not config.recovery.read_output or not (unable := why_unable()):
        return config.recovery.read_output
    if job_id is None:
        raise ServiceError(f"recovery.read_output is on, but {unable}, or set recovery.read_output to false")
    note(f"output files are left to `rightsizer recover --watch`: {unable}")
    return False


def recoverer_of(config: Config, *, apply: bool, goes_on: bool, reads: bool) -> Recoverer:
    """Return a recoverer with the configured settings; `reads` says whether it reads the output of jobs.

    `goes_on` says that it makes one round after the other.

    Raises SlurmError if slurmctld does not answer and, with `apply`, ServiceError if Slurm does not let us change
    jobs: a job that we requeued would stay held.
    """
    from slurm_plugin.advisor.standing import cpus_must_stay
    from slurm_plugin.recovery.journal import Journal
    from slurm_plugin.recovery.judging import SiteTerms
    from slurm_plugin.recovery.output import Outputs
    from slurm_plugin.recovery.rounds import Recoverer
    from slurm_plugin.slurm.gateway import RecoveryGate
    from slurm_plugin.slurm.release import read_release
    from slurm_plugin.slurm.rights import why_not_in_their_names
    from slurm_plugin.slurm.scontrol_queue import ScontrolQueue
    from slurm_plugin.slurm.snapshot import MULTIFACTOR

    if apply and (forbidden := why_not_in_their_names()):
        raise ServiceError(forbidden)
    queue = ScontrolQueue()
    scheduling = queue.terms()
    # A site_factor plugin of the site sets SiteFactors itself.
    age_counts = scheduling.priority_type == MULTIFACTOR and not scheduling.site_factor_plugin
    return Recoverer(
        RecoveryGate(queue, apply=apply),
        Journal(Path(config.recovery.directory)),
        apply=apply,
        most=config.recovery.most_jobs,
        goes_on=goes_on,
        terms=SiteTerms(
            cpus_stay=cpus_must_stay(read_release()),
            age_points=scheduling.weights.get("Age", 0) if age_counts else 0,
            most_age_s=scheduling.most_age_s,
        ),
        said_by=Outputs().said_by if reads else None,
        decided=partial(decisions_of, Path(config.service.journal)),
    )


def decisions_of(journal: Path, submit_s: Mapping[str, float]) -> dict[str, Decision]:
    """Return decisions by id; `submit_s` has the id of each, and when its job was submitted (unix s; 0: not known).

    A decision is journalled before its job is submitted. The clocks may differ, so the search begins a day earlier.
    """
    from accounting.journal.files import find_decisions

    return find_decisions(journal, submit_s.keys(), min(submit_s.values()) - DAY_S)


def watch_on(recoverer: Recoverer, period_s: float) -> None:
    """Run rounds until SIGTERM or SIGINT; the current round is finished first."""
    from slurm_plugin.recovery.rounds import watch

    stop = stopped_by_signals()
    watch(recoverer, period_s, stop)
    note("stopped")


def row_of(outcome: Outcome) -> dict[str, object]:
    """Return a job's row: what it ran with, what was asked for it, and the outcome."""
    job, recovery = outcome.run.job, outcome.recovery
    return {
        "job": job.job_id,
        "user": job.user,
        "name": job.name,
        "cause": recovery.cause if recovery else "begun before",
        "given MiB": recovery.given.mem_mib if recovery else None,
        "asked MiB": recovery.asked.mem_mib if recovery else None,
        "given CPUs": recovery.given.cpus if recovery else None,
        "asked CPUs": recovery.asked.cpus if recovery else None,
        "what": outcome.problem or "queued again",
    }
