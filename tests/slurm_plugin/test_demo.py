"""The demo without a Slurm: recorded accounting, real training, the real service, the real Lua hook.

And what happens to the demo's private Slurm, however the demo ends.
"""

import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from accounting.errors import SandboxError, ServiceError, SlurmError
from slurm_plugin.cli import rightsizer
from slurm_plugin.cli.demo import _private_slurm
from slurm_plugin.cli.orderly_end import orderly_end
from slurm_plugin.config.file import CONFIG_VARIABLE
from slurm_plugin.config.hook import lua_folder
from slurm_plugin.demo import lua_hook, recorded, story
from slurm_plugin.demo.lua_hook import JobFields, Stream
from slurm_plugin.demo.recorded import job_fields, tell_recorded
from slurm_plugin.demo.story import Voice
from slurm_plugin.demo.workload import FAMILIES, JOBS, wait_until_ended
from slurm_plugin.policy.submission import Submission
from slurm_plugin.sandbox import cluster
from slurm_plugin.sandbox.cluster import Options
from slurm_plugin.sandbox.processes import end, find_processes
from slurm_plugin.sbatch.script import read_submission
from tests.conftest import PATIENCE_S

SILENT = Voice(lambda _line: None, lambda _line: None)


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, object]]:
    return {str(row["family"]): row for row in tell_recorded(lambda _line: None)}


def test_each_family_has_a_readable_script() -> None:
    for family in FAMILIES:
        script = (JOBS / f"{family}.sbatch").read_text(encoding="utf-8")
        assert read_submission(script, f"{family}.sbatch", "root").name == family


def test_every_family_goes_through_the_real_hook(rows: dict[str, dict[str, object]]) -> None:
    assert tuple(rows) == FAMILIES
    assert rows["align"]["CPUs/task"] == "8 → 1"
    assert str(rows["align"]["memory"]).startswith("15.6 GiB → 352 MiB")
    assert str(rows["train-net"]["gres"]).endswith("gpu:1")
    assert str(rows["assemble"]["memory"]).endswith("MiB /CPU")


