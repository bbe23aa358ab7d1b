"""Processes of a sandbox: only our own are found, and only they are ended."""

import errno
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import SandboxError
from slurm_plugin.process_stat import Stat, parse_stat
from slurm_plugin.sandbox import cluster, processes
from slurm_plugin.sandbox.daemons import Cluster
from slurm_plugin.sandbox.enforcement import off
from slurm_plugin.sandbox.environment import daemon_environment, marks, user_environment
from slurm_plugin.sandbox.layout import Layout
from slurm_plugin.sandbox.manifest import Manifest, write_manifest
from slurm_plugin.sandbox.processes import Identity, Record
from slurm_plugin.sandbox.release import Programs
from slurm_plugin.sandbox.slurm_conf import Ports
from tests.conftest import PATIENCE_S

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    """Yield a marker of this test's own; processes that carry it are ended afterwards."""
    entry = f"{processes.MARKER_VARIABLE}={tmp_path}"
    yield entry
    processes.end(processes.find_processes([entry]), 1.0)


def manifest_of(layout: Layout, nodes: int) -> Manifest:
    return Manifest(
        nodes=layout.node_names(nodes),
        ports=Ports(1, 2, 3, (4,)),
        release="slurm-wlm 22.05.8",
        slurm_prefix=None,
        hook=False,
        serve=False,
        user_id=os.geteuid(),
        enforcement=off(""),
    )


def spawn(mark: str, folder: Path, argv: tuple[str, ...] = SLEEP) -> Record:
    name, _, value = mark.partition("=")
    return processes.spawn("sleeper", argv, {**os.environ, name: value}, folder / "log", folder)


@given(
    command=st.text(max_size=15),
    state=st.sampled_from("RSDZ"),
    parent=st.integers(0, 9999),
    start=st.integers(0),
)
def test_a_stat_line_is_read_whatever_the_command_name_is(
    command: str, state: str, parent: int, start: int
) -> None:
    after = [state, str(parent), *["0"] * 17, str(start), "0", "0"]
    assert parse_stat(f"12 ({command}) {' '.join(after)}") == Stat(state, parent, start)


def test_a_started_process_is_recorded_and_ended(mark: str, tmp_path: Path) -> None:
    record = spawn(mark, tmp_path)
    assert processes.read_records(tmp_path) == (record,)
    assert processes.is_running(record.identity)
    assert processes.end([record.identity], 5.0) == ()
    assert not processes.is_running(record.identity)


def test_a_reused_pid_is_not_one_of_ours(mark: str, tmp_path: Path) -> None:
    record = spawn(mark, tmp_path)
    earlier = Identity(record.pid, record.start_ticks - 1)
    assert not processes.is_running(earlier)
    assert processes.end([earlier], 0.1) == ()
    assert processes.is_running(record.identity)


