"""The sandbox's folders: their modes, and which ones are refused."""

import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from accounting.errors import SandboxError
from slurm_plugin.sandbox import files
from slurm_plugin.sandbox.layout import ROOT_BYTES_MAX, Layout


def test_folders_and_secrets_have_their_modes(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "sandbox")
    old = os.umask(0o077)
    try:
        files.make_folders(layout)
        files.write_file(layout.slurm_conf, "x", 0o644)
        files.write_file(layout.munge_key, "x", 0o600)
    finally:
        os.umask(old)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in layout.root.rglob("*")}
    assert modes[layout.etc] == modes[layout.run] == 0o755
    assert modes[layout.secret] == modes[layout.database] == 0o700
    assert modes[layout.gpu_spool] == 0o1777
    assert (modes[layout.slurm_conf], modes[layout.munge_key]) == (0o644, 0o600)


def test_a_folder_owned_by_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(
        SandboxError, match=f"belongs to user {tmp_path.stat().st_uid}; run this as that user"
    ):
        files.make_folders(Layout(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_folder_mounted_noexec_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with pytest.raises(SandboxError, match="mounted noexec"):
        files.make_folders(Layout(tmp_path))


def test_a_disk_without_room_for_a_new_sandbox_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path)
    monkeypatch.setattr(files, "LEAST_FREE_MIB", 10**9)
    with pytest.raises(
        SandboxError, match="MiB of free space, and a new sandbox needs 1000000000; free some"
    ):
        files.make_folders(layout)
    assert not list(tmp_path.iterdir())
    layout.manifest.touch()  # one that exists already has its files
    files.make_folders(layout)


def test_a_folder_that_may_not_be_looked_up_is_reported_in_one_line(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path, **_words: bool) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(SandboxError, match=r"cannot read .*: Permission denied"):
        files.check_folder(Layout(short_path / "theirs"))


def test_a_folder_with_other_content_or_an_unsuitable_path_is_refused(short_path: Path) -> None:
    (short_path / "thesis.tex").touch()
    with pytest.raises(SandboxError, match="neither empty nor a sandbox"):
        files.check_folder(Layout(short_path))
    with pytest.raises(SandboxError, match="not a folder"):
        files.check_folder(Layout(short_path / "thesis.tex"))
    with pytest.raises(SandboxError, match="characters"):
        files.check_folder(Layout(Path("/srv/a b")))
    files.check_folder(Layout(Path("/srv/rightsizer-none-such")))


def test_a_folder_whose_path_is_too_long_for_step_sockets_is_refused() -> None:
    longest = Layout(Path("/srv") / ("x" * (ROOT_BYTES_MAX - len("/srv/"))))
    files.check_folder(longest)
    node = longest.node_names(64)[-1]
    assert len(os.fsencode(longest.state / node / f"{node}_999999.4294967291")) == 107
    with pytest.raises(SandboxError, match="too long a path"):
        files.check_folder(Layout(longest.root.with_name(longest.root.name + "x")))


def test_a_closed_parent_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    assert files.closed_parent(tmp_path / "closed" / "inner") is not None
    assert files.closed_parent(Path("/usr/bin")) is None
