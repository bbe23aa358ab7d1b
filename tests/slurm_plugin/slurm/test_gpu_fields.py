"""How slurmctld's record shows a request for GPUs, by release (tests/contract/failed), and how it is made larger."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.slurm.gpu_fields import FIELDS, amount, gpu_words, parse_gpu_fields
from slurm_plugin.slurm.queue import GiveBack
from tests.slurm_plugin.recovery.test_requeuing import Captured, captured

__all__ = ["captured"]


def change(num_tasks: int = 2, **fields: Any) -> GiveBack:
    return GiveBack(job_id=7, uid=1000, num_tasks=num_tasks, reason="x", **fields)


def test_each_form_of_request_is_read(captured: Captured) -> None:
    per_node, per_job, per_task, with_memory = (captured.failed("gpus", n).gpu_fields for n in range(4))
    assert amount(per_node, "gpus_per_node") == amount(per_job, "gpus_per_job") == 2
    assert amount(per_task, "gpus_per_task") == 1
    assert (amount(with_memory, "gpus_per_job"), amount(with_memory, "mem_per_gpu_mib")) == (1, 500)
    assert amount(per_node, "gpus_per_job") is None


def test_a_field_that_appears_twice_is_not_believed() -> None:
    forged = "\n   Comment=x\n   TresPerJob=gres:gpu:1\n   TresPerJob=gres:gpu:2\n   TresPerNode=gres:gpu:3\n"
    assert parse_gpu_fields(forged) == {"TresPerNode": "gres:gpu:3"}
    assert parse_gpu_fields("\n   TresPerJob=gres:gpu:1;release\n   TresPerNode=gpu:1 JobId=8\n") == {}


@pytest.mark.parametrize(
    ("fields", "wanted", "words"),
    [
        ({"TresPerNode": "gres:gpu:1"}, {"gpus_per_node": 4}, ["TresPerNode=gres:gpu:4"]),
        (
            {"TresPerNode": "gres/nic:1,gres/gpu:a100:1"},
            {"gpus_per_node": 2},
            ["TresPerNode=gres/nic:1,gres/gpu:a100:2"],
        ),
        ({"TresPerJob": "gres/gpu:1"}, {"gpus_per_job": 4, "cpus_per_task": 8}, ["TresPerJob=gres/gpu:4"]),
        (
            {"TresPerTask": "cpu=2,gres/gpu=1", "TresBind": "gres/gpu:per_task:1"},
            {"gpus_per_task": 2, "cpus_per_task": 8},
            ["TresPerTask=cpu=8,gres/gpu=2", "TresBind=gres/gpu:per_task:2"],
        ),
        # Its CPUs were not cut, and are not given back; nor are other resources taken for CPUs.
        ({"TresPerTask": "cpu=2,gres/gpu=1"}, {"gpus_per_task": 2}, ["TresPerTask=cpu=2,gres/gpu=2"]),
        (
            {"TresPerTask": "cpu=2,gres/gpu=1,gres/nic=1"},
            {"gpus_per_task": 2, "cpus_per_task": 8},
            ["TresPerTask=cpu=8,gres/gpu=2,gres/nic=1"],
        ),
        # The releases that write `gres:` take TresPerTask only together with the sum.
        (
            {"TresPerTask": "gres:gpu:a100:1"},
            {"gpus_per_task": 3},
            ["TresPerTask=gres:gpu:a100:3", "TresPerJob=gres:gpu:a100:6"],
        ),
        ({"MemPerTres": "gres/gpu:500"}, {"mem_per_gpu_mib": 4000}, ["MemPerTres=gres/gpu:4000"]),
        # They take memory only together with the GPUs that it belongs to, and for GPUs of a type only with that type.
        (
            {"TresPerNode": "gres:gpu:1", "MemPerTres": "gres:gpu:500"},
            {"mem_per_gpu_mib": 4000},
            ["TresPerNode=gres:gpu:1", "MemPerTres=gres:gpu:4000"],
        ),
        (
            {"TresPerNode": "gres:gpu:b:1,gres:nic:2", "MemPerTres": "gres:gpu:500"},
            {"gpus_per_node": 2, "mem_per_gpu_mib": 4000},
            ["TresPerNode=gres:gpu:b:2,gres:nic:2", "MemPerTres=gres:gpu:b:4000"],
        ),
        (
            {"TresPerNode": "gres:gpu:a:1,gres:gpu:b:1", "MemPerTres": "gres:gpu:500"},
            {"mem_per_gpu_mib": 4000},
            ["TresPerNode=gres:gpu:a:1,gres:gpu:b:1", "MemPerTres=gres:gpu:a:4000,gres:gpu:b:4000"],
        ),
        # --gres=gpu is one GPU, and is shown as it was written.
        (
            {"TresPerNode": "gres:gpu", "MemPerTres": "gres:gpu:500"},
            {"mem_per_gpu_mib": 4000},
            ["TresPerNode=gres:gpu", "MemPerTres=gres:gpu:4000"],
        ),
        (
            {"TresPerNode": "gres:gpu:b", "MemPerTres": "gres:gpu:500"},
            {"mem_per_gpu_mib": 4000},
            ["TresPerNode=gres:gpu:b", "MemPerTres=gres:gpu:b:4000"],
        ),
        (
            {"TresPerTask": "gres:gpu:b:2", "MemPerTres": "gres:gpu:500"},
            {"mem_per_gpu_mib": 4000},
            ["TresPerTask=gres:gpu:b:2", "TresPerJob=gres:gpu:b:4", "MemPerTres=gres:gpu:b:4000"],
        ),
        # It already has that; or the request has another form.
        ({"TresPerNode": "gres/gpu:4"}, {"gpus_per_node": 4}, []),
        ({"TresPerNode": "gres/gpu:1"}, {"gpus_per_job": 4}, []),
        ({"TresPerNode": "gres/gpu:a:1,gres/gpu:b:1"}, {"gpus_per_node": 4}, []),
        ({"TresPerNode": "gres/gpu:1g.5gb:1"}, {"gpus_per_node": 4}, ["TresPerNode=gres/gpu:1g.5gb:4"]),
        ({"TresPerNode": "gres/gpu:1"}, {"cpus_per_task": 4}, []),
        # A user's text may look like Slurm's line, with a number that Python does not read.
        ({"TresPerNode": f"gres/gpu:{'9' * 5000}"}, {"gpus_per_node": 4}, []),
    ],
)
def test_only_the_numbers_in_a_field_change(
    fields: dict[str, str], wanted: dict[str, int], words: list[str]
) -> None:
    assert gpu_words(fields, change(**wanted)) == words


@given(
    kind=st.sampled_from(sorted(FIELDS)),
    head=st.sampled_from(["gres:gpu:", "gres/gpu:", "gres/gpu=", "gres/gpu:a100:", "gres:gpu:h100-80g:"]),
    before=st.integers(1, 10**6),
    after=st.integers(1, 10**6),
)
def test_once_written_nothing_more_has_to_be_written(kind: str, head: str, before: int, after: int) -> None:
    fields = {FIELDS[kind]: f"{head}{before}"}
    wanted = change(**{kind: after})
    written = dict(word.split("=", 1) for word in gpu_words(fields, wanted))
    now = {**fields, **written}
    assert amount(now, kind) == after
    assert gpu_words(now, wanted) == []
    assert bool(written) == (before != after)
