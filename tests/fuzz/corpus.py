"""What the seeds are made of: the captured output and the golden frames against which the other tests run."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

CONTRACT = Path(__file__).resolve().parents[1] / "contract"
# Inputs that were once a fault, in a folder for each target.
FOUND = Path(__file__).resolve().parent / "found"


def captured(pattern: str) -> list[bytes]:
    """Return files of tests/contract."""
    return [file.read_bytes() for file in sorted(CONTRACT.glob(pattern))]


@cache
def frames() -> dict[str, Any]:
    """Return the golden frames of the wire."""
    made: dict[str, Any] = json.loads((CONTRACT / "wire_v1.json").read_text(encoding="utf-8"))
    return made


def found(name: str) -> list[bytes]:
    """Return the inputs that were once a fault of a target."""
    return [file.read_bytes() for file in sorted((FOUND / name).glob("*"))]


def text_of(data: bytes) -> str:
    """Return bytes decoded as this project decodes commands' output."""
    return data.decode("utf-8", errors="replace")


_kept: list[tempfile.TemporaryDirectory[str]] = []


@cache
def scratch(purpose: str) -> Path:
    """Return a folder of this process, for one purpose."""
    _kept.append(tempfile.TemporaryDirectory(prefix=f"rightsizer-{purpose}-"))
    return Path(_kept[-1].name)
