"""The collector as a command: started, stopped, without a GPU, without pynvml."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pynvml
import pytest
from click.testing import CliRunner, Result

from accounting.errors import RightsizerError
from accounting.gpu_collector.hardware import has_nvidia_gpu
from accounting.gpu_collector.nvml import Nvml, NvmlFault
from bench import nvml_stand_in
from slurm_plugin.cli.collect import collect
from tests.accounting.gpu_collector.node import Node
from tests.accounting.gpu_collector.started import PATIENCE_S, said_by, started, wait_for
from tests.spools import read_spool


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = nvml_stand_in.build(tmp_path_factory.mktemp("nvml"))
    if built is None:
        pytest.skip("needs a C compiler")
    return built


def test_the_command_writes_what_it_saw_when_it_is_told_to_end(tmp_path: Path, stand_in: Path) -> None:
    named = {**os.environ, "SLURM_JOB_ID": "41"}
    with subprocess.Popen(["sleep", "900"], env=named) as sleeping:
        environment = nvml_stand_in.environment(stand_in, gpus="3", pids=f"{sleeping.pid};1", lost="2")
        environment["SLURMD_NODENAME"] = "n5"
        process = started(tmp_path, environment, "--job", "41", "--every", "0.1")
        try:
            wait_for(lambda: "is lost" in said_by(tmp_path), process)
            time.sleep(3.0)
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            sleeping.kill()
    watching, lost = said_by(tmp_path).splitlines()
    assert process.returncode == 0
    assert watching.startswith("watching 3 GPUs of n5 every 0.1 s")
    assert lost.startswith("GPU 2 does not answer (GPU is lost)")
    (file,) = (tmp_path / "spool").iterdir()
    assert file.name.startswith("n5-job41-")
    (line,) = file.read_text().splitlines()
    told = json.loads(line)
    first_s, last_s = told.pop("first_s"), told.pop("last_s")
    assert 3 <= told.pop("samples") <= 10 * (last_s - first_s + 1) + 1
    assert abs(first_s - time.time()) < 600
    assert told == {
        "cluster": "",
        "job_id": 41,
        "node": "n5",
        "gpu": 0,
        "instance": -1,
        "source": "nvml",
        "util_max_pct": 80.0,
        "util_mean_pct": 80.0,
        "mem_max_mib": 1000.0,
        "power_mean_w": 350.0,
    }


def test_the_command_ends_with_its_job(tmp_path: Path, stand_in: Path) -> None:
    named = {**os.environ, "SLURM_JOB_ID": "42"}
    with subprocess.Popen(["sleep", "900"], env=named) as sleeping:
        environment = nvml_stand_in.environment(stand_in, gpus="1", pids=str(sleeping.pid))
        process = started(tmp_path, environment, "--job", "42", "--node", "n5")
        try:
            wait_for(lambda: "watching" in said_by(tmp_path), process)
            time.sleep(3.0)
            sleeping.kill()
            sleeping.wait()
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            sleeping.kill()
    assert process.returncode == 0
    (use,) = read_spool(tmp_path / "spool")[0]
    assert (use.job_id, use.node) == (42, "n5")


def test_without_a_gpu_the_command_says_so_and_succeeds(tmp_path: Path, stand_in: Path) -> None:
    environment = nvml_stand_in.environment(stand_in, gpus="0")
    process = started(tmp_path, environment, "--node", "n5")
    assert (process.wait(PATIENCE_S), said_by(tmp_path)) == (0, "no GPU to watch on n5: NVML lists none\n")
    try:
        Nvml().close()
    except NvmlFault:
        if has_nvidia_gpu():
            return
        process = started(tmp_path, dict(os.environ), "--node", "n5")
        assert process.wait(PATIENCE_S) == 0
        (said,) = said_by(tmp_path).splitlines()
        assert said.startswith("no GPU to watch on n5: ")


def test_without_pynvml_the_command_names_the_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlFault, match="nvidia-ml-py is not installed"):
        Nvml()


def collected(node: Node, monkeypatch: pytest.MonkeyPatch, fault: int) -> Result:
    """Run the collector, which is told to end at once, while the driver answers with a fault."""
    monkeypatch.setattr("accounting.gpu_collector.loop.until_signalled", lambda: lambda _seconds: True)
    node.fake.driver = fault
    return CliRunner().invoke(collect, ["--spool", str(node.spool)])


def test_a_library_newer_than_the_driver_does_not_mean_a_node_without_gpus(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd then tries again: the driver only has to be reloaded."""
    found = collected(node, monkeypatch, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    assert isinstance(found.exception, RightsizerError)
    assert "reload the driver" in str(found.exception)


@pytest.mark.parametrize(
    "fault", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_GPU_IS_LOST]
)
def test_a_driver_that_answers_with_a_fault_does_not_mean_a_node_without_gpus(
    node: Node, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    """systemd then tries again: otherwise a collector that may not yet open the devices, as at boot, never meters."""
    found = collected(node, monkeypatch, fault)
    assert isinstance(found.exception, RightsizerError)
    assert "NVML does not answer on" in str(found.exception)


@dataclass
class Hardware:
    """What the kernel reports on a host made by a test: an NVIDIA switch, a graphics card of another vendor."""

    pci: Path
    character_devices: Path

    def plug(self, slot: str, vendor: str, kind: str) -> None:
        (self.pci / slot).mkdir(parents=True)
        (self.pci / slot / "vendor").write_text(f"{vendor}\n")
        (self.pci / slot / "class").write_text(f"{kind}\n")

    def load(self, driver: str) -> None:
        self.character_devices.write_text(f"Character devices:\n  1 mem\n195 {driver}\n\nBlock devices:\n")


@pytest.fixture
def hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hardware:
    made = Hardware(tmp_path / "pci", tmp_path / "devices")
    made.plug("0000:00:01.0", "0x10de", "0x068000")
    made.plug("0000:00:02.0", "0x1002", "0x030000")
    made.load("nouveau")
    monkeypatch.setattr("accounting.gpu_collector.hardware.PCI", made.pci)
    monkeypatch.setattr("accounting.gpu_collector.hardware.CHARACTER_DEVICES", made.character_devices)
    return made


@pytest.mark.parametrize("fault", [pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND])
@pytest.mark.usefixtures("hardware")
def test_a_node_without_driver_or_library_is_no_failure(
    node: Node, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    found = collected(node, monkeypatch, fault)
    assert (found.exit_code, found.exception) == (0, None)
    assert "no GPU to watch" in found.stderr


@pytest.mark.parametrize("kind", ["0x030000", "0x030200"])
@pytest.mark.parametrize("driver", ["nvidia", "nvidia-frontend"])
def test_the_driver_of_a_gpu_that_the_node_has_is_waited_for(
    node: Node, hardware: Hardware, monkeypatch: pytest.MonkeyPatch, kind: str, driver: str
) -> None:
    """Where nothing loads the driver at boot, the first job that needs it does."""
    hardware.plug("0000:00:06.0", "0x10de", kind)
    (hardware.pci / "0000:00:07.0").mkdir()  # a GPU that was removed
    waits: list[float] = []

    def stopped(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 3:
            hardware.load(driver)
        return False

    monkeypatch.setattr("accounting.gpu_collector.loop.until_signalled", lambda: stopped)
    node.fake.driver = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    found = CliRunner().invoke(collect, ["--spool", str(node.spool)])
    assert "but its driver is not loaded" in found.stderr
    assert waits == [30.0] * 3
    assert isinstance(found.exception, RightsizerError)
    assert "start the collector again" in str(found.exception)


def test_a_stop_ends_the_wait_for_a_driver(
    node: Node, hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    hardware.plug("0000:00:06.0", "0x10de", "0x030200")
    found = collected(node, monkeypatch, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    assert (found.exit_code, found.exception) == (0, None)
    hardware.load("nvidia")
    # The driver's device files are made a moment later.
    found = collected(node, monkeypatch, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    assert "NVML does not answer on" in str(found.exception)
