"""`rightsizer train --engine dask` on the private Slurm: workers are jobs, the model is as good, nothing is left."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from accounting.store.bulk import upsert_attempts
from accounting.store.database import open_store, writing
from bench import site_rows
from slurm_plugin.config.file import render_config
from slurm_plugin.config.settings import Config, Models, Store, Train, TrainDask
from tests.cluster.conftest import PATIENCE_S, Shell
from tests.waiting import wait_until

pytest.importorskip("distributed", reason="the extra `dask` is not installed")

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

JOBS, WORKERS, MEMORY_MIB = 4000, 2, 1500
# Time enough for a busy machine to submit all of them.
HELD_S = 10


@pytest.fixture(scope="module")
def config(make_folder: Callable[[], Path]) -> Config:
    """Return the configuration of a site with a past, and without a model."""
    folder = make_folder()
    dask = TrainDask(
        workers=WORKERS,
        cores=1,
        memory_mib=MEMORY_MIB,
        start_timeout_s=300,
        partition="main",
        shared_directory=str(folder),
    )
    made = Config(
        store=Store(url=f"sqlite:///{folder}/store.db"),
        models=Models(directory=str(folder / "models")),
        train=Train(dask=dask),
    )
    engine = open_store(made.store.url, create=True)
    with writing(engine) as connection:
        upsert_attempts(connection, *site_history())
    engine.dispose()
    return made


def site_history() -> tuple[pa.Table, pa.Table]:
    """Return jobs that reached no time limit: then memory has the fourteen stretches that bounds take."""
    attempts, steps = site_rows.chunk(0, JOBS)
    ended = pc.replace_substring(attempts["outcome"], "timeout", "completed")
    return attempts.set_column(attempts.schema.get_field_index("outcome"), "outcome", ended), steps


def write(config: Config, name: str, **dask: Any) -> str:
    """Write a configuration that differs in the settings of the workers, and return its file."""
    train = Train(dask=msgspec.structs.replace(config.train.dask, **dask))
    file = Path(config.train.dask.shared_directory) / f"{name}.toml"
    file.write_text(render_config(msgspec.structs.replace(config, train=train)), encoding="utf-8")
    return str(file)


def jobs_of(shell: Shell, said: str) -> list[list[str]]:
    """Return sacct's rows of the workers that the command named."""
    name = re.search(r"rightsizer-dask-[0-9a-f]+", said)
    assert name is not None, said
    fields = "JobID,State,AllocTRES,Comment"
    argv = ("sacct", "--allocations", "--noheader", "--parsable2", f"--name={name[0]}", f"--format={fields}")
    rows = [line.split("|") for line in shell.run(*argv).splitlines()]
    for job, *_ in rows:
        shell.wait_ended(int(job))
    assert shell.run("squeue", "--noheader", "--states=PENDING,RUNNING", f"--name={name[0]}").strip() == ""
    return [line.split("|") for line in shell.run(*argv).splitlines()]


def models_of(shell: Shell, file: str) -> dict[str, Any]:
    rows = json.loads(shell.run("rightsizer", "models", "--format", "json", "--config", file))
    return {row["version"]: row for row in rows}


def saved_shares(shell: Shell, file: str, version: str) -> dict[str, float]:
    """Return the share of the request that the gate found a model to save, by dimension."""
    card = json.loads(shell.run("rightsizer", "models", version, "--format", "json", "--config", file))
    return {
        one["dimension"]: 1 - one["new"]["granted"] / one["new"]["requested"]
        for one in card["verdict"]["comparisons"]
    }


def test_the_workers_are_jobs_and_the_model_is_as_good_as_a_local_one(shell: Shell, config: Config) -> None:
    file = write(config, "trained")
    here = shell.run("rightsizer", "train", "--promote", "never", "--config", file).strip()
    there, said = shell.run_both("rightsizer", "train", "--engine", "dask", "--config", file)
    version = there.strip()
    assert f"model {version} is current" in said
    jobs = jobs_of(shell, said)
    assert len(jobs) == WORKERS
    for _, _, allocated, comment in jobs:
        assert comment == "rightsize=off"
        assert {"cpu=1", f"mem={MEMORY_MIB}M"} <= set(allocated.split(","))
    found = models_of(shell, file)
    assert (found[version]["current"], found[version]["gate"]) == ("yes", "passed")
    assert found[version]["xgboost"] == found[here]["xgboost"] == "memory, cores, wall, gpu_mem"
    assert saved_shares(shell, file, version) == pytest.approx(saved_shares(shell, file, here), abs=0.02)


def test_training_ends_with_an_error_if_the_workers_do_not_start(shell: Shell, config: Config) -> None:
    file = write(config, "held", directives=("--hold",), start_timeout_s=HELD_S)
    before = models_of(shell, file)
    _, said = shell.run_both("rightsizer", "train", "--engine", "dask", "--config", file, code=1)
    assert f"did not all start within {HELD_S} s (0 of 2 are running)" in said
    assert said.count("PENDING JobHeldUser") == WORKERS
    assert all(state.startswith("CANCELLED") for _, state, *_ in jobs_of(shell, said))
    assert models_of(shell, file) == before


def test_an_interrupted_command_leaves_no_job(shell: Shell, config: Config) -> None:
    file = write(config, "interrupted", directives=("--hold",))
    command = subprocess.Popen(
        ["rightsizer", "train", "--engine", "dask", "--config", file],
        env={**os.environ, **shell.sandbox.environment()},
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    waiting = ("squeue", "--noheader", "--states=PENDING", "--format=%j")
    wait_until(lambda: shell.run(*waiting).count("rightsizer-dask") >= WORKERS)
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 1
    assert said.strip().endswith("Aborted!")
    assert all(state.startswith("CANCELLED") for _, state, *_ in jobs_of(shell, said))


def test_a_worker_request_that_sbatch_would_reject_is_reported_at_once(shell: Shell, config: Config) -> None:
    file = write(config, "refused", partition="nowhere")
    _, said = shell.run_both("rightsizer", "train", "--engine", "dask", "--config", file, code=1)
    assert re.search("cannot start Dask workers: .*[Ii]nvalid partition", said)
    assert said.count("\n") == 1
