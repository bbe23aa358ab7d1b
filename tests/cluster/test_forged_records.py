"""On a real slurmctld: folder names and comments of users are not taken for tokens, and hide nobody's jobs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox.cluster import Sandbox
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue
from tests.cluster.conftest import Shell, unhooked_site
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

AMOUNTS = "mode=enforce;why=resized;asked=tasks:1,cpus:8,mem:20000;granted=cpus:1,mem:200"
CLAIM = f"rightsizer/1;id=deadbeef0001;{AMOUNTS}"
ASKED = ("--cpus-per-task=1", "--mem=200")
DIES = "exit 137"
VICTIMS, FORGERS = 30, 4


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Iterator[Sandbox]:
    """Yield a sandbox without our hook, where nothing was ever cut; the commands of this process work on it too."""
    with unhooked_site(make_folder() / "forged") as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def shell(site: Sandbox) -> Shell:
    return Shell(site)


def state_of(shell: Shell, job: int) -> str:
    return shell.run("squeue", "--noheader", "--states=all", "--format=%T %C %m", f"--jobs={job}").strip()


def recovered(shell: Shell, job: int) -> str:
    """Return what became of a failed job once recovery has looked at it: state, CPUs and memory."""
    wait_until(lambda: state_of(shell, job).startswith("FAILED"), lambda: state_of(shell, job))
    shell.run("rightsizer", "recover", "--job", str(job), "--apply")
    return state_of(shell, job)


def test_a_script_whose_path_looks_like_a_token_is_not_brought_back(shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "x\n   AdminComment=rightsizer"
    folder.mkdir()
    script = folder / f"1;id=deadbeef0001;{AMOUNTS}"
    script.write_text(f"#!/bin/bash\n{DIES}\n", encoding="utf-8")
    said = shell.run("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *ASKED, str(script))
    assert recovered(shell, int(said)) == "FAILED 1 200M"


def test_a_folder_whose_name_looks_like_a_token_brings_nothing_back(shell: Shell, tmp_path: Path) -> None:
    inside = tmp_path / "y\n   AdminComment=rightsizer" / CLAIM.partition("/")[2]
    inside.mkdir(parents=True)
    job = shell.submit(*ASKED, f"--chdir={inside}", script=DIES)
    assert f"   AdminComment={CLAIM}" in shell.run("scontrol", "show", "job", str(job))
    assert recovered(shell, job) == "FAILED 1 200M"


@pytest.mark.parametrize("folder", ["y\n   WorkDir=", "z\n   WorkDir=x"])
def test_a_script_whose_path_looks_like_a_folder_and_a_token_brings_nothing_back(
    folder: str, shell: Shell, tmp_path: Path
) -> None:
    inside = tmp_path / folder / "\n   AdminComment=rightsizer"
    inside.mkdir(parents=True)
    script = inside / f"1;id=deadbeef0001;{AMOUNTS}\n\nJobId=1 x"
    script.write_text(f"#!/bin/bash\n{DIES}\n", encoding="utf-8")
    options = ("--parsable", "--job-name=plain", "--output=/dev/null", "--chdir=/", *ASKED)
    assert recovered(shell, int(shell.run("sbatch", *options, str(script)))) == "FAILED 1 200M"


def test_a_comment_that_looks_like_a_folder_and_a_token_brings_nothing_back(shell: Shell) -> None:
    comment = f"x\n   WorkDir=/\n   AdminComment={CLAIM}\n\nJobId=1 "
    job = shell.submit(*ASKED, "--chdir=/", f"--comment={comment}", script=DIES)
    assert recovered(shell, job) == "FAILED 1 200M"


def test_a_cut_job_with_the_start_of_a_record_in_its_comment_is_brought_back(
    shell: Shell, cpus_stay: bool
) -> None:
    script = f'test "${{SLURM_RESTART_COUNT:-0}}" -gt 0 || {DIES}'
    job = shell.submit(*ASKED, "--hold", "--chdir=/", "--comment=x\n\nJobId=1 ", script=script)
    shell.run("scontrol", "update", f"JobId={job}", f"AdminComment={CLAIM}")
    shell.run("scontrol", "release", str(job))
    assert recovered(shell, job).endswith(f" {1 if cpus_stay else 8} 20000M")


def test_a_token_written_by_an_operator_brings_a_job_back_even_without_a_journal(
    shell: Shell, cpus_stay: bool
) -> None:
    job = shell.submit(
        *ASKED, "--hold", "--chdir=/", script=f'test "${{SLURM_RESTART_COUNT:-0}}" -gt 0 || {DIES}'
    )
    shell.run("scontrol", "update", f"JobId={job}", f"AdminComment={CLAIM}")
    shell.run("scontrol", "release", str(job))
    assert recovered(shell, job).endswith(f" {1 if cpus_stay else 8} 20000M")


def test_job_ids_of_others_in_a_comment_hide_no_job(shell: Shell) -> None:
    victims = [shell.submit("--hold") for _ in range(VICTIMS)]
    comment = "x" + "".join(f"\n\nJobId={job} " for job in victims)
    forgers = [shell.submit("--hold", f"--comment={comment}") for _ in range(FORGERS)]
    seen = {job.job_id: job for job in ScontrolQueue().read().jobs}
    assert {*victims, *forgers} <= set(seen)
    # A job that must not be touched would not count as a batch job.
    assert all(seen[job].batch for job in victims)
