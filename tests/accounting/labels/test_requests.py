"""What was first requested for each attempt: by our token, otherwise by Slurm's own record."""

import dataclasses

import pyarrow as pa
import pytest

from accounting.decisions.token import format_token
from accounting.frames import attempts_in
from accounting.labels.attempts import label
from accounting.records import Attempt
from accounting.request import Grant
from tests.builders import decision, job_row, label_attempt, records_of, request, srun, step


def test_tokens_restore_the_request_per_node() -> None:
    asked = request(
        num_tasks=2, cpus_per_task=8, mem_per_node_mib=9000, gpus_per_node=4, script_signature="ab"
    )
    token = format_token(decision(id="d7", request=asked, grant=Grant(cpus_per_task=1), applied=True))
    row = job_row(req_cpus=2, req_mem_mib=512, req_gpus=1, admin_comment=f"other {token}")
    labelled = label_attempt(row, [step()])
    assert asked_by(labelled) == (2, 16, 9000, 4)
    assert (labelled.decision_id, labelled.script_signature) == ("d7", "ab")


@pytest.mark.parametrize(("named", "held", "nodes"), [(None, 3, 3), (2, 2, 2), (None, None, 1), (None, 0, 1)])
def test_a_request_per_node_counts_on_each_node_that_the_job_held(
    named: int | None, held: int | None, nodes: int
) -> None:
    asked = request(num_tasks=32, cpus_per_task=2, mem_per_node_mib=8000, gpus_per_node=4, nodes=named)
    row = job_row(nodes=held, admin_comment=format_token(decision(request=asked)))
    assert asked_by(label_attempt(row, [step()])) == (32, 64, 8000 * nodes, 4 * nodes)


def asked_by(labelled: Attempt) -> tuple[int, int | None, int | None, int | None]:
    return labelled.num_tasks, labelled.asked_cpus, labelled.asked_mem_mib, labelled.asked_gpus


def test_tokens_restore_the_request_per_cpu() -> None:
    asked = request(num_tasks=2, cpus_per_task=8, mem_per_cpu_mib=1000)
    row = job_row(req_cpus=2, req_mem_mib=256, admin_comment=format_token(decision(request=asked)))
    assert label_attempt(row, [step()]).asked_mem_mib == 16000


def test_without_a_token_the_request_is_slurms_own_and_tasks_are_those_of_the_steps() -> None:
    labelled = label_attempt(job_row(), [step(), srun(0, 0, 5, 1, tasks=3), srun(1, 5, 9, 1, tasks=2)])
    assert asked_by(labelled) == (3, 8, 8000, None)
    assert labelled.decision_id == ""


@pytest.mark.parametrize(("told", "tasks"), [(None, 1), (0, 1), (6, 6)])
def test_the_tasks_of_a_job_without_srun_are_those_it_requested(told: int | None, tasks: int) -> None:
    records = records_of([(job_row(), [step()])])
    place = records.jobs.schema.get_field_index("tasks")
    asked = pa.array([told], records.jobs.schema.field(place).type)
    jobs = records.jobs.set_column(place, records.jobs.schema.field(place), asked)
    [found] = attempts_in(label(dataclasses.replace(records, jobs=jobs)))
    assert found.num_tasks == tasks
