"""Which files SlurmUser or users cannot read, looked at by root, who can read all of them."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.doctor.look_unreadable import unreadable
from tests.slurm_plugin.doctor.surrounded import Surrounded
from tests.slurm_plugin.surroundings import conf_folder, say_settings

NOBODY = pwd.getpwnam("nobody")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can look at files as another user")


@pytest.fixture
def shared() -> Iterator[Path]:
    """Make a folder that every user may enter; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@as_root
def test_root_sees_which_files_another_user_cannot_read(shared: Path) -> None:
    read, narrow, ours = (shared / name for name in ("read ünd.lua", "narrow\n.lua", "ours.lua"))
    for file, mode in ((read, 0o644), (narrow, 0o600), (ours, 0o640)):
        file.touch()
        file.chmod(mode)
    os.chown(ours, 0, NOBODY.pw_gid)
    hidden = shared / "hidden" / "hook.lua"
    hidden.parent.mkdir(mode=0o700)
    hidden.touch(0o644)
    link = shared / "link.lua"
    link.symlink_to(hidden)
    files = [read, narrow, ours, hidden, link, shared / "absent.lua"]
    assert unreadable(files, "nobody") == {narrow, hidden, link}
    assert unreadable(files) == unreadable(files, "root") == unreadable(files, "no-such-user") == set()


@as_root
def test_a_hook_that_slurm_user_cannot_read_is_a_problem_for_root_too(
    surrounded: Surrounded, shared: Path
) -> None:
    """As root makes it by the steps of docs/admin.md under umask 077; slurmctld then rejects every job."""
    beside = conf_folder(surrounded.site)
    theirs = {"SlurmUser": f"nobody({NOBODY.pw_uid})"}
    # pytest's folders are closed to nobody, and so are all files in them.
    say_settings(surrounded.site, **theirs)
    risk = "nobody, and so slurmctld, cannot read .*/job_submit.lua, .*: it rejects all jobs, or ends, at its next"
    surrounded.expect("hook", "problem", risk, "^chmod -R a[+]rX .*; nobody must also be able to enter")
    say_settings(surrounded.site, **theirs, JobSubmitPlugins="(null)")
    surrounded.expect("hook", "problem", f"^once slurm.conf names lua in JobSubmitPlugins: {risk}")
    open_to_all = shared / "etc"
    beside.rename(open_to_all)
    beside.symlink_to(open_to_all)
    say_settings(surrounded.site, **theirs, SLURM_CONF=f"{open_to_all}/slurm.conf")
    surrounded.expect("hook", "ok", "has the installed version")
    (open_to_all / "rightsizer_site.lua").chmod(0o600)
    surrounded.expect(
        "hook", "problem", "nobody, .* cannot read .*/rightsizer_site.lua: jobs are not changed$"
    )


def test_a_filter_that_users_cannot_read_is_a_warning(surrounded: Surrounded, shared: Path) -> None:
    """As root makes it by the steps of docs/clients.md under umask 077: root's own srun works, no other does."""
    beside = conf_folder(surrounded.site)
    open_to_all = shared / "etc"
    beside.rename(open_to_all)
    beside.symlink_to(open_to_all)
    say_settings(surrounded.site, SLURM_CONF=f"{open_to_all}/slurm.conf")
    surrounded.expect("hook", "ok", "has the installed version")
    (open_to_all / "cli_filter.lua").touch(0o644)
    surrounded.expect("hook", "ok", "has the installed version")
    (open_to_all / "cli_filter.lua").chmod(0o640)
    risk = "not every user may read .*/cli_filter.lua: with CliFilterPlugins=.*, no srun"
    surrounded.expect("hook", "warning", risk, "^chmod a[+]r .*/cli_filter.lua")
    say_settings(surrounded.site, SLURM_CONF=f"{open_to_all}/slurm.conf", JobSubmitPlugins="(null)")
    surrounded.expect("hook", "warning", risk)
    shared.chmod(0o700)
    (open_to_all / "cli_filter.lua").chmod(0o644)
    surrounded.expect("hook", "warning", risk)
    (open_to_all / "job_submit.lua").unlink()
    say_settings(surrounded.site, SLURM_CONF=f"{open_to_all}/slurm.conf")
    surrounded.expect("hook", "problem", "job_submit.lua does not exist")
