"""A job decided at submission and still pending, and what sizing it again gives: for the tests of late.py. No Slurm."""

from __future__ import annotations

from typing import Any

from accounting.decisions.decision import Decision
from accounting.decisions.token import format_token
from accounting.request import Grant, JobRequest, granted
from models.demand.chain import Estimate
from models.demand.prediction import ChainSettings, Prediction
from slurm_plugin.advisor.late import Again, size_again
from slurm_plugin.config.settings import Config
from slurm_plugin.policy.facts import SiteFacts
from slurm_plugin.policy.rules import terms_for
from slurm_plugin.service.decide import Answer, decide, fill_in
from slurm_plugin.slurm.snapshot import QueuedJob
from tests.builders import submission

ENFORCING = Config(mode="enforce")
NOW_S = 1_800_000_000.0
ASKED = {"cpus_per_task": 8, "mem_per_node_mib": 8000}


class Known:
    """Stands for a predictor; the test itself says what a job will need."""

    settings = ChainSettings()

    def __init__(self, mem_mib: float | None, cores: float | None = 1.0, gpus: float | None = None) -> None:
        self.needs = (mem_mib, cores, gpus)

    def predict(self, _request: JobRequest) -> Prediction:
        memory, cores, gpus = (
            None if one is None else Estimate(likely=one, upper=one, jobs=5) for one in self.needs
        )
        return Prediction(
            model="m2",
            basis="5 earlier jobs",
            jobs_seen=5,
            memory=memory,
            cores=cores,
            gpus=gpus,
            gpu_source="t",
        )


class Queued:
    """A job as it was decided at submission, and as it then waits."""

    def __init__(self, known: Known | None = None, config: Config = ENFORCING, **asked: Any) -> None:
        self.config = config
        self.facts = asked.pop("facts", SiteFacts())
        self.asked = submission(name="fit1", script="#!/bin/sh\n./fit\n", **{**ASKED, **asked})
        self.answer = decide(self.asked, known, config, "first", NOW_S - 60, self.facts)  # type: ignore[arg-type]
        self.decisions = {"first": self.answer.decision}

    def job(self, **changes: Any) -> QueuedJob:
        decision = self.answer.decision
        request = granted(decision.request, decision.grant if decision.applied else Grant())
        fields: dict[str, Any] = {
            "job_id": 7,
            "user": request.user,
            "uid": 1000,
            "account": "",
            "partitions": ("main",),
            "qos": "normal",
            "name": "fit1",
            "state": "PENDING",
            "reason": "Resources",
            "submit_s": NOW_S - 60,
            "eligible_s": NOW_S - 60,
            "start_s": 0.0,
            "end_s": 0.0,
            "limit_s": 600,
            "priority": 1,
            "site_factor": 0,
            "cpus": request.cpus,
            "mem_mib": request.mem_mib or 0,
            "gpus": 0,
            "num_tasks": request.num_tasks,
            "cpus_per_task": request.cpus_per_task or 1,
            "mem_per_node_mib": request.mem_per_node_mib,
            "mem_per_cpu_mib": request.mem_per_cpu_mib,
            "comment": self.asked.comment,
            "admin_comment": format_token(decision),
        }
        return QueuedJob(**{**fields, **changes})

    def again(
        self, known: Known | None, config: Config | None = None, *, cpus_stay: bool = False, **changes: Any
    ) -> Again | str:
        def anew(undecided: Decision, comment: str) -> Answer:
            return fill_in(undecided, comment, known, config or self.config, self.facts)  # type: ignore[arg-type]

        return size_again(
            self.job(**changes),
            self.decisions,
            anew,
            lambda request: terms_for(request, config or self.config, self.facts),
            "second",
            NOW_S,
            cpus_stay=cpus_stay,
        )


def sized(found: Again | str) -> Again:
    assert isinstance(found, Again), found
    return found
