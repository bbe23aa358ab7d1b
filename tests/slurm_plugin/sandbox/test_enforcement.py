"""Whether memory can be limited here, by which version of cgroups, and if not, why."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox.enforcement import memory_enforcement

ALL = "cpuset cpu io memory hugetlb pids rdma misc\n"


def test_enforcement_says_why_it_is_off(tmp_path: Path) -> None:
    assert memory_enforcement(1000, tmp_path).reason == "only root may make cgroups"
    assert "not mounted" in memory_enforcement(0, tmp_path).reason


@pytest.mark.parametrize(
    ("controllers", "own", "first", "reason"),
    [
        (ALL, "0::/a\n", "0::/init.scope\n", "cgroup v2 in"),
        (ALL, "0::/\n", "0::/\n", "cgroup v2 in"),
        ("cpu io pids\n", "0::/a\n", "0::/\n", "cgroup v2 without the controller memory"),
        ("memory pids\n", "0::/a\n", "0::/\n", "cgroup v2 without the controller cpu"),
        ("cpu memory\n", "0::/a\n", "0::/\n", "cgroup v2 without the controller pids"),
        (ALL, "1:name=systemd:/\n0::/a\n", "0::/\n", "cgroup v1 is in use too"),
        (ALL, "0::/docker/f00/a\n", "0::/docker/f00\n", "the whole host, and is in /docker of them"),
    ],
)
@pytest.mark.parametrize("systemd", [True, False])
def test_cgroup_v2_limits_memory_if_slurms_plugin_can_use_it(
    tmp_path: Path, controllers: str, own: str, first: str, reason: str, systemd: bool
) -> None:
    root, proc, run = (tmp_path / name for name in ("cgroup", "proc", "run"))
    for folder in (root, proc / "self", proc / "1", *([run] if systemd else [])):
        folder.mkdir(parents=True)
    (root / "cgroup.controllers").write_text(controllers)
    (proc / "self/cgroup").write_text(own)
    (proc / "1/cgroup").write_text(first)
    found = memory_enforcement(0, root, proc, run)
    assert reason in found.reason
    assert (found.memory, found.plugin) == (
        (True, "cgroup/v2") if reason == "cgroup v2 in" else (False, "cgroup/v1")
    )
    assert list(root.iterdir()) == [root / "cgroup.controllers"]


def test_two_checks_at_the_same_time_both_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sandboxes that one process starts side by side: the second one checks while the first one's group exists."""
    root, proc, run = (tmp_path / name for name in ("cgroup", "proc", "run"))
    for folder in (root, proc / "self", proc / "1"):
        folder.mkdir(parents=True)
    (root / "cgroup.controllers").write_text(ALL)
    for process in ("self", "1"):
        (proc / process / "cgroup").write_text("0::/\n")
    looks, found = Path.iterdir, list[bool]()

    def looks_meanwhile(group: Path) -> Iterator[Path]:
        monkeypatch.setattr(Path, "iterdir", looks)
        found.append(memory_enforcement(0, root, proc, run).memory)
        return looks(group)

    monkeypatch.setattr(Path, "iterdir", looks_meanwhile)
    found.append(memory_enforcement(0, root, proc, run).memory)
    assert found == [True, True]


def test_enforcement_needs_the_limit_files(tmp_path: Path) -> None:
    for controller in ("memory", "freezer", "cpuacct"):
        (tmp_path / controller).mkdir()
        (tmp_path / controller / "cgroup.procs").touch()
    found = memory_enforcement(0, tmp_path)
    assert not found.memory
    assert "memory.limit_in_bytes" in found.reason