def test_a_process_that_ignores_sigterm_is_ended_too(mark: str, tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    record = spawn(mark, tmp_path, (sys.executable, "-c", code))
    deadline = time.monotonic() + PATIENCE_S
    while "deaf" not in (tmp_path / "log").read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes.end([record.identity], 0.3) == ()


def test_children_without_the_marker_are_found_by_descent(mark: str, tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'], env={})"
    record = spawn(mark, tmp_path, (sys.executable, "-c", code))
    deadline = time.monotonic() + PATIENCE_S
    while len(found := processes.find_processes([mark])) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(found) == 2
    assert record.identity in found


def test_the_own_process_is_never_found() -> None:
    with subprocess.Popen(SLEEP, env={}) as other:
        found = processes.find_processes([], [os.getpid(), os.getppid(), other.pid])
        other.kill()
    assert [one.pid for one in found] == [other.pid]


def test_down_ends_the_processes_of_a_folder_that_was_removed(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "removed")
    log = tmp_path / "log"
    record = processes.spawn("slurmctld", SLEEP, daemon_environment(layout, ()), log, tmp_path)
    with pytest.raises(SandboxError, match="is already running"):
        cluster.refuse_running(layout)
    cluster.stop(layout.root)
    assert not processes.is_running(record.identity)
    assert not layout.root.exists()


def test_down_ends_the_processes_of_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    write_manifest(manifest_of(layout, nodes=1), layout)
    log = tmp_path / "log"
    record = processes.spawn("munged", SLEEP, daemon_environment(layout, ()), log, tmp_path)
    (layout.run / "lock").mkdir(
        parents=True
    )  # as on a disk that has become read-only, this cannot be written
    said: list[str] = []
    cluster.stop(tmp_path, progress=said.append)
    assert not processes.is_running(record.identity)
    assert said == [f"cannot write {layout.run}/lock: Is a directory; only the processes are ended"]


def test_a_missing_program_is_reported_in_one_line(tmp_path: Path, mark: str) -> None:
    with pytest.raises(SandboxError, match="cannot start /no/such"):
        spawn(mark, tmp_path, ("/no/such",))


def test_process_records_are_readable_by_everybody_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        processes.write_record(Record("munged", 1, 2, ("munged",), "log"), tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "munged.json").stat().st_mode) == 0o644


def test_processes_that_proc_hides_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(path: Path, **_words: str) -> str:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "read_text", hidden)
    assert processes.snapshot() == {}


def test_a_damaged_record_is_left_out(tmp_path: Path) -> None:
    record = Record("munged", 1, 2, ("munged",), "log")
    processes.write_record(record, tmp_path)
    (tmp_path / "slurmd.json").write_text('{"name":"slu')
    (tmp_path / "other.json").write_bytes(msgspec.json.encode({"name": 3}))
    assert processes.read_records(tmp_path) == (record,)


def test_only_daemons_carry_the_marker(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    entries = [f"{name}={value}" for name, value in daemon_environment(layout, ()).items()]
    assert set(marks(layout, ())) <= set(entries)
    assert processes.MARKER_VARIABLE not in user_environment(layout, ())


def test_the_path_of_the_user_is_complete_and_stable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, prefix = Layout(tmp_path), (Path("/opt/slurm/bin"),)
    once = user_environment(layout, prefix)["PATH"]
    monkeypatch.setenv("PATH", once)
    assert user_environment(layout, prefix)["PATH"] == once
    assert once.split(":")[:2] == ["/opt/slurm/bin", str(layout.bin)]


def test_programs_of_an_earlier_sandbox_are_not_found_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, ours = Layout(tmp_path / "earlier"), Layout(tmp_path / "ours")
    earlier.root.mkdir()
    monkeypatch.setenv("PATH", f"{earlier.wrappers}:{earlier.bin}:/usr/bin")
    earlier.manifest.touch()
    path = user_environment(ours, ())["PATH"].split(":")
    assert (path[0], path[-1]) == (str(ours.bin), "/usr/bin")
    assert not {str(earlier.wrappers), str(earlier.bin)} & set(path)


def test_variables_of_another_slurm_are_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    monkeypatch.setenv("SBATCH_PARTITION", "other")
    assert not {"SLURM_JOB_ID", "SBATCH_PARTITION"} & daemon_environment(Layout(tmp_path), ()).keys()


@pytest.mark.parametrize(
    ("nodes", "config", "refused"),
    [
        (2, "MpiParams = (null)\nNEXT_JOB_ID = 1\n", True),
        (2, "MpiParams = (null)\nMULTIPLE_SLURMD = Yes\nNEXT_JOB_ID = 1\n", False),
        (1, "MpiParams = (null)\nNEXT_JOB_ID = 1\n", False),
    ],
)
def test_a_slurm_for_one_slurmd_a_host_runs_one_node(
    nodes: int, config: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "command", lambda *_command: config)
    layout = Layout(tmp_path)
    made = Cluster(layout, manifest_of(layout, nodes), Programs(folders=(), prefix_folders=(), plugins=None))
    told = pytest.raises(SandboxError, match="--nodes 1`, or build it") if refused else nullcontext()
    with told:
        cluster.refuse_single_slurmd(made)