def test_a_reply_that_is_not_there_at_once_is_still_used(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, at_once = Stream.receive, itertools.cycle([False, True])

    def late(stream: Stream, count: int) -> object:
        is_look = count == 1 and stream._socket.gettimeout() == 0
        return (None, "timeout", "") if is_look and not next(at_once) else answered(stream, count)

    def after_a_pause(submission: Submission) -> JobFields:
        time.sleep(0.02)  # the hook works while it waits only if its last call was a while ago
        return job_fields(submission)

    monkeypatch.setattr(Stream, "receive", late)
    monkeypatch.setattr(recorded, "job_fields", after_a_pause)
    assert {row["CPUs/task"] for row in tell_recorded(lambda _line: None)} == {"8 → 1", "4 → 1", "1 → 1"}


def test_each_of_two_tasks_keeps_a_cpu(rows: dict[str, dict[str, object]]) -> None:
    assert (rows["ensemble"]["tasks"], rows["ensemble"]["CPUs/task"]) == (2, "8 → 1")


def test_the_command_says_that_it_shows_a_recording() -> None:
    result = CliRunner().invoke(rightsizer, ["demo", "--recorded"])
    assert result.exit_code == 0
    assert "cannot run a private Slurm here: asked for with --recorded" in result.stderr
    assert "no job was started" in result.stdout
    assert "What to do next" in result.stdout


@pytest.mark.parametrize("most_bytes", [100, 20_000])
def test_a_disk_without_room_for_the_recording_is_reported_in_one_line(most_bytes: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        with pytest.raises(SandboxError, match=r"cannot write the demo's files: .*; free some space"):
            tell_recorded(lambda _line: None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("options", [["--keep"], ["--dir", "there"]])
def test_the_recorded_demo_rejects_the_option_to_keep_a_slurm(options: list[str]) -> None:
    result = CliRunner().invoke(rightsizer, ["demo", "--recorded", *options])
    assert result.exit_code == 2
    assert "leave them out" in result.output


def test_a_temporary_folder_too_deep_for_a_socket_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(ServiceError, match="longer than 107 bytes"):
        tell_recorded(lambda _line: None)


def test_folders_may_have_any_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a checkout in ~/Téléchargements: the hook was not found there, or did not reach the service."""
    # Not tmp_path, which with these letters is too long for a socket.
    with tempfile.TemporaryDirectory(prefix="zoë Файлы-") as folder:
        shutil.copytree(lua_folder(), Path(folder) / "lua")
        monkeypatch.setattr(lua_hook, "lua_folder", lambda: Path(folder) / "lua")
        monkeypatch.setattr(tempfile, "tempdir", folder)
        rows = {row["family"]: row["CPUs/task"] for row in tell_recorded(lambda _line: None)}
    assert rows["align"] == "8 → 1"


def test_a_terminated_recorded_demo_leaves_nothing_behind(short_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(short_path)}
    command = [sys.executable, "-m", "slurm_plugin.cli", "demo", "--recorded"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        # The next step starts the service, which takes a while to answer.
        assert any(line.endswith(" trained\n") for line in demo.stderr)
        (folder,) = short_path.iterdir()
        its_service = [f"{CONFIG_VARIABLE}={folder}/rightsizer.toml"]
        until_s = time.monotonic() + PATIENCE_S
        while not find_processes(its_service) and time.monotonic() < until_s:
            time.sleep(0.01)
        demo.terminate()
    left = find_processes(its_service)
    end(left, PATIENCE_S)
    assert left == ()
    assert demo.returncode == 128 + signal.SIGTERM
    assert not folder.exists()


class FakeSlurm:
    """Stands in for the sandbox; records with which options it was started and which folders were ended."""

    def __init__(self) -> None:
        self.started: list[Options] = []
        self.ended: list[Path] = []
        self.refusal: SandboxError | None = None

    def start(self, options: Options, _progress: object) -> SimpleNamespace:
        if self.refusal:
            raise self.refusal
        self.started.append(options)
        options.directory.mkdir(exist_ok=True)
        (options.directory / "sandbox.json").touch()
        return SimpleNamespace(directory=options.directory)

    def stop(self, directory: Path) -> None:
        self.ended.append(directory)


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    fake = FakeSlurm()
    monkeypatch.setattr(cluster, "start", fake.start)
    monkeypatch.setattr(cluster, "stop", fake.stop)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return fake


def test_the_demo_does_not_end_a_sandbox_that_already_ran(slurm: FakeSlurm, tmp_path: Path) -> None:
    (tmp_path / "sandbox.json").touch()
    slurm.refusal = SandboxError("is already running")
    with pytest.raises(SandboxError, match="already running"), _private_slurm(tmp_path, False, SILENT):
        pass
    assert slurm.ended == []


def test_a_demo_in_a_given_folder_starts_in_observe_mode(slurm: FakeSlurm, tmp_path: Path) -> None:
    with _private_slurm(tmp_path, False, SILENT):
        pass
    assert (slurm.started[0].mode, slurm.ended) == ("observe", [tmp_path])


def test_the_demo_ends_its_slurm_when_its_output_pipe_breaks(slurm: FakeSlurm, tmp_path: Path) -> None:
    gone = False

    def say(_line: str) -> None:
        if gone:
            raise BrokenPipeError

    voice = Voice(say, say)
    with pytest.raises(BrokenPipeError), _private_slurm(tmp_path, False, voice):  # noqa: PT012
        gone = True
        voice.say("round 1")
    assert slurm.ended == [tmp_path]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_demo_ends_its_slurm_when_it_is_terminated(slurm: FakeSlurm, number: signal.Signals) -> None:
    # The tests may run under nohup, which ignores SIGHUP.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit), orderly_end(), _private_slurm(None, False, SILENT) as sandbox:
            os.kill(os.getpid(), number)
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert slurm.ended == [sandbox.directory]
    assert not sandbox.directory.exists()


def test_a_signal_ignored_under_nohup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with orderly_end():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_logs_of_a_failed_demo_are_kept(slurm: FakeSlurm) -> None:
    said: list[str] = []
    voice = Voice(said.append, said.append)
    with pytest.raises(SlurmError), _private_slurm(None, False, voice) as sandbox:
        raise SlurmError("sbatch rejected align; see the sandbox's log folder")
    assert slurm.ended == [sandbox.directory]
    assert sandbox.directory.exists()
    assert said[-1].endswith(f"rightsizer sandbox down --remove --dir {sandbox.directory}")


def test_variables_of_another_slurm_do_not_reach_the_jobs_of_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {"SBATCH_PARTITION": "gpu", "SLURM_JOB_ID": "77", "HOME": "/home/me"})

    def reached(_folder: Path) -> None:
        raise SlurmError("reached")

    monkeypatch.setattr(story, "install_work", reached)
    sandbox = SimpleNamespace(
        environment=lambda: {"SLURM_CONF": "ours"}, layout=SimpleNamespace(bin=tmp_path)
    )
    with pytest.raises(SlurmError, match="reached"):
        story.tell(sandbox, SILENT)  # type: ignore[arg-type]
    assert os.environ == {"SLURM_CONF": "ours", "HOME": "/home/me"}


def test_a_failing_squeue_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(SlurmError, match="squeue failed: Unable to contact"):
        wait_until_ended([1], lambda _left: None, 1.0)
