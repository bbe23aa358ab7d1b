"""The service's user can write what root writes in the service's folder, whatever umask root has."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accounting.owned_files import make_folder, open_owned, replace_whole
from accounting.store.database import open_store
from models.versions import registry
from models.versions.artefact import MANIFEST
from models.versions.promotion_log import locked_log
from slurm_plugin.brakes.pulled import Pulled, PulledFile
from slurm_plugin.day_files import append_line
from slurm_plugin.policy.braked import partition_brake
from slurm_plugin.recovery.journal import LAST_ROUND, Journal
from slurm_plugin.slurm.factor_log import FactorLog, now
from slurm_plugin.slurm.factor_state import FactorState
from slurm_plugin.slurm.lease import Lease
from slurm_plugin.switches import throw

NOBODY = pwd.getpwnam("nobody")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root writes into another user's folder")


@pytest.fixture(params=[0o022, 0o077, 0o000])
def theirs(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder of the user nobody, within that user's reach, while root's umask is one that a site may have."""
    with tempfile.TemporaryDirectory(prefix="owned-") as name:
        reached = Path(name)
        reached.chmod(0o755)
        folder = reached / "state"
        folder.mkdir()
        os.chown(folder, NOBODY.pw_uid, NOBODY.pw_gid)
        folder.chmod(0o750)
        before = os.umask(request.param)
        try:
            yield folder
        finally:
            os.umask(before)


@contextlib.contextmanager
def service() -> Iterator[None]:
    """Act as the service's user: without root's effective ids, root's rights are gone."""
    os.setegid(NOBODY.pw_gid)
    os.seteuid(NOBODY.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def owner_and_mode(path: Path) -> tuple[int, int, int]:
    seen = path.stat()
    return seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)


def pull(folder: Path, partition: str = "gpu") -> None:
    PulledFile(folder / "brakes").pull(Pulled(brake=partition_brake(partition), time_s=1.0, why="by hand"))


def recover(folder: Path) -> None:
    with Journal(folder / "recovery").alone():
        Journal(folder / "recovery").note_round()


def advise(folder: Path) -> None:
    log = FactorLog(folder / "advisor", "c1")
    with log.held():
        log.change(lambda _: FactorState(cluster="c1", lease=Lease(now(), 60.0)))


def cycle(folder: Path) -> None:
    append_line(folder / "cycles", "cycles-*.jsonl", time.time(), b"{}\n")


@as_root
@pytest.mark.parametrize("command", [pull, recover, advise, cycle])
def test_the_service_continues_after_a_command_of_root(theirs: Path, command: Callable[[Path], None]) -> None:
    command(theirs)
    made = sorted(theirs.rglob("*"))
    assert len(made) >= 2
    assert {owner_and_mode(path)[:2] for path in made} == {(NOBODY.pw_uid, NOBODY.pw_gid)}
    assert not any(path.stat().st_mode & 0o022 for path in made)
    with service():
        command(theirs)


@as_root
def test_a_store_that_root_makes_can_be_written_by_the_service(theirs: Path) -> None:
    engine = open_store(f"sqlite:///{theirs}/new/store.db", create=True)
    engine.dispose()
    assert owner_and_mode(theirs / "new" / "store.db") == (NOBODY.pw_uid, NOBODY.pw_gid, 0o640)
    with service(), contextlib.closing(sqlite3.connect(theirs / "new" / "store.db")) as opened:
        opened.execute("DELETE FROM alembic_version")
        opened.commit()


@as_root
def test_a_model_that_root_trains_can_be_read_promoted_and_removed_by_the_service(theirs: Path) -> None:
    models = theirs / "models"
    with registry.new_version(models, "v1") as draft:
        (draft / MANIFEST).write_text("{}", encoding="ascii")
    with locked_log(models):
        pass
    with service():
        assert (models / "v1" / MANIFEST).read_text(encoding="ascii") == "{}"
        with locked_log(models):
            shutil.rmtree(models / "v1")
    assert registry.versions(models) == []


@as_root
def test_brakes_that_root_pulled_can_be_read_and_kept_by_the_service(theirs: Path) -> None:
    pull(theirs)
    with service():
        pull(theirs, "cpu")
        found = PulledFile(theirs / "brakes").read()
    assert not found.damaged
    assert found.brakes == {partition_brake("gpu"), partition_brake("cpu")}


@as_root
def test_a_round_of_the_service_counts_after_one_of_root(theirs: Path) -> None:
    recover(theirs)
    last = theirs / "recovery" / LAST_ROUND
    os.utime(last, (1.0, 1.0))
    with service():
        recover(theirs)
    assert last.stat().st_mtime > 1.0


@as_root
def test_a_switch_that_root_throws_is_readable_by_every_user_and_the_service_removes_it(theirs: Path) -> None:
    switch = theirs / "disabled"
    throw(switch)
    throw(switch)
    assert owner_and_mode(switch) == (NOBODY.pw_uid, NOBODY.pw_gid, 0o644)
    with service():
        throw(switch)
        switch.unlink()


@as_root
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_do_not_lead_root_to_another_file(theirs: Path, link: Callable[[Path, Path], None]) -> None:
    precious = theirs.parent / "precious"
    precious.write_text("kept", encoding="ascii")
    precious.chmod(0o600)
    before = owner_and_mode(precious)
    link(precious, theirs / "evidence.new")
    replace_whole(theirs / "evidence.json", b"{}")
    assert (theirs / "evidence.json").read_bytes() == b"{}"
    assert precious.read_text(encoding="ascii") == "kept"
    (theirs / "advisor.lock").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        open_owned(theirs / "advisor.lock", os.O_RDWR | os.O_CREAT, 0o640)
    assert owner_and_mode(precious) == before


def test_a_file_in_ones_own_folder_is_made_as_usual(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        make_folder(tmp_path / "a" / "b")
        for flags in (os.O_CREAT, os.O_CREAT, os.O_CREAT | os.O_TRUNC):
            os.close(open_owned(tmp_path / "a" / "b" / "file", os.O_RDWR | flags, 0o666))
    finally:
        os.umask(before)
    own = os.geteuid(), os.getegid()
    assert owner_and_mode(tmp_path / "a" / "b") == (*own, 0o750)
    assert owner_and_mode(tmp_path / "a" / "b" / "file") == (*own, 0o640)
    with pytest.raises(FileExistsError):
        open_owned(tmp_path / "a" / "b" / "file", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
    with pytest.raises(OSError, match="file"):
        make_folder(tmp_path / "a" / "b" / "file" / "folder")


def test_a_switch_is_readable_by_every_user_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        throw(tmp_path / "disabled")
    finally:
        os.umask(before)
    assert owner_and_mode(tmp_path / "disabled")[2] == 0o644
