"""Run times of queued jobs by the model in use, remembered until new jobs join what they rest on."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from accounting.request import JobRequest
from models.demand.prediction import Predictor
from models.past.families import Family, family_keys, wide_keys
from models.past.job_names import normal_name
from slurm_plugin.advisor.run_time import RunTime, by_limit, request_of, within_limit
from slurm_plugin.slurm.snapshot import QueuedJob

MOST_REMEMBERED = 50_000
NO_MODEL = "there is no model yet"
NO_EVIDENCE = "no finished job like it is known"


class _Remembered(NamedTuple):
    """What was expected of jobs that ask alike, and how many jobs had joined their families then."""

    families: tuple[Family, ...]
    joined: int
    run_time: RunTime | None


class Expectations:
    """Estimates by one predictor, or by limits alone if there is none."""

    def __init__(self, predictor: Predictor | None) -> None:
        self.predictor = predictor
        self._known: dict[JobRequest, _Remembered] = {}

    def run_time(self, job: QueuedJob) -> RunTime:
        """Return how long a job is expected to run in all, whether it waits or runs."""
        if self.predictor is None:
            return by_limit(job, NO_MODEL)
        request = request_of(job)
        alike = msgspec.structs.replace(request, job_name=normal_name(request.job_name))
        known = self._known.get(alike)
        if known is None or self.predictor.joined(known.families) != known.joined:
            known = self._known[alike] = self._ask(self.predictor, job, request)
            if len(self._known) > MOST_REMEMBERED:
                self._known.clear()
        return known.run_time or by_limit(job, NO_EVIDENCE)

    @staticmethod
    def _ask(predictor: Predictor, job: QueuedJob, request: JobRequest) -> _Remembered:
        families = family_keys(request)
        joined = predictor.joined(families)
        estimate = predictor.wall_time(request)
        if estimate is not None:
            return _Remembered(families, joined, within_limit(job, estimate))
        families = (*families, *wide_keys(request))
        joined = predictor.joined(families)
        wide = predictor.wide_wall_time(request)
        return _Remembered(families, joined, None if wide is None else within_limit(job, *wide))
