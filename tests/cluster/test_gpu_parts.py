"""`rightsizer report gpu-parts` on a real Slurm: a job that hardly computes needs only a part of a GPU, and gets it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.cli.report.advised import ADVISED_JOBS
from slurm_plugin.sandbox.shape import NodeShape, Shape
from tests.cluster.conftest import Shell, unhooked_site
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ASKED = ("--cpus-per-task=1", "--mem=200", "--gres=gpu:h100:1", "--time=5")
# On a GPU of 80 GiB, with 6 GiB used: busy for two per cent of the time, and for nine tenths of it.
IDLES, COMPUTES = "simulate-gpu-use 1 2 6000\n", "simulate-gpu-use 1 90 6000\n"


def test_a_family_that_hardly_computes_is_advised_an_instance_and_runs_on_one(
    make_folder: Callable[[], Path],
) -> None:
    shape = Shape(
        nodes=(NodeShape(gpu_types=("h100", *["1g.10gb"] * 7)),),
        lines=("AccountingStorageTRES=gres/gpu,gres/gpu:1g.10gb",),
    )
    with unhooked_site(make_folder() / "site", nodes=1, shape=shape) as sandbox:
        shell = Shell(sandbox)
        jobs = [
            shell.submit(*ASKED, f"--job-name={name}", script=work)
            for name, work in (("serve", IDLES), ("train", COMPUTES))
            for _ in range(ADVISED_JOBS)
        ]
        for job in jobs:
            shell.wait_ended(job)
        told = dict[str, tuple[str, str]]()
        wait_until(lambda: told.update(families(shell)) or "too few measured" not in str(told))
        assert told == {"serve": ("1g.10gb", ""), "train": ("", "busy")}
        # The report names the part as Slurm does.
        part, _ = told["serve"]
        job = shell.submit_and_wait(*ASKED, f"--gres=gpu:{part}:1", "--job-name=serve", script=IDLES)
        assert f"gres/gpu:{part}=1" in shell.run(
            "sacct", "-X", "-n", "-P", "--format=AllocTRES", f"--jobs={job}"
        )


def families(shell: Shell) -> dict[str, tuple[str, str]]:
    """Return what the report says of each family; slurmdbd hears of a job's end a moment after it."""
    shell.run("rightsizer", "ingest")
    rows = json.loads(
        shell.run("rightsizer", "report", "gpu-parts", "--gpu-mem-gib", "80", "--format", "json")
    )
    return {row["family"]: (row["part"], row["why"]) for row in rows}
