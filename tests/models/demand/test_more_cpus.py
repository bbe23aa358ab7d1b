"""Memory of a job that gets more CPUs than its family's recent jobs had."""

import math
from typing import Any

import msgspec
import pytest

from bench.slowed import ASKED, ASKED_CPUS, ASKED_MIB
from models.demand.explanation import explain
from models.demand.prediction import ChainSettings, Predictor
from models.past.history import History
from models.past.jobs import PastJob
from slurm_plugin.cli.why import explained_rows
from tests.models.demand.cut_jobs import job

RECENT_JOBS, EACH_MIB = 20, 200.0


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


@pytest.mark.parametrize(
    ("past", "cpus", "mem_mib"),
    [
        ([*WHOLE, *SLOWED], 4, EACH_MIB * ASKED_CPUS),
        ([*WHOLE, *AS_FAST], 2, None),
        # What workers need varies: of the jobs that had more, the one that used most counts.
        ([ran(ASKED_CPUS, 1.7, mem_mib=5000.0), *WHOLE[1:], *SLOWED], 4, 5000.0),
        # A recent job had four already.
        ([*WHOLE, *SLOWED[1:], ran(4, 1.5)], 4, None),
    ],
    ids=["more", "no_more", "the_most", "one_had_more"],
)
def test_a_job_with_more_cpus_than_recent_ones_has_the_memory_that_jobs_with_more_used(
    past: list[PastJob], cpus: int, mem_mib: float | None
) -> None:
    predictor = predictor_of(*past)
    told = predictor.predict(ASKED)
    assert told.cores is not None
    assert told.memory is not None
    assert math.ceil(told.cores.upper) == cpus
    if mem_mib is None:
        assert told.memory.upper < EACH_MIB * ASKED_CPUS
    else:
        assert told.memory.upper == mem_mib
    [memory] = [one for one in explain(predictor, ASKED, {}) if one.dimension == "memory"]
    assert memory.steps[-1].upper == told.memory.upper
    said = [str(row["what"]) for row in explained_rows(memory)]
    assert any("jobs that had more used this much" in what for what in said) is (mem_mib is not None)
