"""Explain an ended job from Slurm's accounting, for users who may not read the store, or before the job is ingested.

sacct shows users what the site lets them see, and the job's own token holds the decision. That is enough to say what
was asked, granted and used, but not what the prediction rested on.
"""

from __future__ import annotations

import time

from accounting.decisions.token import find_token
from accounting.frames import attempts_in
from accounting.labels.attempts import label
from accounting.records import Attempt
from accounting.slurm.sacct import query_job
from accounting.slurm.sacct_records import read_answer
from slurm_plugin.cli.explain.ended_job import Ended, ended_of
from slurm_plugin.cli.explain.job_id import JobId
from slurm_plugin.config.settings import Config
from slurm_plugin.slurm.metering import read_metering


def told_by_accounting(config: Config, job_id: JobId) -> list[Ended]:
    """Return the ended attempts of a job from sacct and their tokens, as far as this user may see them.

    Raises SlurmError if sacct cannot be asked.
    """
    command, until_s = config.accounting.sacct, int(time.time()) + 60
    answer = query_job(command, str(job_id))
    metering = read_metering(command)
    attempts = [
        one
        for records in read_answer(answer, until_s, metering)
        for one in attempts_in(label(records, sampled_every_s=metering.sampled_every_s))
    ]
    return [_ended(one, config) for one in attempts if _is_meant(one, job_id)]


def _is_meant(attempt: Attempt, job_id: JobId) -> bool:
    """Whether an attempt belongs to the job: for an array's number, sacct lists all tasks."""
    return attempt.row.display_id == str(job_id) if job_id.is_part else attempt.row.job_id == job_id.number


def _ended(attempt: Attempt, config: Config) -> Ended:
    from accounting.decisions.rebuilding import rebuilt

    token = find_token(attempt.row.admin_comment)
    return ended_of(attempt, rebuilt(token, attempt.row) if token else None, [], config)
