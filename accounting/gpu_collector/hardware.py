"""What the kernel knows of NVIDIA's GPUs without NVML: whether there is one, and whether its driver is loaded yet."""

from __future__ import annotations

from pathlib import Path

PCI = Path("/sys/bus/pci/devices")
CHARACTER_DEVICES = Path("/proc/devices")
NVIDIA = "0x10de"
# VGA and 3D controllers; NVSwitches are bridges.
DISPLAYS = ("0x0300", "0x0302")


def has_nvidia_gpu() -> bool:
    """Tell whether the PCI bus has one, with a driver or without."""
    return any(
        _text(device / "vendor").strip() == NVIDIA and _text(device / "class").startswith(DISPLAYS)
        for device in PCI.glob("*")
    )


def is_driver_loaded() -> bool:
    """Tell whether the kernel has NVIDIA's character devices."""
    names = (line.split()[-1:] for line in _text(CHARACTER_DEVICES).splitlines())
    return any(name in (["nvidia"], ["nvidia-frontend"]) for name in names)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""  # a device that was taken out meanwhile
