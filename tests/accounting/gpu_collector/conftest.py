"""A host without jobs, whose GPUs are stand-ins."""

import sys
from pathlib import Path

import pytest

from tests.accounting.fake_gpus import FakeGpu, FakePynvml
from tests.accounting.gpu_collector.node import Node


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    fake = FakePynvml([FakeGpu(f"GPU-{number}") for number in range(4)])
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    (tmp_path / "proc").mkdir()
    return Node(tmp_path, fake)
