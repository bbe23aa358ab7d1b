"""`rightsizer sandbox`: help, refusals, and what is said if Slurm is missing."""

import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from accounting.errors import SandboxError
from slurm_plugin.cli.sandbox import sandbox_group, status_table
from slurm_plugin.sandbox import cluster, release, teardown
from slurm_plugin.sandbox.cluster import Options
from slurm_plugin.sandbox.enforcement import Enforcement
from slurm_plugin.sandbox.layout import Layout
from slurm_plugin.sandbox.manifest import Manifest, write_manifest
from slurm_plugin.sandbox.root_tree import find_root_tree, follow
from slurm_plugin.sandbox.slurm_conf import Ports
from slurm_plugin.sandbox.status import DaemonStatus, Status


def test_a_missing_sandbox_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="is not a sandbox"):
        cluster.load(tmp_path)
    with pytest.raises(SandboxError, match="is not a sandbox"):
        cluster.stop(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_found_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `down --dir . --remove`."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(SandboxError, match=r"cannot find sandbox from here .*; give --dir an absolute path"):
        cluster.start(Options(directory=Path("sandbox")))


def test_a_file_that_cannot_be_written_is_reported_in_one_line(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "find_programs", lambda _prefix: None)
    monkeypatch.setattr(cluster, "release_of", lambda _programs: "slurm-wlm 22.05.8")
    root = short_path / "sandbox"
    monkeypatch.setattr(cluster, "refuse_running", lambda layout: (layout.run / "lock").mkdir(parents=True))
    root.mkdir()
    with pytest.raises(SandboxError, match=r"cannot write .*/run/lock: Is a directory; check the owner"):
        cluster.start(Options(directory=root))


def test_a_damaged_manifest_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "sandbox.json").write_text("{}")
    with pytest.raises(SandboxError, match="is damaged"):
        cluster.load(tmp_path)


def test_nothing_is_ended_because_of_a_folder_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, us = Layout(tmp_path), tmp_path.stat().st_uid + 1
    manifest = Manifest(
        nodes=("abcde-1",),
        ports=Ports(1, 2, 3, (4,)),
        release="slurm-wlm 22.05.8",
        slurm_prefix=None,
        hook=False,
        serve=False,
        user_id=us,
        enforcement=Enforcement(memory=False, swap=False, reason=""),
    )
    write_manifest(manifest, layout)
    layout.run.mkdir()
    ended: list[object] = []
    monkeypatch.setattr(os, "geteuid", lambda: us)
    monkeypatch.setattr(cluster, "find_programs", lambda _prefix: None)
    monkeypatch.setattr(teardown, "end_everything", lambda *words: ended.append(words))
    with pytest.raises(SandboxError, match="belongs to user"):
        cluster.stop(tmp_path)
    with pytest.raises(SandboxError, match="belongs to user"):
        cluster.set_mode(tmp_path, "enforce")
    assert ended == []


def test_a_shell_is_freed_of_the_variables_of_another_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = SimpleNamespace(environment=lambda: {"SLURM_CONF": "/srv/slurm.conf"})
    monkeypatch.setattr(cluster, "load", lambda _directory: sandbox)
    monkeypatch.setattr(
        os, "environ", {"SBATCH_PARTITION": "gpu", "SLURM_CONF": "theirs", "SLURM_x;ls": "", "HOME": "/root"}
    )
    printed = CliRunner().invoke(sandbox_group, ["env", "--dir", str(tmp_path)]).stdout
    assert printed == "unset SBATCH_PARTITION\nexport SLURM_CONF=/srv/slurm.conf\n"


