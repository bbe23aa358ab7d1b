"""A module with pynvml's functions and errors, for GPUs that a test makes, breaks and repairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml

MIB = 1024**2


@dataclass
class FakeGpu:
    """One GPU. `processes` are (pid, MiB or None); `broken` is an NVML error that every call for it raises.

    `fails` maps calls to errors, of which `lacks` lists the calls with the most common one. `instances` are keyed by
    GPU instance plus 100 times the compute instance; None where the GPU is not in MIG mode.
    """

    uuid: str
    processes: list[tuple[int, int | None]] = field(default_factory=list)
    util_pct: int = 0
    used_mib: int = 0
    power_w: float = 60.0
    broken: int | None = None
    process_util_pct: dict[int, int] = field(default_factory=dict)
    instances: dict[int, FakeGpu] | None = None
    lacks: frozenset[str] = frozenset()
    fails: dict[str, int] = field(default_factory=dict)


class FakePynvml(ModuleType):
    """The functions for GPUs are fakes; everything else is the real pynvml: its errors, its constants."""

    def __init__(self, gpus: list[FakeGpu]) -> None:
        super().__init__("pynvml")
        self.gpus = gpus
        self.open = False
        self.driver: int | None = None
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("nvmlDevice", "nvmlInit", "nvmlSystem")):
            raise AssertionError(f"the fake has no {name}")
        return getattr(pynvml, name)

    def _check(self, name: str, gpu: FakeGpu | None = None) -> None:
        self.calls.append(name)
        if self.driver is not None:
            raise pynvml.NVMLError(self.driver)
        if not self.open:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        if gpu is not None and gpu.broken is not None:
            raise pynvml.NVMLError(gpu.broken)
        if gpu is not None and name in gpu.fails:
            raise pynvml.NVMLError(gpu.fails[name])
        if gpu is not None and name in gpu.lacks:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlInit(self) -> None:  # noqa: N802
        self.open = True
        self._check("init")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self._check("shutdown")
        self.open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._check("count")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        self._check("handle", self.gpus[index])
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:  # noqa: N802
        self._check("uuid", gpu)
        return gpu.uuid

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:  # noqa: N802
        self._check("mig", gpu)
        if gpu.instances is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [pynvml.NVML_DEVICE_MIG_ENABLE] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:  # noqa: N802
        self._check("max", gpu)
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> FakeGpu:  # noqa: N802
        self._check("mig_handle", gpu)
        found = list((gpu.instances or {}).values())
        if index >= len(found):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return found[index]

    def nvmlDeviceGetGpuInstanceId(self, instance: FakeGpu) -> int:  # noqa: N802
        self._check("instance", instance)
        return self._number(instance) % 100

    def nvmlDeviceGetComputeInstanceId(self, instance: FakeGpu) -> int:  # noqa: N802
        self._check("compute_instance", instance)
        return self._number(instance) // 100

    def _number(self, instance: FakeGpu) -> int:
        return next(
            number for gpu in self.gpus for number, one in (gpu.instances or {}).items() if one is instance
        )

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:  # noqa: N802
        self._check("util", gpu)
        return SimpleNamespace(gpu=gpu.util_pct, memory=0)

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:  # noqa: N802
        self._check("power", gpu)
        return int(gpu.power_w * 1000)

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu, version: int | None = None) -> SimpleNamespace:  # noqa: N802
        self._check("memory_v2" if version else "memory", gpu)
        return SimpleNamespace(used=gpu.used_mib * MIB + (0 if version else 500 * MIB))

    def nvmlDeviceGetProcessUtilization(self, gpu: FakeGpu, since_us: int) -> list[SimpleNamespace]:  # noqa: N802
        self._check("process_util", gpu)
        if not gpu.process_util_pct:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return [
            SimpleNamespace(pid=pid, timeStamp=since_us + 1, smUtil=util_pct)
            for pid, util_pct in gpu.process_util_pct.items()
        ]

    def _processes(self, name: str) -> Callable[[FakeGpu], list[SimpleNamespace]]:
        def processes(gpu: FakeGpu) -> list[SimpleNamespace]:
            self._check(name, gpu)
            return [
                SimpleNamespace(pid=pid, usedGpuMemory=None if mib is None else mib * MIB)
                for pid, mib in (gpu.processes if "compute" in name else [])
            ]

        processes.__name__ = name
        return processes

    @property
    def nvmlDeviceGetComputeRunningProcesses_v3(self) -> Any:  # noqa: N802
        return self._processes("compute_v3")

    @property
    def nvmlDeviceGetComputeRunningProcesses_v2(self) -> Any:  # noqa: N802
        return self._processes("compute_v2")

    @property
    def nvmlDeviceGetGraphicsRunningProcesses_v3(self) -> Any:  # noqa: N802
        return self._processes("graphics_v3")

    @property
    def nvmlDeviceGetGraphicsRunningProcesses_v2(self) -> Any:  # noqa: N802
        return self._processes("graphics_v2")
