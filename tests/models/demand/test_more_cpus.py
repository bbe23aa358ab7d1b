"""Memory of a job that gets more CPUs than its family's recent jobs had."""

from typing import Any

import msgspec
import pytest

from accounting.request import Dimension
from bench.slowed import ASKED, ASKED_CPUS, ASKED_MIB
from models.demand.prediction import ChainSettings, Predictor
from models.past.history import History
from models.past.jobs import PastJob
from slurm_plugin.policy.sizing import MORE_CPUS, size
from tests.models.demand.cut_jobs import job
from tests.slurm_plugin.policy.sized import limits

RECENT_JOBS, EACH_MIB = 20, 200.0
KEPT: dict[Dimension, str] = {"cores": "a rule"}


def ran(cpus: int, busy: float, **changes: Any) -> PastJob:
    """A job that started a worker for each of its CPUs, which hold EACH_MIB each."""
    told = {"asked_cpus": ASKED_CPUS, "given_cpus": cpus, "cores_per_task": busy, "mem_mib": EACH_MIB * cpus}
    return job(**{**told, "asked_mem_mib": ASKED_MIB, "given_mem_mib": ASKED_MIB, "wall_s": 600, **changes})


def predictor_of(*past: PastJob) -> Predictor:
    history = History(RECENT_JOBS)
    for number, one in enumerate(past, start=1):
        history.join(ASKED, msgspec.structs.replace(one, end_s=1000 * number, job_id=number))
    return Predictor("m", history, {}, ChainSettings())


WHOLE = [ran(ASKED_CPUS, 1.7)] * 10
SLOWED, AS_FAST = [ran(2, 1.3)] * RECENT_JOBS, [ran(2, 1.7)] * RECENT_JOBS
FAILED = ran(ASKED_CPUS, 0.1, mem_mib=5.0, complete=False, failed=True)


@pytest.mark.parametrize(
    ("past", "kept", "cpus", "mem_mib"),
    [
        ([*WHOLE, *SLOWED], {}, 4, EACH_MIB * ASKED_CPUS),
        ([*WHOLE, *AS_FAST], {}, 2, None),
        # A rule keeps its CPUs from now on.
        ([*WHOLE, *AS_FAST], KEPT, None, EACH_MIB * ASKED_CPUS),
        # What workers need varies: of the jobs that had more, the one that used most counts.
        ([ran(ASKED_CPUS, 1.7, mem_mib=5000.0), *WHOLE[1:], *SLOWED], {}, 4, 5000.0),
        # A recent job had four already.
        ([*WHOLE, *SLOWED[1:], ran(4, 1.5)], {}, 4, None),
        # One that had all failed at once, which shows no need.
        ([*WHOLE, *SLOWED[1:], FAILED], {}, 4, EACH_MIB * ASKED_CPUS),
    ],
    ids=["more", "no_more", "kept", "the_most", "one_had_more", "one_had_more_and_failed"],
)
def test_a_job_with_more_cpus_than_recent_ones_has_the_memory_that_jobs_with_more_used(
    past: list[PastJob], kept: dict[Dimension, str], cpus: int | None, mem_mib: float | None
) -> None:
    sized = size(ASKED, predictor_of(*past).predict(ASKED), limits(), kept)
    [memory] = [one for one in sized.reasons if one.dimension == "memory"]
    assert sized.grant.cpus_per_task == cpus
    assert memory.granted is not None
    assert (memory.reason == MORE_CPUS) is (mem_mib is not None)
    if mem_mib is None:
        assert memory.granted < EACH_MIB * ASKED_CPUS
    else:
        assert mem_mib <= memory.granted < mem_mib + limits().memory_step_mib


def test_a_request_for_no_more_cpus_than_recent_jobs_had_has_the_memory_that_these_used() -> None:
    narrow = msgspec.structs.replace(ASKED, cpus_per_task=2)
    grant = size(narrow, predictor_of(*WHOLE, *SLOWED).predict(narrow), limits()).grant
    assert grant.mem_per_node_mib is not None
    assert grant.mem_per_node_mib < EACH_MIB * ASKED_CPUS
