"""The systemd units that an admin installs, checked by systemd itself."""

import ctypes.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_plugin.config.settings import Advisor
from slurm_plugin.slurm.factor_log import STATE
from tests.conftest import PATIENCE_S, Site, TrainedModel
from tests.slurm_plugin.service.asking import install, reply

UNITS = Path(__file__).parents[2] / "etc" / "systemd"
INSTALLED = "/opt/rightsizer/bin/rightsizer"
# systemd's exposure score, from 0 to 10. docs/security.md says why the two units with more need it.
MOST_EXPOSED = 1.0
MORE_EXPOSED = {"rightsizer-clients.service": 1.2, "rightsizer-collect.service": 1.2}

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here (Debian: systemd)"
)


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """Return copies whose command exists on this machine, because systemd looks for it."""
    for unit in UNITS.iterdir():
        text = unit.read_text(encoding="utf-8").replace(INSTALLED, "/bin/true")
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    return sorted(tmp_path.iterdir())


@needs_systemd
def test_systemd_accepts_every_unit(units: list[Path]) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, units)],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "rightsizer" in line]
    assert (ours, done.returncode) == ([], 0), done.stderr


def test_every_oneshot_unit_has_a_start_timeout() -> None:
    once = [text for unit in UNITS.glob("*.service") if "Type=oneshot" in (text := unit.read_text("utf-8"))]
    assert len(once) == 4
    assert [re.search(r"^TimeoutStartSec=\d+(min|h)$", text, re.MULTILINE) for text in once].count(None) == 0


def test_a_unit_that_cannot_start_is_retried_for_ever_with_a_pause() -> None:
    """For example with a wrong configuration. systemd gives up after five starts of a unit within ten seconds."""
    pauses_s = [
        int(found[1])
        for unit in UNITS.glob("*.service")
        if "\nRestart=" in (text := unit.read_text("utf-8"))
        and (found := re.search(r"^RestartSec=(\d+)$", text, re.MULTILINE))
    ]
    assert len(pauses_s) == 6
    assert min(pauses_s) >= 5


@needs_systemd
def test_systemd_reports_a_wrong_unit(units: list[Path]) -> None:
    (train,) = (unit for unit in units if unit.name == "rightsizer-train.service")
    train.write_text(
        train.read_text(encoding="utf-8").replace("Type=oneshot", "Tipe=oneshot"), encoding="utf-8"
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(train)], capture_output=True, text=True, check=False
    )
    assert "Tipe" in done.stderr


def test_training_ingests_first_and_every_timer_has_its_service() -> None:
    lines = (UNITS / "rightsizer-train.service").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line.startswith("ExecStart=")]
    assert commands == [
        f"ExecStart={INSTALLED} ingest",
        f"ExecStart={INSTALLED} train",
        f"ExecStart={INSTALLED} ingest --prune",
    ]
    assert all(timer.with_suffix(".service").exists() for timer in UNITS.glob("*.timer"))


def test_an_advisor_that_stops_or_dies_leaves_nothing_behind() -> None:
    service = (UNITS / "rightsizer-advise.service").read_text(encoding="utf-8").splitlines()
    assert f"ExecStopPost={INSTALLED} advise --undo" in service
    lease = (UNITS / "rightsizer-advise-lease.service").read_text(encoding="utf-8").splitlines()
    assert f"ExecStart={INSTALLED} advise --undo --expired" in lease
    # Both look at the folder that the configuration names by default.
    assert f"ConditionPathExists={Advisor().directory}/{STATE}" in lease


PAGES = [page.read_text(encoding="utf-8") for page in (UNITS.parents[1] / "docs").glob("*.md")]


def test_no_page_lets_the_service_user_write_files_in_etc() -> None:
    commands = [command for page in PAGES for command in re.findall(r"sudo -u slurm (.*)", page)]
    assert commands
    assert [command for command in commands if " /etc/" in command] == []


def drop_ins() -> list[str]:
    """Return the drop-ins in the pages: the indented blocks that contain [Service]."""
    blocks = [block for page in PAGES for block in re.findall(r"(?:^    .*\n)+", page, re.MULTILINE)]
    return [block for block in blocks if "[Service]" in block]


def test_a_drop_in_with_capabilities_over_files_of_others_leaves_the_user_namespace() -> None:
    """In a user namespace all other users are nobody, and capabilities do not cover their files."""
    powerful = [block for block in drop_ins() if "AmbientCapabilities" in block]
    assert len(powerful) == 2
    assert [block for block in powerful if "PrivateUsers=no" not in block] == []


@needs_systemd
@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.stem)
def test_no_unit_is_more_exposed_than_it_needs_to_be(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    if found is None and "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze looks at no files (systemd before 250)")
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= MORE_EXPOSED.get(unit.name, MOST_EXPOSED), done.stdout


def confined(unit: str, site: Site, *words: str) -> subprocess.Popen[bytes]:
    """Start a command of ours under a unit's system call filter."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.slurm_plugin.confined", str(UNITS / unit), *site.command(*words)],
        env={**os.environ, "RIGHTSIZER_CONFIG": str(site.config_file)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@needs_systemd
@pytest.mark.skipif(ctypes.util.find_library("seccomp") is None, reason="there is no libseccomp here")
def test_the_service_answers_under_the_system_call_filter_of_its_unit(
    site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    service = confined("rightsizer.service", site, "serve")
    site.running.append(service)
    until_s = time.monotonic() + PATIENCE_S
    while not site.socket.exists():
        assert service.poll() is None, service.communicate()[1].decode()
        assert time.monotonic() < until_s
        time.sleep(0.05)
    status = Path(f"/proc/{service.pid}/status").read_text(encoding="utf-8")
    assert "Seccomp:\t2" in status, "the filter is not in force"
    assert reply(site).grant.mem_per_node_mib
    service.send_signal(signal.SIGTERM)
    assert service.wait(PATIENCE_S) == 0
