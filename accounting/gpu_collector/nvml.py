"""The only module that talks to NVML. pynvml is imported on use: only nodes with GPUs need it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from accounting.gpu_collector.attribution import GpuProcess, Load
from accounting.units import MIB_IN_BYTES

Value = TypeVar("Value")
# A GPU instance may be divided further, into compute instances, which Slurm allocates one by one. The first is
# numbered by the GPU instance's id alone (14 at most), each further one by so much more.
A_COMPUTE_INSTANCE = 100


class NvmlFault(Exception):  # noqa: N818  it is expected, and dealt with by whoever asked
    """NVML did not answer. `everywhere`: the fault is the driver's or the library's, not one GPU's.

    `stale`: the driver is not the one of the library that this process loaded; only a new process can fix that.
    """

    def __init__(self, reason: str, *, everywhere: bool = False, stale: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.everywhere = everywhere
        self.stale = stale


@dataclass(frozen=True)
class Device:
    """A whole GPU (`instance` -1) or one MIG instance of it; `parent` is NVML's handle of the whole GPU."""

    gpu: int
    instance: int
    uuid: str
    handle: Any
    parent: Any


class Nvml:
    """An open NVML. Every method raises NvmlFault if NVML does not answer."""

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError:
            raise NvmlFault("the Python package nvidia-ml-py is not installed", everywhere=True) from None
        self._pynvml = pynvml
        self._everywhere = {
            pynvml.NVML_ERROR_UNINITIALIZED,
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        }
        # Drivers before R510 lack the third version.
        self._lists = [
            [getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses_v{version}") for version in (3, 2)]
            for kind in ("Compute", "Graphics")
        ]
        # Which calls a GPU lacks does not change while NVML is open: they are not tried every second.
        self._missing: set[tuple[str, str]] = set()
        self._seen_until_us: dict[str, int] = {}
        self._call(pynvml.nvmlInit)

    def close(self) -> None:
        """Release the driver."""
        with contextlib.suppress(self._pynvml.NVMLError):  # it may be gone already
            self._pynvml.nvmlShutdown()

    def count(self) -> int:
        """Return the number of GPUs that NVML knows, including lost ones."""
        return int(self._call(self._pynvml.nvmlDeviceGetCount))

    def devices_of(self, gpu: int) -> list[Device]:
        """Return a GPU as a whole, or its MIG instances if it is in MIG mode."""
        handle = self._call(self._pynvml.nvmlDeviceGetHandleByIndex, gpu)
        modes = self._optional("", self._pynvml.nvmlDeviceGetMigMode, handle)
        if modes and modes[0] == self._pynvml.NVML_DEVICE_MIG_ENABLE:
            return list(self._instances(gpu, handle))
        return [Device(gpu, -1, self._uuid(handle), handle, handle)]

    def _instances(self, gpu: int, parent: Any) -> Iterator[Device]:  # noqa: ANN401
        for index in range(self._call(self._pynvml.nvmlDeviceGetMaxMigDeviceCount, parent)):
            try:
                handle = self._pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, index)
            except self._pynvml.NVMLError_NotFound:
                continue  # places of the profile without an instance
            except self._pynvml.NVMLError as error:
                raise self._fault(error) from None
            instance = int(self._call(self._pynvml.nvmlDeviceGetGpuInstanceId, handle))
            part = int(self._call(self._pynvml.nvmlDeviceGetComputeInstanceId, handle))
            yield Device(gpu, instance + part * A_COMPUTE_INSTANCE, self._uuid(handle), handle, parent)

    def processes(self, device: Device) -> list[GpuProcess]:
        """Return the processes that compute or draw on a device."""
        found: list[Any] = []
        for versions in self._lists:
            lists = (self._optional(device.uuid, version, device.handle) for version in versions)
            found += next((one for one in lists if one is not None), [])
        return [
            GpuProcess(int(one.pid), None if one.usedGpuMemory is None else one.usedGpuMemory / MIB_IN_BYTES)
            for one in found
        ]

    def load(self, device: Device, *, memory: bool) -> Load:
        """Return a device's load; its memory is read only if `memory` is true, else 0."""
        whole = device.instance < 0
        # NVML has neither of them for an instance.
        rates = (
            self._optional(device.uuid, self._pynvml.nvmlDeviceGetUtilizationRates, device.handle)
            if whole
            else None
        )
        power_mw = (
            self._optional(device.uuid, self._pynvml.nvmlDeviceGetPowerUsage, device.handle)
            if whole
            else None
        )
        return Load(
            util_pct=None if rates is None else float(rates.gpu),
            mem_mib=self._memory_mib(device) if memory else 0.0,
            power_w=None if power_mw is None else power_mw / 1000,
        )

    def _memory_mib(self, device: Device) -> float:
        # The second version leaves out memory reserved by the driver.
        version = self._pynvml.nvmlMemory_v2
        found = self._optional(device.uuid, self._pynvml.nvmlDeviceGetMemoryInfo, device.handle, version)
        if found is None:
            found = self._call(self._pynvml.nvmlDeviceGetMemoryInfo, device.handle)
        return float(found.used) / MIB_IN_BYTES

    def process_util_pct(self, device: Device) -> dict[int, float] | None:
        """Return the utilisation by each process that ran since the last call, in per cent; None if NVML has none."""
        since_us = self._seen_until_us.get(device.uuid, 0)
        found = self._optional(device.uuid, self._process_samples, device.handle, since_us)
        if found is None:
            return None
        latest: dict[int, tuple[int, float]] = {}
        for one in found:
            latest[one.pid] = max(latest.get(one.pid, (0, 0.0)), (one.timeStamp, float(one.smUtil)))
        self._seen_until_us[device.uuid] = max((stamp for stamp, _ in latest.values()), default=since_us)
        return {pid: min(100.0, util_pct) for pid, (_, util_pct) in latest.items()}

    def _process_samples(self, handle: Any, since_us: int) -> list[Any]:  # noqa: ANN401
        try:
            return list(self._pynvml.nvmlDeviceGetProcessUtilization(handle, since_us))
        except self._pynvml.NVMLError_NotFound:
            return []  # nothing ran since then

    def _uuid(self, handle: Any) -> str:  # noqa: ANN401
        found = self._call(self._pynvml.nvmlDeviceGetUUID, handle)
        return found.decode() if isinstance(found, bytes) else str(found)

    def _call(self, function: Callable[..., Value], *arguments: Any) -> Value:  # noqa: ANN401
        try:
            return function(*arguments)
        except self._pynvml.NVMLError as error:
            raise self._fault(error) from None

    def _optional(self, uuid: str, function: Callable[..., Value], *arguments: Any) -> Value | None:  # noqa: ANN401
        """Call a function that some GPUs, drivers or users lack; None if it is not available."""
        name = getattr(function, "__name__", "")
        if uuid and (uuid, name) in self._missing:
            return None
        try:
            return function(*arguments)
        except (
            self._pynvml.NVMLError_NotSupported,
            self._pynvml.NVMLError_NoPermission,
            self._pynvml.NVMLError_FunctionNotFound,
        ):
            self._missing.add((uuid, name))
            return None
        except self._pynvml.NVMLError as error:
            raise self._fault(error) from None

    def _fault(self, error: Any) -> NvmlFault:  # noqa: ANN401
        stale = error.value == self._pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
        return NvmlFault(str(error), everywhere=error.value in self._everywhere, stale=stale)
