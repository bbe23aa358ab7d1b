"""The simulated GPU meter of jobs that only pretend to use GPUs."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from slurm_plugin.sandbox.gpu_meter import SIMULATE_GPU_USE


@pytest.mark.parametrize(
    ("variables", "busy"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,2,3"}, [True, False, False]),
        ({"SLURM_JOB_GPUS": "1"}, [True]),
        ({"SLURM_GPUS_ON_NODE": "2"}, [True, False]),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
    ],
)
def test_simulated_gpu_use_is_written_to_the_spool(
    tmp_path: Path, variables: dict[str, str], busy: list[bool]
) -> None:
    (tmp_path / "gpu-spool").mkdir()
    job = {
        "RIGHTSIZER_SANDBOX": str(tmp_path),
        "SLURM_JOB_ID": "7",
        "SLURMD_NODENAME": "n1",
        "PATH": os.defpath,
    }
    command = ["sh", "-c", SIMULATE_GPU_USE, "simulate-gpu-use", "1", "80", "500"]
    subprocess.run(command, env={**job, **variables}, check=True)
    lines = (tmp_path / "gpu-spool" / "7.jsonl").read_text().splitlines()
    samples = [msgspec.json.decode(line) for line in lines]
    assert [(one["util_pct"], one["mem_mib"]) for one in samples] == [
        (80, 500) if one else (0, 0) for one in busy for _ in range(2)
    ]
    assert [one["gpu"] for one in samples] == [gpu for gpu in range(len(busy)) for _ in range(2)]
    assert [one["time_s"] - samples[0]["time_s"] for one in samples] == [0, 1] * len(busy)
    assert all(
        one["source"] == "simulated" and one["job_id"] == "7" and one["node"] == "n1" for one in samples
    )


@pytest.mark.parametrize("argv", [[], ["x"], ["1", "-3"], ["1", "05"]])
def test_simulated_gpu_use_refuses_invalid_arguments(tmp_path: Path, argv: list[str]) -> None:
    command = ["sh", "-c", SIMULATE_GPU_USE, "simulate-gpu-use", *argv]
    variables = {"RIGHTSIZER_SANDBOX": str(tmp_path), "SLURM_JOB_ID": "7", "PATH": os.defpath}
    answer = subprocess.run(command, env=variables, check=False, capture_output=True, text=True)
    assert answer.returncode == 2
    assert answer.stderr.startswith("usage:")
