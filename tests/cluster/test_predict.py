"""`rightsizer predict` says beforehand what sbatch then gets: same script, same options, same environment."""

import json
import os
import pwd
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from slurm_plugin.sandbox.cluster import Sandbox
from tests.cluster.conftest import PATIENCE_S
from tests.cluster.matrix.form import Form, form
from tests.cluster.matrix.prefixes import chosen_prefix
from tests.cluster.matrix.release import Cell, Trial, environment, job_name, trained_cluster
from tests.cluster.matrix.table import FORMS, SHAPE

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

USER = pwd.getpwuid(os.geteuid()).pw_name
# A QOS with a minimum, named in the request, or the default in one of the user's two accounts.
COMMANDS = (
    ("sacctmgr", "--immediate", "add", "qos", "large", "MinTRESPerJob=cpu=5,gres/gpu=2"),
    ("sacctmgr", "--immediate", "add", "account", "strict"),
    ("sacctmgr", "--immediate", "add", "user", USER, "account=demo"),
    (
        "sacctmgr",
        "--immediate",
        "add",
        "user",
        USER,
        "account=strict",
        "qos=normal,large",
        "defaultqos=large",
    ),
)
SITE = (
    # Five CPUs at least, rounded up to whole cores if those have two threads.
    form("qos", "--qos=large -c 8 --mem=8000", cpu=5, mem=256),
    form("qos-threads", "-p smt --qos=large -c 8 --mem=8000", cpu=6, mem=256),
    form("qos-tasks", "--qos=large -n 2 -c 8 --mem=8000", cpu=6, mem=256, tasks=2),
    form("qos-gpus", "--qos=large -c 8 --mem=8000 --gres=gpu:4", cpu=5, mem=256, gpu=2),
    form("qos-environment", "-c 8 --mem=8000", SBATCH_QOS="large", cpu=5, mem=256),
    form("default-qos", "-A strict -c 8 --mem=8000", cpu=5, mem=256),
    form("default-account", "-c 8 --mem=8000", cpu=2, mem=256),
    form("smt-odd", "-p smt -c 3 --mem=8000", cpu=2, mem=256),
    form("maxmem-needed", "-p maxmem -c 16 --mem=16000", cpu=8, used_mib=15500),
    *(
        form(hint, f"-p smt --hint={hint} -c 4 --mem=8000", mem=256)
        for hint in ("compute_bound", "memory_bound")
    ),
    form("multithread", "-p smt --hint=multithread -c 4 --mem=8000", cpu=2, mem=256),
    form("environment-multithread", "-p smt -c 4 --mem=8000", SBATCH_HINT="multithread", cpu=2, mem=256),
    form("odd-unit", "--mem=8000001K", mem=256),
)
OF_TABLE = (
    "cpus", "tasks-cpus", "nodes-cpus", "node-range", "per-node-tasks", "mincpus", "overcommit", "threads", "hint",
    "mem-per-cpu", "tasks-mem-per-cpu", "mem-per-gpu-task", "mem-zero-gpus", "gres-several", "gres-two-types", "gpus",
    "gpus-per-task", "nodes-gpus", "cpus-per-gpu", "directives-gpus", "environment-per-cpu", "environment-gpus",
    "environment-hint", "array-gpus", "partitions", "def-mem-per-cpu", "def-mem-per-node", "max-mem-per-cpu",
    "het-directives", "exclusive-gpus", "exclusive",
)  # fmt: skip
PREDICTED = (*(one for one in FORMS if one.name in OF_TABLE), *SITE)
WORDS = {"memory (MiB)": "mem", "CPUs": "cpu", "GPUs": "gres/gpu"}


@dataclass(frozen=True)
class Prediction:
    """The output of predict: its rows by resource, and its last line."""

    rows: dict[str, dict[str, Any]]
    said: str


@dataclass(frozen=True)
class Both:
    """What was predicted for each form, by name, and what Slurm then allocated."""

    predictions: dict[str, Prediction]
    cells: dict[str, Cell]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("predict")
    for parent in (folder, folder.parent, folder.parent.parent):
        parent.chmod(0o755)
    with trained_cluster(folder / "matrix", chosen_prefix(), PREDICTED, SHAPE, COMMANDS) as sandbox:
        trial = Trial(sandbox, PREDICTED, folder)
        predictions = {one.name: predict(sandbox, trial, one) for one in PREDICTED}
        trial.submit()
        yield Both(predictions, {cell.form.name: cell for cell in trial.collect()})


def predict(sandbox: Sandbox, trial: Trial, one: Form) -> Prediction:
    """Ask predict about exactly the command line that sbatch will be given."""
    _, *options, script = trial.argv(one, job_name(one, twin=False), twin=False)
    answer = subprocess.run(
        ["rightsizer", "predict", "--format", "json", script, *options],
        env=environment(sandbox, one.environment),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=PATIENCE_S,
    )
    assert answer.returncode == 0, answer.stderr
    rows = {row["resource"]: row for row in json.loads(answer.stdout)}
    return Prediction(rows, answer.stderr.strip().splitlines()[-1])


@pytest.mark.parametrize("one", PREDICTED, ids=lambda one: one.name)
def test_the_allocation_is_the_predicted_one(both: Both, one: Form) -> None:
    cell, prediction = both.cells[one.name], both.predictions[one.name]
    assert not cell.problem
    for ours, twin in zip(cell.ours.allocations, cell.twin.allocations, strict=True):
        rows = {word: prediction.rows[name] for name, word in WORDS.items() if name in prediction.rows}
        cut = {word: row["granted"] for word, row in rows.items() if row["granted"] != row["requested"]}
        planned = {**twin, **follows(one, cut, twin)}
        # What is not cut is the request, or what Slurm itself makes of it, as for the twin.
        as_asked = {word: row["requested"] for word, row in rows.items() if word not in cut}
        assert all(ours[word] in (planned[word], as_asked.get(word)) for word in planned), (ours, planned)
    is_cut = cell.ours.allocations != cell.twin.allocations
    assert ("sbatch would queue the job as granted" in prediction.said) == is_cut, prediction.said


def follows(one: Form, cut: dict[str, int], twin: dict[str, int]) -> dict[str, int]:
    """Return the cut and what follows from it: the memory of a job that asks only for CPUs."""
    if "cpu" in cut and "mem" not in cut and "mem" not in one.asks and "MEM" not in " ".join(one.environment):
        return {**cut, "mem": twin["mem"] * cut["cpu"] // twin["cpu"]} if "pernode" not in one.asks else cut
    return cut


def test_predict_gives_the_same_reason_as_the_journal(both: Both) -> None:
    assert "opted-out" not in " ".join(one.said for one in both.predictions.values())
    reasons = {name: one.said.split(";")[0] for name, one in both.predictions.items()}
    assert reasons["het-directives"] == "decision: form-not-handled:het_job"
    assert reasons["exclusive"] == "decision: form-not-handled:exclusive"
