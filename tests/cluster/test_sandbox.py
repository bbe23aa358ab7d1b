"""The private Slurm on this host: it runs jobs for all users, limits memory, and leaves nothing behind."""

import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from accounting.errors import SandboxError
from slurm_plugin.cli.sandbox import sandbox_group
from slurm_plugin.config.file import load_config
from slurm_plugin.sandbox import cluster, daemons, teardown
from slurm_plugin.sandbox.cluster import Options, Sandbox
from slurm_plugin.sandbox.daemons import Cluster, Daemon
from slurm_plugin.sandbox.environment import marks
from slurm_plugin.sandbox.layout import Layout
from slurm_plugin.sandbox.processes import Identity, find_processes, read_records
from slurm_plugin.sandbox.release import SLURM_PROGRAMS, find_programs
from tests.cluster.conftest import ALLOCATE_300_MIB, PATIENCE_S, Shell
from tests.cluster.matrix.prefixes import other_releases, why_missing
from tests.conftest import skip_unless_read_by
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

NODES_LOOKED_FOR = 8
OTHER_RELEASES = other_releases()


def left_of(directory: Path) -> tuple[Identity, ...]:
    """Return all processes of the sandbox in `directory`, by marker, node name and cgroup."""
    layout = Layout(directory)
    nodes = layout.node_names(NODES_LOOKED_FOR)
    return find_processes(marks(layout, nodes), teardown.cgroup_processes(nodes))


def bare(directory: Path, nodes: int = 1) -> Options:
    """Return options for a sandbox without hook and service, which starts fast."""
    return Options(directory=directory, nodes=nodes, hook=False, serve=False)


def test_a_job_runs_and_is_accounted(shell: Shell) -> None:
    job = shell.submit_and_wait("--cpus-per-task=2", "--mem=300", script="srun --ntasks=1 hostname")
    assert shell.accounted(job, "State") == "COMPLETED"
    assert (shell.allocated(job)["cpu"], shell.allocated(job)["mem"]) == ("2", "300M")


def test_slurmdbd_finds_a_database_that_slurm_supports(sandbox: Sandbox) -> None:
    assert "not supported" not in (sandbox.layout.log / "slurmdbd.log").read_text()


def test_another_user_may_submit_with_and_without_an_account(other_shell: Shell) -> None:
    for options in ((), ("--account=demo",)):
        job = other_shell.submit_and_wait(*options)
        assert (other_shell.accounted(job, "State"), other_shell.accounted(job, "User")) == (
            "COMPLETED",
            "nobody",
        )


def test_a_job_over_its_memory_limit_is_killed(sandbox: Sandbox, shell: Shell) -> None:
    if not sandbox.manifest.enforcement.memory:
        pytest.skip(f"memory is not limited here: {sandbox.manifest.enforcement.reason}")
    over = shell.submit_and_wait("--mem=100", script=ALLOCATE_300_MIB)
    within = shell.submit_and_wait("--mem=500", script=ALLOCATE_300_MIB)
    assert (shell.accounted(over, "State"), shell.accounted(within, "State")) == (
        "OUT_OF_MEMORY",
        "COMPLETED",
    )


def test_gpus_and_shards_are_allocated(shell: Shell) -> None:
    # The shards of a job on a node are on one GPU: four, here.
    gpus = shell.submit_and_wait("--gres=gpu:3")
    shards = shell.submit_and_wait("--gres=shard:3")
    assert shell.allocated(gpus)["gres/gpu"] == "3"
    assert shell.allocated(shards)["gres/shard"] == "3"


def test_a_job_prints_the_gpu_use_that_it_simulates(sandbox: Sandbox, other_shell: Shell) -> None:
    job = other_shell.submit_and_wait("--gres=gpu:2", script="simulate-gpu-use 1 70")
    lines = (sandbox.layout.gpu_spool / f"{job}.jsonl").read_text().splitlines()
    assert ['"util_pct":70' in line for line in lines] == [True, True, False, False]
    assert all('"source":"simulated"' in line for line in lines)


def test_a_node_may_have_sixteen_cores_and_64_gb(shell: Shell) -> None:
    fits = shell.submit_and_wait("--cpus-per-task=16", "--mem=64000")
    assert shell.allocated(fits)["cpu"] == "16"
    shell.run("sbatch", "--nodes=1", "--cpus-per-task=17", "--wrap=true", code=1)


def test_the_printed_environment_is_all_that_is_needed(sandbox: Sandbox) -> None:
    lines = CliRunner().invoke(sandbox_group, ["env", "--dir", str(sandbox.directory)]).stdout
    script = f"{lines}\nsbatch -o /dev/null --wrap true && rightsizer sandbox status"
    answer = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_a_second_up_is_refused(sandbox: Sandbox, shell: Shell) -> None:
    with pytest.raises(SandboxError, match="is already running; run `rightsizer sandbox down"):
        cluster.start(bare(sandbox.directory))
    assert shell.accounted(shell.submit_and_wait(), "State") == "COMPLETED"


