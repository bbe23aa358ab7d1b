"""The units an admin installs, as systemd itself reads them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.config import Advisor
from slurm_plugin.slurm.factor_log import STATE

UNITS = Path(__file__).parents[2] / "etc" / "systemd"
INSTALLED = "/opt/rightsizer/bin/rightsizer"


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """Copies whose command exists on this machine: systemd looks for it."""
    for unit in UNITS.iterdir():
        text = unit.read_text(encoding="utf-8").replace(INSTALLED, "/bin/true")
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    return sorted(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_finds_nothing_wrong_with_any_unit(units: list[Path]) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, units)],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "rightsizer" in line]
    assert (ours, done.returncode) == ([], 0), done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_sees_what_is_wrong(units: list[Path]) -> None:
    (train,) = (unit for unit in units if unit.name == "rightsizer-train.service")
    train.write_text(
        train.read_text(encoding="utf-8").replace("Type=oneshot", "Tipe=oneshot"), encoding="utf-8"
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(train)], capture_output=True, text=True, check=False
    )
    assert "Tipe" in done.stderr


def test_training_first_reads_accounting_and_every_timer_has_its_service() -> None:
    lines = (UNITS / "rightsizer-train.service").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line.startswith("ExecStart=")]
    assert commands == [f"ExecStart={INSTALLED} ingest", f"ExecStart={INSTALLED} train"]
    assert all(timer.with_suffix(".service").exists() for timer in UNITS.glob("*.timer"))


def test_an_advisor_that_stops_or_dies_leaves_nothing_behind() -> None:
    service = (UNITS / "rightsizer-advise.service").read_text(encoding="utf-8").splitlines()
    assert f"ExecStopPost={INSTALLED} advise --undo" in service
    lease = (UNITS / "rightsizer-advise-lease.service").read_text(encoding="utf-8").splitlines()
    assert f"ExecStart={INSTALLED} advise --undo --expired" in lease
    # Both look at the folder that the configuration names by default.
    assert f"ConditionPathExists={Advisor().directory}/{STATE}" in lease
