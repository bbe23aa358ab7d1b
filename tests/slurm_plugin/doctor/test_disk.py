"""What the doctor says of free space, of files that root left behind, and of rows that should have been removed."""

import errno
import os
import pwd
import subprocess
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import msgspec
import pytest

from slurm_plugin.doctor.checks import judge
from slurm_plugin.doctor.disk_checks import LEAST_BYTES, LEAST_INODES
from slurm_plugin.doctor.finding import Finding
from slurm_plugin.doctor.look_disk import look_at_disks, look_at_owners
from slurm_plugin.doctor.seen import DiskSeen
from tests.slurm_plugin.doctor.installation import Installation
from tests.slurm_plugin.doctor.surrounded import found_without_capabilities
from tests.slurm_plugin.doctor.test_doctor import seen_of

DAY_S = 86400
NOBODY = pwd.getpwnam("nobody")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root leaves files of root behind")
PLENTY = DiskSeen(
    folders=("/var/lib/rightsizer/journal",),
    free_bytes=2**40,
    free_inodes=10**7,
    week_bytes=2**20,
    week_inodes=20,
)


def space(whole: Installation, **changes: object) -> Finding:
    seen = seen_of(whole, disks=(PLENTY, msgspec.structs.replace(PLENTY, **changes)))
    return next(one for one in judge(seen) if one.check == "space")


@pytest.mark.parametrize(
    ("change", "state", "said"),
    [
        ({}, "ok", "1024.00 GiB"),
        (
            {"free_bytes": LEAST_BYTES - 1},
            "warning",
            "only 1.00 GiB are free on the file system of /var/lib/rightsizer/journal",
        ),
        ({"free_bytes": 2**33, "week_bytes": 2**33 + 1}, "warning", "rightsizer writes 8.00 GiB a week"),
        ({"free_bytes": 2**33, "store_bytes": 2**34}, "warning", "rightsizer writes 16.00 GiB a week"),
        ({"free_inodes": LEAST_INODES - 1}, "warning", "9999 inodes are free"),
        ({"free_inodes": 50_000, "week_inodes": 50_001}, "warning", "rightsizer creates 50001 files a week"),
        ({"free_inodes": None}, "ok", "GiB"),
        ({"free_bytes": 0}, "problem", "0.00 GiB are free"),
        ({"free_inodes": 0}, "problem", "0 inodes are free"),
    ],
    ids=str,
)
def test_space_for_less_than_a_week_is_reported(
    whole: Installation, change: dict[str, object], state: str, said: str
) -> None:
    found = space(whole, **change)
    assert (found.state, said in found.what) == (state, True), found
    assert ("models --prune --apply" in found.fix) == (state != "ok")


def test_a_store_is_expected_to_grow_by_a_week_of_its_past_growth(whole: Installation) -> None:
    whole.store(ended_ago_s=364 * DAY_S)
    assert space(whole, free_bytes=2**31, store_bytes=2**36).state == "ok"
    assert space(whole, free_bytes=2**30, store_bytes=2**36).state == "warning"


def test_each_file_system_is_seen_once_with_everything_new_on_it(whole: Installation) -> None:
    [before] = look_at_disks(whole.site.config, time.time())
    assert (len(before.folders), before.store_bytes) == (7, (whole.site.folder / "store.db").stat().st_size)
    new, old = (whole.site.folder / "journal" / f"decisions-{day}.jsonl" for day in ("20260102", "20260101"))
    for file in (new, old):
        file.write_bytes(b"x" * 5000)
    os.utime(old, (1.0, 1.0))
    [after] = look_at_disks(whole.site.config, time.time())
    assert (after.week_bytes - before.week_bytes, after.week_inodes - before.week_inodes) == (5000, 1)
    free = os.statvfs(whole.site.folder)
    assert after.free_bytes <= free.f_bfree * free.f_frsize


@pytest.fixture
def theirs(whole: Installation) -> Installation:
    """Give all files to nobody, as if the service's user owned them."""
    for path in [whole.site.folder, *whole.site.folder.rglob("*")]:
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid, follow_symlinks=False)
    return whole