@pytest.fixture(scope="module")
def second(make_folder: Callable[[], Path]) -> Iterator[Sandbox]:
    """Yield another sandbox, which was started with a strict umask."""
    before = os.umask(0o077)
    try:
        second = cluster.start(bare(make_folder() / "second"))
    finally:
        os.umask(before)
    yield second
    cluster.stop(second.directory, remove=True)
    assert not second.directory.exists()


def test_a_strict_umask_keeps_no_user_out(other_shell: Shell, second: Sandbox) -> None:
    shell = Shell(second, other_shell.user)
    job = shell.submit_and_wait("--gres=gpu:1", script="simulate-gpu-use 1")
    assert shell.accounted(job, "State") == "COMPLETED"


def test_status_reports_what_does_not_run(second: Sandbox) -> None:
    argv = ["status", "--dir", str(second.directory), "--format", "json"]
    assert CliRunner().invoke(sandbox_group, argv).exit_code == 0
    teardown.end_daemon(second.layout, "slurmdbd")
    answer = CliRunner().invoke(sandbox_group, argv)
    assert answer.exit_code == 3
    assert '"name": "slurmdbd",\n      "pid": null' in answer.stdout
    cluster.bring_up([daemons.slurmdbd(second.cluster)], second.cluster, lambda _: None)


def test_two_sandboxes_run_side_by_side_down_leaves_nothing_and_up_again_keeps_the_accounting(
    sandbox: Sandbox, shell: Shell, second: Sandbox
) -> None:
    assert not set(second.manifest.nodes) & set(sandbox.manifest.nodes)
    user = Shell(second)
    job = user.submit_and_wait()
    stubborn = "trap '' TERM; (setsid sleep 600 &) ; while true; do sleep 600; done"
    running, frozen = (user.submit("--cpus-per-task=4", script=stubborn) for _ in range(2))
    for one in (running, frozen):
        user.wait_state(one, "RUNNING")
    user.run("scontrol", "suspend", str(frozen))
    wait_until(lambda: len(left_of(second.directory)) > 6, "the jobs have no processes")
    for _ in range(2):
        cluster.stop(second.directory)
    assert left_of(second.directory) == ()
    assert teardown.cgroup_folders(second.manifest.nodes) == ()
    assert CliRunner().invoke(sandbox_group, ["status", "--dir", str(second.directory)]).exit_code == 3
    assert shell.accounted(shell.submit_and_wait(), "State") == "COMPLETED"
    theirs = Path(tempfile.gettempdir()) / f"#sql-temptable-{os.getpid()}"  # of another MariaDB
    theirs.touch()
    again = Shell(cluster.start(bare(second.directory, nodes=2)))
    assert theirs.exists()
    theirs.unlink()
    assert again.accounted(job, "State") == "COMPLETED"
    assert again.submit_and_wait() > job


def test_the_mode_is_changed_and_the_service_restarted(sandbox: Sandbox) -> None:
    first = teardown.running_record(sandbox.layout, daemons.SERVE)
    cluster.set_mode(sandbox.directory, "advise")
    second = teardown.running_record(sandbox.layout, daemons.SERVE)
    assert load_config(str(sandbox.layout.rightsizer_toml)).mode == "advise"
    cluster.stop_service(sandbox.directory)
    assert teardown.running_record(sandbox.layout, daemons.SERVE) is None
    cluster.set_mode(sandbox.directory, "observe")
    assert teardown.running_record(sandbox.layout, daemons.SERVE) is None
    cluster.start_service(sandbox.directory)
    third = teardown.running_record(sandbox.layout, daemons.SERVE)
    assert first is not None
    assert second is not None
    assert third is not None
    assert len({first.identity, second.identity, third.identity}) == 3


