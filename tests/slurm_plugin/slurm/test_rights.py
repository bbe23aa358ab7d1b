"""A process that may not give a job back its request requeues none, as it would stay held; nor does it plan in vain."""

import os
import pwd
from pathlib import Path

import pytest

from slurm_plugin.cli.advise import may_size_again
from slurm_plugin.config.settings import Advisor, Config
from slurm_plugin.slurm.rights import why_no_site_factors, why_not_in_their_names
from tests.builders import executable
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run, assert_one_line

NOBODY = pwd.getpwnam("nobody").pw_uid
CONFIG = "AccountingStorageType   = {storage}\nSlurmUser               = slurm({slurm_user})\n"
DBD = "accounting_storage/slurmdbd"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return commands of a Slurm in which this process is an operator, so that it can know that it may not act."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    slurm_is(tmp_path, "Operator")
    return tmp_path


def slurm_is(folder: Path, level: str, slurm_user: int = 64030, storage: str = DBD) -> None:
    config = CONFIG.format(storage=storage, slurm_user=slurm_user)
    executable(folder / "scontrol", f"#!/bin/sh\ncat <<'END'\n{config}END\n")
    executable(folder / "sacctmgr", f"#!/bin/sh\necho '{level}'\n" if level else "#!/bin/sh\nexit 1\n")


@pytest.mark.parametrize(
    ("level", "slurm_user", "storage", "user_id", "may"),
    [
        ("None", 64030, DBD, NOBODY, False),
        ("Operator", 64030, DBD, NOBODY, False),
        ("Administrator", 64030, DBD, NOBODY, True),
        ("None", NOBODY, DBD, NOBODY, True),
        ("None", 64030, DBD, 0, True),
        ("", 64030, DBD, NOBODY, True),  # slurmdbd is down: nobody can tell
        ("", 64030, "accounting_storage/none", NOBODY, False),
    ],
)
def test_root_slurm_user_and_administrators_may_act_for_users(
    level: str,
    slurm_user: int,
    storage: str,
    user_id: int,
    may: bool,
    commands: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slurm_is(commands, level, slurm_user, storage)
    monkeypatch.setattr(os, "geteuid", lambda: user_id)
    assert bool(why_not_in_their_names()) is not may


@pytest.mark.parametrize(
    ("level", "may"), [("None", False), ("Operator", True), ("Administrator", True), ("", True)]
)
def test_operators_may_set_site_factors_too(level: str, may: bool, commands: Path) -> None:
    slurm_is(commands, level)
    assert bool(why_no_site_factors()) is not may


def test_an_advisor_without_operator_rights_does_not_start(run: Run, site: Site, commands: Path) -> None:
    slurm_is(commands, "None")
    for words in (("--apply",), ("--watch", "--apply")):
        assert_one_line(run("advise", *words), 1, "operators set a SiteFactor, and nobody is none of these")
    assert not list((site.folder / "advisor").glob("cycles-*"))


@pytest.mark.usefixtures("commands")
def test_recovery_does_not_begin_what_it_may_not_complete(run: Run, site: Site) -> None:
    assert_one_line(run("recover", "--apply"), 1, "and nobody is none of these; run this as SlurmUser")
    assert_one_line(run("recover", "--watch", "--apply"), 1, "run this as SlurmUser")
    assert not (site.folder / "recovery").exists()


@pytest.mark.usefixtures("commands")
def test_an_advisor_that_is_only_an_operator_sizes_no_jobs_again_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert not may_size_again(Config(advisor=Advisor(late_sizing=True)))
    assert "nothing is sized again: Slurm lets only root, SlurmUser and administrators" in caplog.text
