"""Trees fitted on Dask workers: as good as those fitted locally, by the same weights and bounds; or a clear error."""

import logging
import os
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from accounting.errors import ModelError
from models.demand.features import FEATURES
from models.past.columns import columns_of_attempts
from models.training.matrix import Matrix
from models.training.quantile import QUANTILE, RAISED_AFTER, ROUNDS, fit_quantile, predict
from models.training.training import train_columns
from tests.builders import past

pytest.importorskip("distributed", reason="the extra `dask` is not installed")

from distributed import Client, LocalCluster

from bench.dask_engine import covered, drawn, loss
from models.training.dask_engine import dask_fit, stretches

pytestmark = pytest.mark.slow

JOBS, FRESH = 4000, 20_000


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers, each in a process of its own."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("cut_off", [False, True])
def test_trees_from_workers_are_as_good_as_those_of_the_local_engine(client: Client, cut_off: bool) -> None:
    matrix, _ = drawn(JOBS, 1, cut_off=cut_off)
    fresh, need = drawn(FRESH, 2, cut_off=False)
    weights = np.random.default_rng(3).random(JOBS)
    here, there = fit_quantile(matrix, weights), dask_fit(client)(matrix, weights)
    assert there.num_boosted_rounds() == ROUNDS
    assert there.feature_names == list(FEATURES)
    assert loss(there, fresh, need) == pytest.approx(loss(here, fresh, need), rel=0.03)
    assert covered(there, fresh, need) == pytest.approx(covered(here, fresh, need), abs=0.01)
    if cut_off:
        plain = Matrix(matrix.inputs, matrix.targets, matrix.settled, np.zeros_like(matrix.bounded))
        as_values = fit_quantile(plain, weights)
        assert covered(as_values, fresh, need) + 0.01 < covered(there, fresh, need) < QUANTILE + 0.01


def test_weights_reach_the_workers(client: Client) -> None:
    matrix, _ = drawn(JOBS, 6, cut_off=False)
    high = np.random.default_rng(7).random(JOBS) < 0.2
    matrix.targets[high] += 5.0
    light = dask_fit(client)(matrix, np.where(high, 1e-6, 1.0))
    even = dask_fit(client)(matrix, np.ones(JOBS))
    assert float(np.median(predict(light, matrix.inputs))) < 3.0
    assert float(np.median(predict(even, matrix.inputs))) > 4.0


def test_the_same_rows_give_the_same_trees_again(client: Client) -> None:
    matrix, _ = drawn(JOBS, 8, cut_off=False)
    first, second = (dask_fit(client)(matrix, np.ones(JOBS)) for _ in range(2))
    assert first.save_raw("ubj") == second.save_raw("ubj")


def test_few_rows_are_not_spread_over_workers(client: Client) -> None:
    matrix, _ = drawn(900, 9, cut_off=False)
    here, there = fit_quantile(matrix, np.ones(900)), dask_fit(client)(matrix, np.ones(900))
    np.testing.assert_allclose(predict(there, matrix.inputs), predict(here, matrix.inputs), atol=1e-6)


def test_everything_else_of_training_is_shared_with_the_local_engine(client: Client) -> None:
    columns = columns_of_attempts(past(240))
    here, there = train_columns(columns, 50), train_columns(columns, 50, dask_fit(client))
    assert there.seen == here.seen
    assert list(there.history.items()) == list(here.history.items())
    assert there.fitted.keys() == here.fitted.keys()
    for dimension, fitted in there.fitted.items():
        assert fitted.known.rows == here.fitted[dimension].known.rows
        assert fitted.known.calibrated_on == here.fitted[dimension].known.calibrated_on


def test_labels_change_after_the_same_rounds_as_in_the_local_engine() -> None:
    assert list(stretches(bounded=False)) == [(0, ROUNDS)]
    bounded = list(stretches(bounded=True))
    assert [until for _, until in bounded] == [*RAISED_AFTER, ROUNDS]
    assert [done for done, _ in bounded] == [0, *RAISED_AFTER]


@pytest.mark.parametrize("after_s", [0.0, 1.0], ids=["as rows are sent", "as trees grow"])
def test_a_lost_worker_is_an_error_and_is_not_waited_for(after_s: float) -> None:
    matrix, _ = drawn(JOBS, 10, cut_off=True)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
        ) as cluster,
        Client(cluster) as client,
    ):
        fit = dask_fit(client)
        victim = next(iter(client.run(os.getpid).values()))
        killed = threading.Timer(after_s, os.kill, (victim, signal.SIGKILL))
        killed.start()
        with pytest.raises(ModelError, match=r"1 of 2 Dask workers were lost .* the current model stays"):
            fit(matrix, np.ones(len(matrix)))
        killed.join()


def test_no_worker_at_all_is_an_error() -> None:
    with (
        LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", processes=False) as cluster,
        Client(cluster) as client,
        pytest.raises(ModelError, match="there is no worker to train on"),
    ):
        dask_fit(client)
