"""What the sandbox makes in cgroup v2 by hand, tested in a real one: limits that hold, and a complete clean-up."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import scopes
from slurm_plugin.sandbox.enforcement import V2_CONTROLLERS
from tests.cgroups import controlled_group


@pytest.fixture
def top() -> Iterator[Path]:
    """Yield a cgroup with the controllers, and one process in it, like the top group that a container sees."""
    with controlled_group() as folder, subprocess.Popen(["sleep", "60"]) as process:
        (folder / "cgroup.procs").write_text(str(process.pid))
        yield folder
        process.kill()
        process.wait()
        for group in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
            group.rmdir()


def words(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def groups(top: Path) -> list[str]:
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_dir())


def test_every_node_has_a_scope_whose_memory_can_be_limited(top: Path) -> None:
    scopes.make_by_hand(("n-1", "n-2"), top)
    for node in ("n-1", "n-2"):
        scope = scopes.scope_of(node, top)
        controllers = words(scope / "cgroup.controllers")
        assert set(V2_CONTROLLERS) <= set(controllers)
        assert controllers[-1] != "memory", "22.05 does not recognise the last one"
        assert words(scope / "memory.swap.max") in ([], ["0"])
        assert words(scope / "cgroup.procs") == []


def test_nothing_is_left_once_the_last_sandbox_has_ended(top: Path) -> None:
    before = words(top / "cgroup.procs")
    assert len(before) == 1
    scopes.make_by_hand(("a-1",), top)
    scopes.make_by_hand(("b-1",), top)
    assert groups(top) == [
        "rightsizer-undo-cpu,memory,pids,system.slice",
        "system.slice",
        "system.slice/a-1_slurmstepd.scope",
        "system.slice/b-1_slurmstepd.scope",
    ]
    scopes.scope_of("a-1", top).rmdir()
    scopes.undo(top)
    assert scopes.scope_of("b-1", top).is_dir()
    assert set(V2_CONTROLLERS) <= set(words(top / "cgroup.subtree_control"))
    scopes.scope_of("b-1", top).rmdir()
    scopes.undo(top)
    assert (groups(top), words(top / "cgroup.subtree_control"), words(top / "cgroup.procs")) == (
        [],
        [],
        before,
    )


def test_groups_and_controllers_from_before_stay(top: Path) -> None:
    for pid in words(top / "cgroup.procs"):
        (top / "others").mkdir(exist_ok=True)
        (top / "others/cgroup.procs").write_text(pid)
    (top / "cgroup.subtree_control").write_text("+memory")
    (top / "system.slice").mkdir()
    scopes.make_by_hand(("a-1",), top)
    assert "rightsizer-undo-cpu,pids" in groups(top)
    scopes.scope_of("a-1", top).rmdir()
    scopes.undo(top)
    assert (groups(top), words(top / "cgroup.subtree_control")) == (["others", "system.slice"], ["memory"])
