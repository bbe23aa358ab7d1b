"""Whether the benchmark of GPU sharing runs its ways on the same load, and the pairing ahead of its peers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy
import pytest

from bench.gpu_sharing import (
    BOUND,
    EXCLUSIVE,
    GPUS,
    NOTHING,
    OURS,
    PACKING,
    best,
    figures_of,
    simulated,
    ways,
)
from bench.gpu_sharing_load import Measured, drawn_load, measured, philly
from bench.gpu_sharing_peers import Exclusive

TRACES = os.environ.get("RIGHTSIZER_TRACES", "")
# Two kinds that hardly feel each other, and each of which halves its like.
TABLE = Measured(kinds=("a", "b"), speed=numpy.array([[0.5, 0.9], [0.9, 0.5]]))


def made_up(number: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    draw = numpy.random.default_rng(1)
    return draw.exponential(100, number).cumsum(), draw.exponential(3600, number)


def test_a_load_asks_for_as_much_work_as_it_says() -> None:
    load = drawn_load(made_up(500), 400, 2, 1 / (GPUS * 1.1), 3)
    asked = load.alone_s.sum() / (load.submit_s[-1] * GPUS)
    assert asked == pytest.approx(1.1)
    assert set(load.kind.tolist()) == {0, 1}


def test_who_fits_well_is_put_together_and_who_knows_nothing_finds_out() -> None:
    load = drawn_load(made_up(700), 600, 2, 1 / (GPUS * 1.4), 3)
    mean_h = {name: float(figures_of(load, TABLE, make())[0]) for name, make in ways(TABLE, load, 3).items()}
    assert mean_h[BOUND] <= mean_h[NOTHING] <= 1.1 * mean_h[BOUND]
    assert all(mean_h[NOTHING] < mean_h[name] for name in (*EXCLUSIVE, *PACKING))
    alone = figures_of(load, TABLE, Exclusive())
    assert (alone[4], alone[5], alone[6]) == (pytest.approx(1), 0, 0)


@pytest.mark.skipif(not TRACES, reason="the public traces are not here: set RIGHTSIZER_TRACES")
def test_on_measured_pairs_it_ends_a_fifth_sooner_than_without_sharing() -> None:
    traces = Path(TRACES)
    ran = simulated(measured(traces, "v100"), philly(traces), [1.1], range(1))
    ours = float(ran[1.1, OURS][:, 0].mean())
    assert ours <= 0.8 * float(best(ran, 1.1, EXCLUSIVE).mean())
    assert ours <= float(best(ran, 1.1, PACKING).mean())