def test_an_up_that_fails_halfway_says_why_and_cleans_up(
    make_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make_folder() / "half"

    def broken(cluster_: Cluster) -> Daemon:
        broken_conf = cluster_.layout.etc / "broken.conf"
        broken_conf.write_text("NoSuchKey=1\n")
        argv = (cluster_.program("slurmctld"), "-D", "-f", str(broken_conf))
        return Daemon("slurmctld", argv, lambda: "not there")

    monkeypatch.setattr(daemons, "slurmctld", broken)
    with pytest.raises(
        SandboxError, match=r"slurmctld ended right after its start: .*NoSuchKey.*read .*slurmctld\.out"
    ):
        cluster.start(bare(directory))
    assert left_of(directory) == ()
    monkeypatch.undo()
    cluster.start(bare(directory))
    cluster.stop(directory)


def test_down_cleans_up_after_an_up_that_was_killed(make_folder: Callable[[], Path]) -> None:
    directory = make_folder() / "killed"
    argv = [
        sys.executable,
        "-m",
        "slurm_plugin.cli",
        "sandbox",
        "up",
        "--no-hook",
        "--no-serve",
        f"--dir={directory}",
    ]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        deadline = time.monotonic() + PATIENCE_S
        while not (directory / "run" / "slurmdbd.json").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(up.pid, signal.SIGKILL)
    assert left_of(directory)
    (directory / "run" / "munged.json").unlink()
    cluster.stop(directory)
    assert left_of(directory) == ()


def test_a_prefix_brings_its_own_programs_and_plugins(make_folder: Callable[[], Path]) -> None:
    prefix = make_folder() / "slurm"
    system = find_programs(None)
    for name in (*SLURM_PROGRAMS, "sbatch", "srun"):
        folder = prefix / ("sbin" if name in {"slurmctld", "slurmd", "slurmdbd"} else "bin")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(system.path(name))
    plugins = next(Path("/usr").glob("lib*/**/auth_munge.so"), None)
    if plugins is None:
        pytest.skip("this host's Slurm plugins are not below /usr")
    (prefix / "lib").mkdir()
    (prefix / "lib" / "slurm").symlink_to(plugins.parent)
    options = Options(
        directory=make_folder() / "other", nodes=1, hook=False, serve=False, slurm_prefix=prefix
    )
    other = cluster.start(options)
    assert {record.argv[0] for record in read_records(other.layout.run)} >= {f"{prefix}/sbin/slurmctld"}
    assert f"PluginDir={prefix}/lib/slurm" in other.layout.slurm_conf.read_text().splitlines()
    assert other.environment()["PATH"].startswith(f"{prefix}/sbin:{prefix}/bin:")
    assert Shell(other).submit_and_wait()
    cluster.stop(other.directory)


@pytest.mark.parametrize("name", OTHER_RELEASES)
def test_another_release_runs_from_a_prefix(name: str, make_folder: Callable[[], Path]) -> None:
    prefix = OTHER_RELEASES[name]
    reason = why_missing(prefix)
    if reason:
        pytest.skip(reason)
    options = Options(directory=make_folder() / "other", nodes=2, serve=False, slurm_prefix=prefix)
    other = cluster.start(options)
    user = Shell(other)
    assert other.manifest.release.split()[-1] == user.run("sbatch", "--version").split()[-1]
    job = user.submit_and_wait("--gres=gpu:2", "--mem=200", "--cpus-per-task=3", script="srun hostname")
    assert user.accounted(job, "State") == "COMPLETED"
    assert user.allocated(job)["gres/gpu"] == "2"
    if other.manifest.enforcement.memory:
        over = user.submit_and_wait("--mem=100", script=ALLOCATE_300_MIB)
        assert user.accounted(over, "State") == "OUT_OF_MEMORY"
    user.submit(script="sleep 600")
    cluster.stop(other.directory)
    assert left_of(other.directory) == ()


def test_an_ordinary_user_has_a_sandbox_too(make_folder: Callable[[], Path]) -> None:
    if os.geteuid() != 0:
        pytest.skip("all the other tests show it already: they do not run as root")
    # 26.05 does not accept `nobody` as SlurmUser.
    user = pwd.getpwnam("games")
    as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    skip_unless_read_by(user.pw_uid)
    folder = make_folder()
    os.chown(folder, user.pw_uid, user.pw_gid)
    directory = folder / "own"
    program = [sys.executable, "-m", "slurm_plugin.cli", "sandbox"]
    up = [*as_user, *program, "up", f"--dir={directory}", "--nodes=1", "--no-hook", "--no-serve"]
    answer = subprocess.run(up, capture_output=True, text=True, check=False, cwd="/")
    assert answer.returncode == 0, answer.stderr
    assert "memory enforcement off: only root may make cgroups" in answer.stderr
    sandbox = cluster.load(directory)
    job = [*as_user, "sbatch", "--wait", "--parsable", "-o", "/dev/null", "--gres=gpu:1", "--wrap=true"]
    environment = {**os.environ, **sandbox.environment()}
    assert subprocess.run(job, check=False, cwd="/", env=environment, capture_output=True).returncode == 0
    with pytest.raises(SandboxError, match=f"belongs to user {user.pw_uid}"):
        cluster.stop(directory)
    subprocess.run([*as_user, *program, "down", f"--dir={directory}", "--remove"], check=True, cwd="/")
    assert left_of(directory) == ()
