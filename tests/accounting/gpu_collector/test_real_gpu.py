"""The collector on a real GPU, if there is one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from accounting.gpu_collector.nvml import Nvml, NvmlFault
from tests.accounting.gpu_collector.started import PATIENCE_S, started
from tests.spools import read_spool

# A process that holds 512 MiB of the first GPU and writes them again and again, through the driver's own interface.
BUSY_ON_A_GPU = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
size = ctypes.c_size_t(512 * 1024**2)
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), size)
print("ready", flush=True)
while True:
    for _ in range(1000):
        call("cuMemsetD8_v2", memory, ctypes.c_ubyte(1), size)
    call("cuCtxSynchronize")
"""


@pytest.fixture
def real_nvml() -> Iterator[Nvml]:
    try:
        nvml = Nvml()
    except NvmlFault as fault:
        pytest.skip(f"needs an NVIDIA GPU: {fault.reason}")
    yield nvml
    nvml.close()


def test_the_real_nvml_answers_like_its_stand_ins(real_nvml: Nvml) -> None:
    devices = [device for gpu in range(real_nvml.count()) for device in real_nvml.devices_of(gpu)]
    assert devices
    for device in devices:
        load = real_nvml.load(device, memory=True)
        assert load.mem_mib >= 0.0
        assert device.instance >= 0 or (load.util_pct is not None and 0 <= load.util_pct <= 100)
        assert load.power_w is None or 0 < load.power_w < 10_000
        assert all(process.pid > 0 for process in real_nvml.processes(device))
        assert all(0 <= share <= 100 for share in (real_nvml.process_util_pct(device) or {}).values())


def test_on_a_real_gpu_the_collector_sees_what_a_process_does(real_nvml: Nvml, tmp_path: Path) -> None:
    if real_nvml.devices_of(0)[0].instance >= 0:
        pytest.skip("the first GPU is parted (MIG)")
    named = {**os.environ, "SLURM_JOB_ID": "43"}
    with subprocess.Popen([sys.executable, "-c", BUSY_ON_A_GPU], env=named, stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None
            assert busy.stdout.readline() == b"ready\n"
            process = started(tmp_path, dict(os.environ), "--job", "43", "--node", "n5")
            time.sleep(8.0)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            busy.kill()
    use, *others = (one for one in read_spool(tmp_path / "spool")[0] if one.gpu == 0)
    assert others == []
    assert (use.job_id, use.instance, use.node) == (43, -1, "n5")
    assert 512 <= use.mem_max_mib < 2048
    assert use.util_max_pct is not None
    assert use.util_max_pct > 10
    assert use.power_mean_w is not None
    assert use.power_mean_w > 20