def test_a_user_without_a_name_is_told_so(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(user_id: int) -> None:
        raise KeyError(user_id)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(cluster, "find_programs", lambda _prefix: None)
    monkeypatch.setattr(cluster, "release_of", lambda _programs: "slurm-wlm 22.05.8")
    with pytest.raises(SandboxError, match="has no name on this host"):
        cluster.start(Options(directory=short_path / "sandbox"))
    assert not (short_path / "sandbox").exists()


def test_missing_programs_name_their_packages(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "SYSTEM_FOLDERS", (str(short_path),))
    with pytest.raises(SandboxError) as caught:
        cluster.start(Options(directory=short_path / "sandbox"))
    words = str(caught.value)
    assert "\n" not in words
    assert "apt-get install mariadb-server-core munge slurm-client slurm-wlm-mysql-plugin slurmctld" in words
    assert not (short_path / "sandbox").exists()


def test_a_prefix_without_slurm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no Slurm plugins"):
        release.find_programs(tmp_path)


def test_a_prefix_that_cannot_be_written_in_slurm_conf_is_refused(short_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"my slurm has characters .* choose a --slurm-prefix of letters"):
        cluster.start(Options(directory=short_path / "sandbox", slurm_prefix=short_path / "my slurm"))
    assert not (short_path / "sandbox").exists()


def test_an_incomplete_prefix_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lib" / "slurm").mkdir(parents=True)
    (tmp_path / "lib" / "slurm" / "auth_munge.so").touch()
    (tmp_path / "sbin").mkdir()
    (tmp_path / "sbin" / "slurmctld").touch()
    (tmp_path / "sbin" / "slurmctld").chmod(0o755)
    with pytest.raises(SandboxError, match="has no slurmd, "):
        release.find_programs(tmp_path)


def test_usage_errors_exit_with_2(tmp_path: Path) -> None:
    for argv in (
        ["up"],
        ["up", "--dir", str(tmp_path), "--nodes", "0"],
        ["mode", "--dir", str(tmp_path), "sometimes"],
    ):
        assert CliRunner().invoke(sandbox_group, argv).exit_code == 2


def status(*, running: bool, state: str) -> Status:
    return Status(
        directory="/srv/sandbox",
        release="slurm-wlm 22.05.8",
        daemons=(DaemonStatus("munged", os.getpid() if running else None, running),),
        node_states={"abcde-1": state},
        memory_enforced=False,
        memory_reason="only root may make cgroups",
        closed_parent="/root",
    )


def test_status_reports_the_health_of_each_daemon() -> None:
    assert status(running=True, state="idle").healthy
    assert status(running=True, state="mixed").healthy
    assert not status(running=False, state="idle").healthy
    assert not status(running=True, state="idle*").healthy
    assert not status(running=True, state="unknown").healthy


def test_the_table_says_why_memory_is_not_limited() -> None:
    text = status_table(status(running=False, state="idle"))
    assert "memory enforcement  off (only root may make cgroups)" in text
    assert "not running" in text
    assert "cannot submit" in text


def test_programs_in_a_root_tree_are_run_by_their_own_loader(tmp_path: Path) -> None:
    for folder in ("lib64", "usr/sbin", "usr/bin", "etc/alternatives", "usr/lib/x86_64-linux-gnu/slurm-wlm"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "lib64" / "ld-linux-x86-64.so.2").touch()
    (tmp_path / "usr/sbin/slurmctld").symlink_to("/etc/alternatives/slurmctld")
    (tmp_path / "etc/alternatives/slurmctld").symlink_to("/usr/sbin/slurmctld-wlm")
    (tmp_path / "usr/sbin/slurmctld-wlm").write_bytes(b"\x7fELF libslurmfull.so")
    (tmp_path / "usr/bin/sort").write_bytes(b"\x7fELF")
    tree = find_root_tree(tmp_path)
    assert tree is not None
    assert tree.program("slurmctld") == tmp_path / "usr/sbin/slurmctld-wlm"
    wrappers = tree.wrappers()
    assert "sort" not in wrappers
    assert f'exec {tree.loader} --argv0 "$0" --library-path' in wrappers["slurmctld"]
    with pytest.raises(SandboxError, match="has no slurmd, "):
        release.find_programs(tmp_path)


def test_a_plain_prefix_is_no_root_tree(tmp_path: Path) -> None:
    (tmp_path / "lib/slurm").mkdir(parents=True)
    assert find_root_tree(tmp_path) is None


def test_links_in_a_loop_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert follow(tmp_path, tmp_path / "a") is None
