"""Why waiting jobs were left as they are, remembered as long as nothing has changed on which that rests.

Nearly all of a long queue is as it was a minute ago: looking at each of 100,000 jobs again would take half a period.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from accounting.request import JobRequest
from models.demand.prediction import Predictor
from models.past.families import Family, family_keys
from slurm_plugin.policy.facts import SiteFacts
from slurm_plugin.slurm.job_lines import is_held_again
from slurm_plugin.slurm.snapshot import QueuedJob

# What is known of a user changes all the time, but little (service/remembered.py).
HOLDS_S = 600.0


class Known(NamedTuple):
    """A job as it was, how many jobs had joined its families, why it was left, and the decisions that it names."""

    job: tuple[Any, ...]
    families: tuple[Family, ...]
    joined: int
    reason: str
    named: tuple[str, ...]


class LeftAlone:
    """Remembers by job id; everything is forgotten with the model and the facts, and every ten minutes."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: dict[int, Known] = {}
        self._of: tuple[Predictor | None, SiteFacts | None] = (None, None)
        self._since_s = 0.0

    def begin(self, predictor: Predictor | None, facts: SiteFacts, now_s: float) -> None:
        """Forget everything if what is known of the site has changed, or it has held for long enough."""
        current = self._of[0] is predictor and self._of[1] is facts and 0 <= now_s - self._since_s <= HOLDS_S
        if not current:
            self._known, self._of, self._since_s = {}, (predictor, facts), now_s

    def of(self, job: QueuedJob) -> Known | None:
        """Return what still holds of a job; None if it must be looked at."""
        known = self._known.get(job.job_id)
        if known is None or known.job != rests_on(job) or self._joined(known.families) != known.joined:
            return None
        return known

    def keep(self, job: QueuedJob, request: JobRequest | None, reason: str, named: tuple[str, ...]) -> None:
        """Remember why a job was left; `request` is what was predicted for, None if nothing was."""
        families = family_keys(request) if request else ()
        self._known[job.job_id] = Known(rests_on(job), families, self._joined(families), reason, named)

    def _joined(self, families: tuple[Family, ...]) -> int:
        return self._of[0].joined(families) if self._of[0] else 0


def rests_on(job: QueuedJob) -> tuple[Any, ...]:
    """Return all of a record that late.py looks at."""
    return (
        job.admin_comment, job.comment, job.cpus_per_task, job.min_cpus, job.mem_per_node_mib, job.mem_per_cpu_mib,
        job.num_tasks, job.min_cpus_per_node, job.other,
        job.partitions, job.account, job.qos, job.limit_s, job.exclusive, job.batch, job.het_job_id, job.name, job.user,
        is_held_again(job),
    )  # fmt: skip
