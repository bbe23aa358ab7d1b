"""Compiles the stand-in for NVML, for machines without a GPU: pynvml then loads it in place of the driver's library."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
LIBRARY = "libnvidia-ml.so.1"


def build(folder: Path) -> Path | None:
    """Compile it into a folder and return the folder; None if there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    command = [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", str(folder / LIBRARY), str(SOURCE)]
    subprocess.run(command, check=True)
    return folder


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """Return the environment in which pynvml finds it; `settings` are its variables, such as `gpus="8"`."""
    named = {f"NVML_STAND_IN_{name.upper()}": text for name, text in settings.items()}
    path = f"{folder}:{os.environ['LD_LIBRARY_PATH']}" if os.environ.get("LD_LIBRARY_PATH") else str(folder)
    return {**os.environ, "LD_LIBRARY_PATH": path, **named}
