"""Journals whose folder may not be listed: ingest takes what it can, and names what it cannot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import FakeSacct
from tests.conftest import Site


@pytest.fixture
def analyst() -> list[str]:
    """How to run a command as somebody whom permissions bind."""
    if os.geteuid():
        return []
    command = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    if subprocess.run([*command, sys.executable, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("another user cannot run this Python")
    return command


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_lies_in_a_closed_folder_is_named(is_closed: bool, site: Site, analyst: list[str]) -> None:
    closed = {}
    for section, key in (("service", "journal"), ("advisor", "directory"), ("recovery", "directory")):
        folder = site.folder / f"closed-{section}"
        folder.mkdir()
        folder.chmod(0o000 if is_closed else 0o755)
        closed[section] = {key: str(folder)}
    spool = site.folder / "no-spool-yet"
    fake = FakeSacct(site.folder / "slurm", [])
    for folder in (site.folder, site.folder / "slurm"):
        folder.chmod(0o777)
    site.configure(**closed, accounting={"sacct": str(fake.command), "gpu_spool": str(spool)})
    said = ran_as(analyst, site.config_file)
    for what, section in (
        ("decisions", "service"),
        ("the advisor's plans", "advisor"),
        ("recoveries", "recovery"),
    ):
        line = f"{what} are left out: {site.folder / f'closed-{section}'}: Permission denied"
        assert (line in said) == is_closed, said
    assert "the use of GPUs" not in said


def ran_as(analyst: list[str], config: Path) -> str:
    command = [*analyst, sys.executable, "-m", "slurm_plugin.cli", "ingest", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr
