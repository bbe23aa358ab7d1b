"""The service's own sizing, which decides a simulation's grants and learns from each job that ends in it. Pure.

What a job is granted depends only on what had ended before it came, in the simulation or before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from accounting.request import JobRequest
from models.judging.online import Granted, Learner, OnlineJob
from models.past.jobs import PastJob
from models.scheduling.room import MILLI, Amounts, amounts_of
from models.simulation.workload import Flags, Workload

NOTHING = (False, False, False)


class LearnedSizing:
    """Applies `grant` to a learner's prediction for each job.

    `cases` say what each job is and how it ran with all that it asked. `keeps` (jobs × resources) marks what stays as
    asked whatever is predicted; `origin_s` is the unix time of moment 0.
    """

    def __init__(
        self,
        jobs: Workload,
        cases: Sequence[OnlineJob],
        learner: Learner,
        grant: Granted,
        keeps: Flags | None = None,
        origin_s: float = 0.0,
    ) -> None:
        self._asked = [amounts_of(row) for row in jobs.asked]
        self._keeps = [NOTHING] * len(jobs) if keeps is None else [tuple(row) for row in keeps.tolist()]
        self._cases = cases
        self._learner = learner
        self._granted = grant
        self._origin_s = origin_s
        # A job that comes in the same second does not know these yet.
        self._just_ended: list[tuple[float, OnlineJob]] = []
        learner.refit()

    def grant(self, number: int, now_s: float) -> Amounts:
        """Return what the service would grant; the whole request if too little is known."""
        self._learn_until(now_s)
        case, asked, keeps = self._cases[number], self._asked[number], self._keeps[number]
        self._learner.decided(case)
        if all(keeps):
            return asked
        after, _ = self._granted(self._learner.predictor, case.request)
        cpu_milli, mem_mib, gpu_milli = (
            part if kept else min(part, less)
            for part, less, kept in zip(asked, _amounts(case.request, after, asked), keeps, strict=True)
        )
        return cpu_milli, mem_mib, gpu_milli

    def ended(self, number: int, now_s: float, start_s: float, granted: Amounts, *, enough: bool) -> None:
        """Learn, a moment later, from what would have been measured."""
        case = self._cases[number]
        past = as_run(case.past, granted, end_s=self._origin_s + now_s, wall_s=now_s - start_s, enough=enough)
        self._just_ended.append((now_s, msgspec.structs.replace(case, past=past)))

    def _learn_until(self, now_s: float) -> None:
        if self._just_ended and self._just_ended[0][0] < now_s:
            for _, job in (ended for ended in self._just_ended if ended[0] < now_s):
                self._learner.ended(job)
            self._just_ended = [ended for ended in self._just_ended if ended[0] >= now_s]
            self._learner.refit()


def _amounts(request: JobRequest, after: JobRequest, asked: Amounts) -> Amounts:
    """Return a request after its grant, in a room's units; what the grant did not change stays exactly as asked."""
    return (
        after.cpus * MILLI if after.cpus != request.cpus else asked[0],
        after.mem_mib if after.mem_mib is not None and after.mem_mib != request.mem_mib else asked[1],
        after.gpus * MILLI if after.gpus is not None and after.gpus != request.gpus else asked[2],
    )


def as_run(past: PastJob, granted: Amounts, *, end_s: float, wall_s: float, enough: bool) -> PastJob:
    """Return a past job as it would have been measured with its grant: never more than that.

    With too little memory (`enough` is False), it shows a lower bound of memory, and no complete need of anything.
    """
    cpu_milli, mem_mib, gpu_milli = granted
    return msgspec.structs.replace(
        past,
        end_s=int(end_s),
        wall_s=max(1, int(wall_s)),
        complete=past.complete and enough,
        mem_at_least=past.mem_at_least or not enough,
        mem_mib=past.mem_mib if past.mem_mib is None or not mem_mib else min(past.mem_mib, mem_mib),
        cores_per_task=None
        if past.cores_per_task is None
        else min(past.cores_per_task, cpu_milli / MILLI / past.num_tasks),
        gpus=None if past.gpus is None else min(past.gpus, gpu_milli // MILLI),
        given_cpus=cpu_milli // MILLI,
        given_gpus=None if past.given_gpus is None else gpu_milli // MILLI,
        given_mem_mib=mem_mib or None,
    )
