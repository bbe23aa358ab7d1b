"""What the kernel knows about NVIDIA's GPUs without NVML: whether there is one, and whether its driver is loaded."""

from __future__ import annotations

from pathlib import Path

PCI = Path("/sys/bus/pci/devices")
CHARACTER_DEVICES = Path("/proc/devices")
NVIDIA = "0x10de"
# VGA and 3D controllers; NVSwitches are bridges.
DISPLAYS = ("0x0300", "0x0302")


def has_nvidia_gpu() -> bool:
    """Return whether the PCI bus has one, with or without a driver."""
    return any(
        _text(device / "vendor").strip() == NVIDIA and _text(device / "class").startswith(DISPLAYS)
        for device in PCI.glob("*")
    )


def is_driver_loaded() -> bool:
    """Return whether the kernel has NVIDIA's character devices."""
    names = (line.split()[-1:] for line in _text(CHARACTER_DEVICES).splitlines())
    return any(name in (["nvidia"], ["nvidia-frontend"]) for name in names)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""  # a device that was removed meanwhile
