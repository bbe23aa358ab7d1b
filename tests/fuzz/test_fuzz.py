"""The seeds of every fuzzing target, inputs that were once a fault, and a short run at random.

`make fuzz` runs a million inputs guided by coverage; RIGHTSIZER_FUZZ_INPUTS=100000 runs as many here, at random.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.__main__ import Told, row, shared_out
from tests.fuzz.corpus import FOUND
from tests.fuzz.guided import at_random
from tests.fuzz.mutate import mutated
from tests.fuzz.target import MOST_S, Target, Watch
from tests.fuzz.targets import TARGETS
from tests.fuzz.wire import known_jobs, service

INPUTS = int(os.environ.get("RIGHTSIZER_FUZZ_INPUTS", "1000"))
NAMES = [*TARGETS]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", NAMES)
def test_no_seed_is_a_fault(name: str) -> None:
    for seed in TARGETS[name].seeds():
        TARGETS[name].check(seed)


FAULTS = sorted(FOUND.glob("*/*"))


@pytest.mark.parametrize("file", FAULTS, ids=[f"{file.parent.name}-{file.name}" for file in FAULTS])
def test_a_former_fault_is_none_any_more(file: Path) -> None:
    watch = Watch(TARGETS[file.parent.name])
    watch.run(file.read_bytes())
    assert not watch.faults, [fault.why for alike in watch.faults.values() for fault in alike]


@pytest.mark.parametrize(
    ("name", "inputs"), [*zip(NAMES, shared_out(INPUTS, [*TARGETS.values()]), strict=True)], ids=NAMES
)
def test_random_damage_is_no_fault(name: str, inputs: int) -> None:
    target, draw = TARGETS[name], random.Random(20_26)
    watch, seeds = Watch(target), [*target.seeds()]
    for _ in range(inputs):
        watch.run(mutated(seeds, target.words, target.most_bytes, draw))
    assert not watch.faults, [fault.why for alike in watch.faults.values() for fault in alike]


def test_the_seeds_of_the_wire_reach_a_grant() -> None:
    before = service().granted
    for line in known_jobs():
        TARGETS["answers"].check(line)
    assert service().granted > before


def test_a_fault_is_kept_and_only_a_few_of_each_kind(tmp_path: Path) -> None:
    def check(data: bytes) -> None:
        if data.startswith(b"x"):
            raise KeyError(data)

    watch = Watch(Target("broken", check, lambda: [b"x"], share=1))
    for number in range(10):
        watch.run(b"x%d" % number)
        watch.run(b"y%d" % number)
    assert [len(alike) for alike in watch.faults.values()] == [2]
    watch.write(tmp_path)
    assert {b"x0", b"x1"} <= {file.read_bytes() for file in tmp_path.glob("*.bin")}
    assert any("KeyError" in file.read_text() for file in tmp_path.glob("*.txt"))
    assert watch.slowest_s < MOST_S


def test_a_line_of_the_table_has_its_columns() -> None:
    died = Told(target="sacct", inputs=5, slowest_s=0.0123, faults=("slow",), died="it ended", took_s=61.0)
    assert row(died).split() == ["sacct", "5", "-", "12", "ms", "2", "61", "s"]


def test_inputs_are_shared_out_by_weight() -> None:
    shares = shared_out(1_000_000, [*TARGETS.values()])
    assert sum(shares) == pytest.approx(1_000_000, rel=0.001)
    assert min(shared_out(1, [*TARGETS.values()])) == 1


def test_without_atheris_the_seeds_are_damaged_at_random(tmp_path: Path) -> None:
    assert at_random("tokens", 50, 1, tmp_path) == 0
    assert b'"inputs":50' in (tmp_path / "told.json").read_bytes()
