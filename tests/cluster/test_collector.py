"""The collector on a real Slurm: which process belongs to which job, by the cgroups and variables that Slurm makes."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from accounting.store.database import open_store
from accounting.store.records import read_attempts
from bench import nvml_stand_in
from slurm_plugin.config.file import load_config
from slurm_plugin.sandbox.cluster import Sandbox
from tests.cluster.conftest import PATIENCE_S, Shell
from tests.spools import read_spool

pytestmark = pytest.mark.cluster

# The interval at which every GPU is read.
EVERY_S = 0.2


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = nvml_stand_in.build(tmp_path_factory.mktemp("nvml"))
    if built is None:
        pytest.skip("needs a C compiler")
    return built


@pytest.fixture
def job(
    sandbox: Sandbox, other_shell: Shell, make_folder: Callable[[], Path]
) -> Iterator[tuple[int, int, str]]:
    """Yield a running job of an ordinary user with two GPUs: its id, the id of its process, its node."""
    if not sandbox.manifest.enforcement.memory:
        pytest.skip(f"Slurm makes no cgroups here: {sandbox.manifest.enforcement.reason}")
    file = make_folder() / "started"
    file.touch()
    file.chmod(0o666)
    script = f"echo $$ $SLURMD_NODENAME $SLURM_JOB_GPUS > {file}; sleep 900"
    number = other_shell.submit("--gres=gpu:2", script=script)
    until = time.monotonic() + PATIENCE_S
    while len(said := file.read_text().split()) < 3:
        assert time.monotonic() < until, "the job does not start"
        time.sleep(0.1)
    assert said[2] == "0,1"
    yield number, int(said[0]), said[1]
    other_shell.run("scancel", str(number))
    other_shell.wait_ended(number)


@contextmanager
def collecting(
    sandbox: Sandbox, stand_in: Path, pid: int, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the collector on four GPUs while the block runs; the process uses the first of them."""
    environment = nvml_stand_in.environment(stand_in, gpus="4", pids=f"{pid};;;")
    command = [sys.executable, "-m", "slurm_plugin.cli", "collect", "--spool", str(sandbox.layout.gpu_spool)]
    said = stand_in.with_name("said")
    with (
        said.open("wb") as errors,
        subprocess.Popen(
            [*command, "--every", str(EVERY_S), *arguments], env=environment, stderr=errors
        ) as process,
    ):
        try:
            until = time.monotonic() + PATIENCE_S
            while "watching 4 GPUs" not in said.read_text(encoding="utf-8"):
                assert process.poll() is None, said.read_text(encoding="utf-8")
                assert time.monotonic() < until, "the collector watches nothing"
                time.sleep(0.1)
            yield process
        finally:
            process.kill()


def test_a_collector_on_a_node_gives_each_job_the_use_of_its_gpus(
    sandbox: Sandbox, shell: Shell, other_shell: Shell, job: tuple[int, int, str], stand_in: Path
) -> None:
    number, pid, node = job
    with collecting(sandbox, stand_in, pid, "--node", "host") as process:
        time.sleep(20 * EVERY_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    uses = sorted((use for use in read_spool(sandbox.layout.gpu_spool)[0] if use.job_id == number), key=str)
    # The cgroup names the node; the job's variables name the GPU that it was given and leaves idle.
    assert [(use.node, use.gpu, use.util_max_pct, use.mem_max_mib, use.power_mean_w) for use in uses] == [
        (node, 0, 80.0, 1000.0, 350.0),
        (node, 1, 0.0, 0.0, 60.0),
    ]
    assert all(use.samples >= 5 for use in uses)
    other_shell.run("scancel", str(number))
    other_shell.wait_ended(number)
    shell.run("rightsizer", "ingest")
    engine = open_store(load_config(str(sandbox.layout.rightsizer_toml)).store.url)
    try:
        (attempt,) = read_attempts(engine, number)
    finally:
        engine.dispose()
    assert (attempt.row.alloc_gpus, attempt.use.gpus, attempt.use.gpu_source) == (2, 1, "nvml")


def test_a_collector_for_one_job_ends_with_it(
    sandbox: Sandbox, other_shell: Shell, job: tuple[int, int, str], stand_in: Path
) -> None:
    number, pid, node = job
    with collecting(sandbox, stand_in, pid, "--node", node, "--job", str(number)) as process:
        time.sleep(15 * EVERY_S)
        assert process.poll() is None
        other_shell.run("scancel", str(number))
        assert process.wait(PATIENCE_S) == 0
    uses = [use for use in read_spool(sandbox.layout.gpu_spool)[0] if use.job_id == number]
    assert {use.gpu for use in uses} == {0, 1}
