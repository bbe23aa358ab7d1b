"""What the collector does when a GPU or the driver fails, and when it returns."""

from collections.abc import Callable

import pynvml
import pytest

from accounting.gpu_collector.loop import Collector
from accounting.gpu_collector.nvml import NvmlFault
from tests.accounting.gpu_collector.node import Node
from tests.builders import T0
from tests.spools import read_spool


def ten_passes(collector: Collector, after_the_first: Callable[[], None]) -> None:
    """Look for jobs and GPUs once, then sample the GPUs ten times, a second apart."""
    collector.look_again()
    collector.tick(T0)
    after_the_first()
    for second in range(1, 10):
        collector.tick(T0 + second)


def test_a_lost_gpu_is_reported_once_and_the_others_go_on(node: Node) -> None:
    node.job(7, 100, SLURM_JOB_GPUS="0,1,2,3")
    collector = node.collector()
    node.watch(collector)
    node.fake.gpus[2].broken = pynvml.NVML_ERROR_GPU_IS_LOST
    for window in range(1, 4):
        uses = node.watch(collector, first_s=T0 + 30 * window)
    assert {use.gpu: use.samples for use in uses} == {0: 120, 1: 120, 2: 30, 3: 120}
    assert len(node.said) == 1
    assert node.said[0].startswith("GPU 2 does not answer (GPU is lost)")
    node.fake.gpus[2].broken = None
    node.watch(collector, first_s=T0 + 120)
    assert node.said[1:] == ["GPU 2 answers again"]


def test_a_gpu_lost_in_between_is_left_alone_until_the_next_look(node: Node) -> None:
    node.job(7, 100, SLURM_JOB_GPUS="0,1,2,3")
    collector = node.collector()
    ten_passes(collector, lambda: setattr(node.fake.gpus[2], "broken", pynvml.NVML_ERROR_GPU_IS_LOST))
    collector.flush(T0 + 10)
    assert {use.gpu: use.samples for use in read_spool(node.spool)[0]} == {0: 10, 1: 10, 2: 1, 3: 10}
    assert [line.partition(";")[0] for line in node.said] == ["GPU 2 does not answer (GPU is lost)"]
    assert node.fake.calls.count("compute_v3") == 3 * 10 + 2


def test_a_driver_lost_in_between_is_left_alone_until_the_next_look(node: Node) -> None:
    node.job(7, 100, SLURM_JOB_GPUS="0,1")
    collector = node.collector()
    ten_passes(collector, lambda: setattr(node.fake, "driver", pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    assert node.fake.calls.count("compute_v3") == 4 + 1
    node.fake.driver = None
    node.fake.gpus[1].fails = {"handle": pynvml.NVML_ERROR_UNINITIALIZED}
    collector.look_again()
    assert [line.partition(";")[0] for line in node.said] == [
        "NVML does not answer (Driver Not Loaded)",
        "NVML does not answer (Uninitialized)",
    ]
    # A GPU that the driver does not know any more when it is back is not asked either.
    node.fake.gpus[1].fails = {}
    del node.fake.gpus[2:]
    collector.look_again()
    collector.tick(T0 + 30)
    assert node.fake.calls.count("compute_v3") == 4 + 1 + 2


def test_a_driver_that_is_restarted_is_asked_again(node: Node) -> None:
    node.job(7, 100, SLURM_JOB_GPUS="0")
    collector = node.collector()
    node.watch(collector)
    node.fake.driver = pynvml.NVML_ERROR_UNINITIALIZED
    node.watch(collector, first_s=T0 + 30)
    node.fake.driver = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    node.watch(collector, first_s=T0 + 60)
    node.watch(collector, first_s=T0 + 90)
    node.fake.driver, node.fake.open = None, False
    (before, after) = node.watch(collector, first_s=T0 + 120)
    assert (before.samples, after.samples, after.first_s) == (30, 30, T0 + 120)
    assert [line.partition(";")[0] for line in node.said] == [
        "NVML does not answer (Uninitialized)",
        "NVML does not answer (Driver Not Loaded)",
        "NVML answers again",
    ]


def test_a_driver_that_was_replaced_needs_a_new_process(node: Node) -> None:
    collector = node.collector()
    node.watch(collector)
    node.fake.driver = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    with pytest.raises(NvmlFault, match="mismatch") as caught:
        collector.tick(T0)
    assert caught.value.stale
