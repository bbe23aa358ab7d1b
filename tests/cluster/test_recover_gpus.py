"""Jobs whose GPUs were cut, in each form of request, on a real Slurm: requeued, they get the original request."""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from slurm_plugin.recovery import judging
from tests.cluster.recovery_site import HOLD, NEEDS_MIB, USER, Run, Site, past_of, start_site

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

HOUR_S = 3600
ASKED_GPUS, USED_GPUS = 4, 1
AS_ASKED = Run("COMPLETED", 8, 8000, ASKED_GPUS)
# It ends by itself, like programs that find too few or too small GPUs.
NO_GPU_MEMORY = 'test "${SLURM_RESTART_COUNT:-0}" -gt 0 || { echo CUDA out of memory >&2; exit 1; }\n'
# Each requests 8 CPUs, 8000 MiB and 4 GPUs in all.
WAYS: Mapping[str, tuple[str, ...]] = {
    "gres": ("-c8", "--mem=8000", "--gres=gpu:4"),
    "per_node": ("-c8", "--mem=8000", "--gpus-per-node=4"),
    "in_all": ("-c8", "--mem=8000", "--gpus=4"),
    "per_task": ("-n2", "-c4", "--mem=8000", "--gpus-per-task=2"),
}
# Hidden from whatever reads the script. Slurm refuses a step with more GPUs than the job has.
FEW = {"gres": "sr''un -n1 --gres=gpu:4 true\n", "in_all": "sr''un -n1 --gpus=4 true\n"}
IN_ALL = {"gpus_per_job": ASKED_GPUS}
TOLD = {"per_task": {"num_tasks": 2, "cpus_per_task": 4, "gpus_per_task": 2}}
BY_GPU = ("-c8", "--mem-per-gpu=2000", "--gpus=4")
KILLED = {"memory": ("-c8", "--mem=8000", "--gres=gpu:4"), "memory_by_gpu": BY_GPU}
STEP = f"srun {HOLD}"
BODIES = {
    **dict.fromkeys(WAYS, NO_GPU_MEMORY),
    **dict.fromkeys(KILLED, HOLD),
    "step_by_gpu": STEP,
    **{f"few_{way}": body for way, body in FEW.items()},
}


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Site:
    site = start_site(make_folder(), 2)
    site.train({
        name: past_of(
            name, body, 900_000 + 1000 * number, asked=TOLD.get(name, IN_ALL), used_gpus=USED_GPUS
        )
        for number, (name, body) in enumerate(BODIES.items(), 1)
    })  # fmt: skip
    return site


@pytest.fixture(scope="module")
def recovered(site: Site) -> dict[str, int]:
    """Return the jobs by name, after recovery, which may read their output, has seen all of them, and ingest too."""
    home = site.folder / "home"
    home.mkdir()
    shutil.chown(home, USER)
    output = f"--output={home}/%x-%j.out"
    few = {f"few_{way}": WAYS[way] for way in FEW}
    asked = {**WAYS, **KILLED, "step_by_gpu": BY_GPU, **few}
    jobs = {name: site.submit(name, BODIES[name], output, asked=options) for name, options in asked.items()}
    site.wait_for(lambda: set(jobs.values()) <= set(site.failed()))
    site.recover_by_output()
    site.wait_for(lambda: site.have_come_back(*(jobs[name] for name in (*WAYS, *KILLED, *few))))
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - HOUR_S))
    site.shell.run("rightsizer", "ingest", "--since", since)
    return jobs


@pytest.mark.parametrize("way", [*WAYS, *KILLED, *(f"few_{way}" for way in FEW)])
def test_the_whole_original_request_is_allocated_again(
    site: Site, recovered: dict[str, int], way: str, cpus_stay: bool
) -> None:
    first, second = site.runs(recovered[way])[str(recovered[way])]
    assert 0 < first.gpus < ASKED_GPUS
    assert first.mem_mib < NEEDS_MIB
    assert second == (AS_ASKED._replace(cpus=first.cpus) if cpus_stay else AS_ASKED)


def test_a_step_that_takes_its_memory_from_the_environment_is_reported_and_credited(
    site: Site, recovered: dict[str, int]
) -> None:
    job = recovered["step_by_gpu"]
    assert [run.state for run in site.runs(job)[str(job)]] == ["FAILED"]
    _, story = site.shell.run_both("rightsizer", "explain", str(job))
    assert judging.STEP_BY_GPU in story


def test_the_audit_agrees_with_what_slurm_allocated(site: Site, recovered: dict[str, int]) -> None:
    said = json.loads(site.shell.run("rightsizer", "audit", "--last", "2h", "--format", "json"))
    told = {str(job) for job in recovered.values()}
    assert [row for row in said if told & set(str(row["where"]).split())] == []
    _, story = site.shell.run_both("rightsizer", "explain", str(recovered["gres"]))
    assert "it was requeued with its original request" in story


@pytest.mark.parametrize("way", FEW)
def test_a_family_that_could_not_go_on_with_fewer_gpus_keeps_its_gpus(
    site: Site, recovered: dict[str, int], way: str
) -> None:
    name = f"few_{way}"
    causes = {entry.job_id: entry.cause for entry in site.entries()}
    assert causes[recovered[name]] == "said_no_gpus"
    site.wait_for(lambda: _keeps_gpus(site, name, way))
    after = site.submit(name, FEW[way], asked=WAYS[way])
    site.wait_for(lambda: [run.state for run in site.runs(after).get(str(after), ())] == ["COMPLETED"])
    assert [run.gpus for run in site.runs(after)[str(after)]] == [ASKED_GPUS]


def _keeps_gpus(site: Site, name: str, way: str) -> bool:
    """Whether that has been learned; slurmdbd hears of a job's end a moment after it."""
    site.shell.run("rightsizer", "ingest")
    granted = site.token_of(name, FEW[way], asked=WAYS[way]).granted
    return not any(kind.startswith("gpus") for kind in granted)