def test_a_closed_folder_is_an_error_and_not_taken_for_another_file_system(
    whole: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = Path.stat

    def closed(path: Path, **options: bool) -> os.stat_result:
        if path == whole.site.folder / "journal":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return status(path, **options)

    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(PermissionError):
        look_at_disks(whole.site.config, time.time())
    with pytest.raises(PermissionError):
        look_at_owners(whole.site.config)


def test_a_file_that_vanishes_while_its_folder_is_listed_hides_no_other(
    whole: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    [before] = look_at_disks(whole.site.config, time.time())
    folder = whole.site.folder / "journal"
    going, staying = (folder / f"decisions-{day}.jsonl" for day in ("20260102", "20260103"))
    for file in (going, staying):
        file.write_bytes(b"x" * 5000)
    listed = os.scandir

    def gone_meanwhile(path: Path) -> AbstractContextManager[list[os.DirEntry[str]]]:
        with listed(path) as entries:
            found = list(entries)
        if path == folder:
            going.unlink()
        return nullcontext(found)

    monkeypatch.setattr(os, "scandir", gone_meanwhile)
    [after] = look_at_disks(whole.site.config, time.time())
    assert (after.week_inodes, after.week_bytes) == (before.week_inodes + 1, before.week_bytes + 5000)


@as_root
def test_files_left_by_root_are_a_problem_with_a_one_line_fix(theirs: Installation) -> None:
    folder = theirs.site.folder
    assert theirs.found()[0]["owners"]["state"] == "ok"
    left = [folder / "journal" / "decisions-20260101.jsonl", folder / "store.db"]
    left[0].touch(0o644)
    os.chown(left[1], 0, 0)
    found = theirs.found()[0]["owners"]
    assert found["state"] == "problem"
    assert all(str(path) in found["saw"] for path in left)
    assert found["fix"] == " && ".join(f"chown -R nobody: {path}" for path in left)
    subprocess.run(["sh", "-c", found["fix"]], check=True)
    assert theirs.found()[0]["owners"]["state"] == "ok"


@as_root
def test_files_of_root_that_the_service_may_use_are_fine(theirs: Installation) -> None:
    [version] = [path for path in theirs.site.models.iterdir() if path.is_dir() and not path.is_symlink()]
    for file in version.iterdir():
        os.chown(file, 0, 0)
        file.chmod(0o644)
    shared = theirs.site.folder / "journal" / "decisions-20260101.jsonl"
    shared.touch()
    os.chown(shared, 0, NOBODY.pw_gid)
    shared.chmod(0o660)
    assert look_at_owners(theirs.site.config) == ()
    # To remove a version the service needs write permission for its folder.
    os.chown(version, 0, 0)
    (version / "history.json").chmod(0o600)
    [found] = look_at_owners(theirs.site.config)
    assert found.blocked == (str(version), str(version / "history.json"))


@as_root
def test_only_some_of_many_files_are_named_and_the_fix_changes_their_folder(theirs: Installation) -> None:
    journal = Path(theirs.site.config.service.journal)
    for number in range(9):
        (journal / f"decisions-2026010{number}.jsonl").touch(0o600)
    found = theirs.found()[0]["owners"]
    assert "and 6 more" in found["saw"]
    assert found["fix"] == f"chown -R nobody: {journal}"


def test_models_that_the_caller_may_not_write_are_a_warning(whole: Installation) -> None:
    models = whole.site.models
    (models / "recent").mkdir(exist_ok=True)
    for folder, mode in ((models / "recent", 0o550), (models, 0o750)):
        folder.chmod(mode)
    found = found_without_capabilities(whole.site)["model"]
    assert (found["state"], f"{models}/recent cannot be written" in found["saw"]) == ("warning", True)
    assert "ReadWritePaths=" in found["fix"]
    (models / "recent").chmod(0o750)
    assert found_without_capabilities(whole.site)["model"]["state"] == "ok"


def test_a_store_that_the_caller_may_not_write_is_a_warning_with_a_one_line_fix(
    whole: Installation,
) -> None:
    """For example SQLite's own file, made next to a read-only store: it stays read-only, and ingest fails."""
    store, beside = whole.site.folder / "store.db", whole.site.folder / "store.db-shm"
    store.chmod(0o440)
    found = found_without_capabilities(whole.site)["store"]
    assert (found["state"], str(store) in found["saw"]) == ("warning", True)
    store.chmod(0o640)
    beside.touch(0o440)
    found = found_without_capabilities(whole.site)["store"]
    assert (found["state"], str(beside) in found["saw"]) == ("warning", True)
    subprocess.run(["sh", "-c", found["fix"].partition("if you did, ")[2]], check=True)
    assert found_without_capabilities(whole.site)["store"]["state"] == "ok"


def test_rows_that_should_have_been_removed_are_reported(whole: Installation) -> None:
    whole.store(ended_ago_s=40 * DAY_S)
    assert whole.found()[0]["retention"]["saw"] == "store.keep_days is 0: nothing is removed"
    whole.site.configure(store={"keep_days": 38})
    assert whole.found()[0]["retention"]["state"] == "ok"
    whole.site.configure(store={"keep_days": 30})
    found = whole.found()[0]["retention"]
    assert (found["state"], found["saw"]) == (
        "warning",
        "the oldest job ended 40 days ago, store.keep_days is 30",
    )
    assert "ingest --prune" in found["fix"]
    assert whole.run("ingest", "--prune").code == 0
    assert whole.found()[0]["retention"]["state"] == "ok"
