"""Jobs to which slurmdbd has given no number: before 24.11 slurmctld waits five seconds for it, then changes nothing.

If a slurmctld ends while it asks slurmdbd, such jobs count as asked about until they start, and are never asked about
again. A refused job is therefore tried later and later, and after all others: otherwise a handful would use up the
time of the rest, in each cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

# Slurm's ESLURM_JOB_SETTING_DB_INX, in words.
_REFUSAL = "DB index is being set"
FIRST_S, LONGEST_S = 30.0, 3600.0
LEFT = "slurmdbd has not numbered it yet, and slurmctld does not change such a job; it is tried again later"


class Unnumbered:
    """The jobs left alone, and until when: 30 s after a refusal, twice as long after each further one, at most 1 h."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        """No job is left alone yet."""
        self._clock_s = clock_s
        self._waits: dict[int, tuple[float, float]] = {}

    def was_refused(self, job_id: int) -> bool:
        """Whether this job's last change was refused for that."""
        return job_id in self._waits

    def is_left(self, job_id: int) -> bool:
        """Whether it is too early to try this job again."""
        return job_id in self._waits and self._clock_s() < self._waits[job_id][0]

    def note(self, job_id: int, complaint: str) -> None:
        """Take in the result of a change of this job; any other complaint says nothing about its number."""
        if _REFUSAL in complaint:
            wait_s = min(LONGEST_S, 2 * self._waits[job_id][1]) if job_id in self._waits else FIRST_S
            self._waits[job_id] = (self._clock_s() + wait_s, wait_s)
        elif not complaint:
            self._waits.pop(job_id, None)

    def keep(self, alive: Collection[int]) -> None:
        """Forget all jobs but these."""
        self._waits = {job_id: wait for job_id, wait in self._waits.items() if job_id in alive}
