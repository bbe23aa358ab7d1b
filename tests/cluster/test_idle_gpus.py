"""`rightsizer report idle-gpus` on a real Slurm: a usual job starts only where the report calls GPUs usable."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.sandbox.shape import NodeShape
from tests.cluster.conftest import Shell, unhooked_site

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

USUALLY = ("--cpus-per-task=2", "--mem=4000", "--gres=gpu:1", "--time=5")


def test_idle_gpus_are_lost_if_jobs_without_gpus_hold_the_cpus(make_folder: Callable[[], Path]) -> None:
    with unhooked_site(make_folder() / "site", nodes=2) as sandbox:
        shell = Shell(sandbox)
        first, second = sandbox.manifest.nodes
        for _ in range(2):
            shell.submit_and_wait(*USUALLY)
        held = NodeShape().cpus - 1
        in_the_way = shell.submit(
            f"--cpus-per-task={held}", "--mem=100", "-w", first, "--time=9", script="sleep 600"
        )
        on_gpus = shell.submit(
            "--cpus-per-task=1", "--mem=100", "-w", second, "--gres=gpu:3", script="sleep 600"
        )
        for job in (in_the_way, on_gpus):
            shell.wait_state(job, "RUNNING")
        shell.run("rightsizer", "ingest")
        told, said = shell.run_both("rightsizer", "report", "idle-gpus", "--format", "json")
        rows = {row["node"]: row for row in json.loads(told)}
        assert (rows[first]["idle"], rows[first]["lost_for_cpus"], rows[first]["cpus_held"]) == (4, 4.0, held)
        assert (rows[second]["idle"], rows[second]["usable"]) == (1, 1.0)
        assert (
            "5 GPUs are idle. On average over 2 attempts with GPUs, such a job could use 1.0 of them" in said
        )
        assert "had at most 2 CPUs and 4,000 MiB per GPU" in said
        # Slurm agrees: one job starts on the usable GPU, the next one waits although four are idle.
        usable, lost = (shell.submit(*USUALLY, script="sleep 600") for _ in range(2))
        shell.wait_state(usable, "RUNNING")
        assert shell.run("squeue", "-h", "--format=%N", f"--jobs={usable}").strip() == second
        shell.wait_state(lost, "PENDING")
        shell.run("scancel", str(in_the_way))
        shell.wait_state(lost, "RUNNING")
        assert shell.run("squeue", "-h", "--format=%N", f"--jobs={lost}").strip() == first
        shell.empty()
