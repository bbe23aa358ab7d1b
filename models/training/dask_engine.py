"""An engine for rows that are too many for one machine: XGBoost's own Dask interface, on a client's workers.

It knows nothing of Slurm and starts no worker. Each worker holds every n-th row, so that all see similar jobs: as the
value of a leaf, XGBoost takes the mean of the quantiles that the workers find (docs/decisions/0026).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import dask.array
import msgspec
import numpy as np
import xgboost
import xgboost.dask
from distributed import Client, Future
from distributed.scheduler import KilledWorker, NoValidWorkerError

from accounting.errors import ModelError
from accounting.frames import Floats
from models.demand.features import FEATURES
from models.training.matrix import Inputs, Matrix
from models.training.quantile import (
    RAISED_AFTER,
    ROUNDS,
    SEED,
    Fit,
    predict,
    raised,
    settings_of,
    threads_for,
)

# A worker gets at least this many rows: with fewer, the mean of quantiles is too far from the quantile of all.
LEAST_ROWS = 1000
# How often to check whether all workers are still there.
LOOK_S = 1.0
# How many more times to check after something broke: a stream to a lost worker may break before the scheduler knows.
LAST_LOOKS = 5
BROKEN = (
    RuntimeError,
    OSError,
    xgboost.core.XGBoostError,
    KilledWorker,
    NoValidWorkerError,
    asyncio.CancelledError,
    concurrent.futures.CancelledError,
)


class Rows(msgspec.Struct):
    """What one worker holds: rows, and the weight of each."""

    matrix: Matrix
    weights: Floats


class Part(msgspec.Struct, frozen=True):
    """Where a part of the rows is: on which worker, how many rows, and the future of them as Rows."""

    worker: str
    count: int
    rows: Future


def dask_fit(client: Client, least_rows: int = LEAST_ROWS) -> Fit:
    """Return the engine that fits on all workers that a client has now, or on as many as get `least_rows` each.

    The engine raises ModelError if a worker is lost, or if XGBoost fails on one; nothing is tried again.
    """
    workers = workers_of(client)

    def fit(matrix: Matrix, weights: Floats) -> xgboost.Booster:
        used = workers[: max(1, len(matrix) // least_rows)]
        booster: xgboost.Booster = client.sync(_watched, client, used, matrix, weights)
        booster.set_param({"nthread": threads_for(len(matrix))})
        return booster

    return fit


def workers_of(client: Client) -> tuple[str, ...]:
    """Return the addresses of a client's workers, ordered by name: in the same order in every training."""
    named = client.run_on_scheduler(_named_workers)
    if not named:
        raise ModelError("there is no worker to train on; start one, or train with --engine local")
    return tuple(address for _, address in sorted(named))


def _named_workers(dask_scheduler: Any) -> list[tuple[str, str]]:  # noqa: ANN401 -- by this name Dask hands it over, untyped
    return [(str(state.name), address) for address, state in dask_scheduler.workers.items()]


async def _watched(
    client: Client, workers: Sequence[str], matrix: Matrix, weights: Floats
) -> xgboost.Booster:
    """Fit, but do not wait for a worker that is gone, as Dask itself would for ever."""
    task = asyncio.ensure_future(fit_on(client, workers, matrix, weights))
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=LOOK_S)
            await _refuse_lost(client, workers)
        return await task
    except BROKEN as error:
        for _ in range(LAST_LOOKS):
            await _refuse_lost(client, workers)
            await asyncio.sleep(LOOK_S)
        said = (str(error).strip().splitlines() or [repr(error)])[-1]
        raise ModelError(f"XGBoost failed on a Dask worker: {said}; no model was made") from error
    finally:
        task.cancel()


async def _refuse_lost(client: Client, workers: Sequence[str]) -> None:
    there = {address for _, address in await client.run_on_scheduler(_named_workers)}
    lost = [worker for worker in workers if worker not in there]
    if lost:
        raise ModelError(
            f"{len(lost)} of {len(workers)} Dask workers were lost during training ({lost[0]}), by "
            "their memory or time limit or with their node; the current model stays. Give them more, "
            "and train again"
        )


async def fit_on(client: Client, workers: Sequence[str], matrix: Matrix, weights: Floats) -> xgboost.Booster:
    """Fit on workers what `fit_quantile` fits here: rows by weight, bounds raised after the same rounds."""
    parts = [
        await _send(client, worker, matrix, weights, slice(place, None, len(workers)))
        for place, worker in enumerate(workers)
    ]
    inputs, weighed = (
        _column(client, parts, _inputs, width=(len(FEATURES),)),
        _column(client, parts, _weights),
    )
    booster: Any = None
    for done, until in stretches(bool(matrix.bounded.any())):
        labels = _column(client, parts, _labels, booster)
        rows = await xgboost.dask.DaskDMatrix(
            client, inputs, label=labels, weight=weighed, feature_names=list(FEATURES)
        )
        # Each stretch begins with fresh random numbers: they must differ from those of the stretch before it.
        settings = {**settings_of(matrix), "seed": SEED + done}
        answer = await xgboost.dask.train(
            client, settings, rows, until - done, xgb_model=booster, verbose_eval=False
        )
        booster = answer["booster"]
    trees: xgboost.Booster = booster
    return trees


def stretches(bounded: bool) -> Iterable[tuple[int, int]]:
    """Return the stretches of rounds (first, end) in which labels stay as they are; one if no row is a bound."""
    return pairwise((0, *RAISED_AFTER, ROUNDS) if bounded else (0, ROUNDS))


async def _send(client: Client, worker: str, matrix: Matrix, weights: Floats, mine: slice) -> Part:
    """Send some of the rows to a worker, without the columns that only the whole needs."""
    none = np.zeros(0, np.int64)
    part = msgspec.structs.replace(matrix.part(mine), users=none, submit_s=none, names=())
    rows = await client.scatter(Rows(part, weights[mine]), workers=[worker], direct=True, hash=False)
    return Part(worker, len(part), rows)


def _column(
    client: Client,
    parts: Sequence[Part],
    of: Callable[..., Inputs],
    *given: object,
    width: tuple[int, ...] = (),
) -> dask.array.Array:
    """Return what a function makes of each part, on the part's worker, as one Dask array."""
    futures = [client.submit(of, part.rows, *given, workers=[part.worker], pure=False) for part in parts]
    blocks = [
        dask.array.from_delayed(future, shape=(part.count, *width), dtype=np.float32)
        for future, part in zip(futures, parts, strict=True)
    ]
    return dask.array.concatenate(blocks)


def _inputs(rows: Rows) -> Inputs:
    return rows.matrix.inputs


def _weights(rows: Rows) -> Inputs:
    return rows.weights.astype(np.float32)


def _labels(rows: Rows, booster: xgboost.Booster | None) -> Inputs:
    """Return the targets, with bounds raised to what the trees so far say of their rows."""
    matrix = rows.matrix
    targets = matrix.targets if booster is None else raised(matrix, predict(booster, matrix.inputs))
    return targets.astype(np.float32)
