"""A user who is shown only their own jobs is warned: what sacct leaves out looks as if there were nothing new."""

import os
import pwd
from pathlib import Path

import pytest

from slurm_plugin.slurm.hidden_jobs import hidden_jobs, hidden_queue
from tests.builders import executable

NOBODY = pwd.getpwnam("nobody")
# From `sacctmgr show configuration` (22.05): the settings of slurm.conf, then those of slurmdbd.conf.
SAID = """\
PrivateData            = {client}
SlurmUserId            = root(0)

SlurmDBD configuration:
PrivateData            = {own}
SlurmUser              = slurm({slurm_user})
"""


@pytest.mark.parametrize(
    ("own", "client", "slurm_user", "level", "user_id", "hidden"),
    [
        ("jobs,usage", "none", 64030, "None", NOBODY.pw_uid, True),
        ("none", "jobs", 64030, "None", NOBODY.pw_uid, False),
        ("accounts,usage", "none", 64030, "None", NOBODY.pw_uid, False),
        ("jobs", "none", NOBODY.pw_uid, "None", NOBODY.pw_uid, False),
        ("jobs", "none", 64030, "Operator", NOBODY.pw_uid, False),
        ("jobs", "none", 64030, "Administrator", NOBODY.pw_uid, False),
        ("jobs", "none", 64030, "", NOBODY.pw_uid, True),
        ("jobs", "none", 64030, "None", 0, False),
    ],
)
def test_a_user_who_is_shown_only_their_own_jobs_is_warned(
    own: str,
    client: str,
    slurm_user: int,
    level: str,
    user_id: int,
    hidden: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = SAID.format(own=own, client=client, slurm_user=slurm_user)
    text = f"#!/bin/sh\nif [ \"$2\" = configuration ]; then cat <<'END'\n{said}END\nelse echo '{level}'; fi\n"
    executable(tmp_path / "sacctmgr", text)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(os, "geteuid", lambda: user_id)
    assert bool(hidden_jobs()) is hidden


def test_there_is_no_warning_if_slurmdbd_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "sacctmgr", "#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY.pw_uid)
    assert hidden_jobs() == ""


@pytest.mark.parametrize(
    ("kept", "level", "hidden"),
    [("jobs,usage", "None", True), ("accounts", "None", False), ("jobs", "Operator", False)],
)
def test_a_user_to_whom_slurmctld_shows_only_their_own_jobs_is_warned_too(
    kept: str, level: str, hidden: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = f"PrivateData             = {kept}\nSlurmUser               = slurm(64030)\n"
    executable(tmp_path / "scontrol", f"#!/bin/sh\ncat <<'END'\n{config}END\n")
    executable(tmp_path / "sacctmgr", f"#!/bin/sh\necho {level}\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY.pw_uid)
    assert ("nobody" in hidden_queue()) is hidden
