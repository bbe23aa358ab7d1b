"""The private Slurm in a modern container, on each release: only cgroup v2, and no systemd to ask."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from slurm_plugin.sandbox.enforcement import CGROUP_ROOT
from tests.cgroups import controlled_group
from tests.cluster.conftest import ALLOCATE_300_MIB
from tests.cluster.matrix.prefixes import other_releases, why_missing

pytestmark = pytest.mark.cluster

OTHER_RELEASES = other_releases()
UNIFIED = (CGROUP_ROOT / "cgroup.controllers").exists()

# As in a container on a modern host: only cgroup v2, with the container's own group at its top, and no systemd to ask.
CONTAINER = """
mount -t tmpfs tmpfs /run
umount --lazy --recursive /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
"""
UP_AND_DOWN = """
rightsizer sandbox up --dir "$0" --nodes 2 --no-hook --no-serve "$@"
eval "$(rightsizer sandbox env --dir "$0")"
sbatch --wait --output=/dev/null --mem=500 --wrap="$ALLOCATE"
sbatch --wait --output=/dev/null --mem=100 --wrap="$ALLOCATE" || true
scontrol --oneliner show jobs
rightsizer sandbox down --dir "$0"
"""


@pytest.fixture
def group() -> Iterator[Path | None]:
    """Yield a group that serves as a container's own cgroup; None if this host has the controllers in v1."""
    with controlled_group() if UNIFIED else nullcontext() as made:
        yield made


def in_container(group: Path | None, *words: str, stranger: bool = False) -> subprocess.CompletedProcess[str]:
    """Bring a sandbox up in a container, run two jobs there and end it; skip the test if no such container can be had.

    A `stranger` is in the container's cgroup too, but in another PID namespace, so that nobody inside can move it.
    """
    enter = f"echo 0 >{group}/cgroup.procs; " if group else ""
    outside = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--propagation=private")
    inside = f'{"" if stranger else enter}exec unshare --cgroup sh -ec "$@"'
    first = ["sh", "-ec", f'{enter}exec "$@"', "sh"] if stranger else []
    command = [*first, *outside, "sh", "-ec", inside, "sh"]
    if subprocess.run([*command, CONTAINER], capture_output=True, check=False).returncode:
        pytest.skip("cgroup v2 cannot be mounted here")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*command, CONTAINER + UP_AND_DOWN, *words],
        env={**os.environ, "PATH": path, "ALLOCATE": ALLOCATE_300_MIB},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("name", [None, *OTHER_RELEASES])
def test_the_sandbox_runs_in_a_container_and_limits_memory_if_it_has_the_controllers(
    name: str | None, group: Path | None, make_folder: Callable[[], Path]
) -> None:
    prefix = OTHER_RELEASES[name] if name else None
    if reason := why_missing(prefix) if prefix else None:
        pytest.skip(reason)
    chosen = () if prefix is None else ("--slurm-prefix", str(prefix))
    done = in_container(group, str(make_folder() / "v2"), *chosen)
    said = "on: cgroup v2 in" if UNIFIED else "off: /sys/fs/cgroup is cgroup v2 without the controller cpu"
    assert f"memory enforcement {said}" in done.stderr
    states = re.findall(r"JobState=(\w+)", done.stdout)
    assert states == ["COMPLETED", "OUT_OF_MEMORY" if UNIFIED else "COMPLETED"]


def test_the_sandbox_runs_without_limits_in_a_container_that_shares_its_cgroup(
    group: Path | None, make_folder: Callable[[], Path]
) -> None:
    if group is None:
        pytest.skip("needs cgroup v2 with controllers")
    done = in_container(group, str(make_folder() / "v2"), stranger=True)
    assert (
        "off: /sys/fs/cgroup/cgroup.subtree_control cannot be changed: Device or resource busy" in done.stderr
    )
    assert re.findall(r"JobState=(\w+)", done.stdout) == ["COMPLETED", "COMPLETED"]
