"""The capabilities that the collector's user needs to see which job a GPU belongs to, on the real kernel."""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "etc/systemd/rightsizer-collect.service"
JOBS_USER, OUR_USER = "nobody", "daemon"
FREED = ("--clear-groups", "--inh-caps=-all", "--bounding-set=-all")
LOOK = """
import sys
from pathlib import Path
from accounting.gpu_collector.processes import JobProcesses
jobs = JobProcesses("n1", cgroup=Path(sys.argv[1]))
jobs.look_again()
print([job.job_id for job in jobs.claimants(2, "")], jobs.kept_out)
"""


def of_user(name: str) -> tuple[str, ...]:
    user = pwd.getpwnam(name)
    return ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}")


@pytest.fixture
def cgroups(tmp_path: Path) -> Iterator[Path]:
    """Slurm's cgroups with one job that was given GPU 2 and whose process belongs to another user."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can start processes of two other users, by setpriv")
    probe = [*of_user(OUR_USER), "--clear-groups", sys.executable, "-c", LOOK.replace("sys.argv[1]", "'/'")]
    if subprocess.run(probe, cwd=ROOT, capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{OUR_USER} may not enter {ROOT} or its Python's folder")
    named = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "2", "PATH": os.environ["PATH"]}
    with subprocess.Popen([*of_user(JOBS_USER), *FREED, "sleep", "900"], env=named) as job:
        wait_until(lambda: Path(f"/proc/{job.pid}/comm").read_text() == "sleep\n")
        step = tmp_path / "system.slice/slurmstepd.scope/job_7/step_batch/user/task_0"
        step.mkdir(parents=True)
        (step / "cgroup.procs").write_text(f"{job.pid}\n")
        for folder in (tmp_path, *tmp_path.parents[:2]):
            folder.chmod(0o755)
        yield tmp_path
        job.kill()


def capabilities_of_the_unit() -> list[str]:
    (line,) = (line for line in UNIT.read_text().splitlines() if line.startswith("AmbientCapabilities="))
    return [word.removeprefix("CAP_").lower() for word in line.partition("=")[2].split()]


def seen_with(capabilities: list[str], cgroups: Path) -> str:
    given = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    limits = (f"--inh-caps={given}", f"--ambient-caps={given}", f"--bounding-set={given}")
    command = [*of_user(OUR_USER), "--clear-groups", *limits, sys.executable, "-c", LOOK, str(cgroups)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def test_with_the_units_capabilities_the_idle_gpu_of_a_job_is_seen(cgroups: Path) -> None:
    assert seen_with(capabilities_of_the_unit(), cgroups) == "[7] False"


@pytest.mark.parametrize("kept", [[], ["sys_ptrace"], ["dac_read_search"]])
def test_with_fewer_capabilities_it_is_not_seen_and_the_collector_knows_that(
    cgroups: Path, kept: list[str]
) -> None:
    assert seen_with(kept, cgroups) == "[] True"
