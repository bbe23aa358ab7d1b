"""A GPU spool in which jobs' users may write: whose lines count for which job, and that no user delays others."""

import os
import pwd
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine

from accounting.gpu_spool import files as gpu_spool
from accounting.gpu_spool.files import WAITS_S, Owners, read_spool_on
from accounting.gpu_spool.owners import SLACK_S, is_his, owners_of
from accounting.ingest.ingesting import ingest
from accounting.ingest.retry import retry
from accounting.ingest.run import Run
from accounting.pseudonyms import Pseudonyms
from accounting.store.quarantine import list_quarantine
from accounting.store.records import Ran, read_attempts
from accounting.unnamed import nobody
from tests.accounting.ingest.recorded import NOW_S, settings_of
from tests.accounting.ingest.test_gpu_spool import sample
from tests.builders import T0, FakeSacct, gpu_use, job_line

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
USER, OTHER = "games", "mail"
HIDDEN = Pseudonyms(b"0123456789abcdef" * 4)
START_S = T0 + 10


def put(spool: Path, name: str, owner: str, text: str) -> Path:
    spool.mkdir(exist_ok=True)
    file = spool / name
    file.write_text(text)
    known = pwd.getpwnam(owner)
    os.chown(file, known.pw_uid, known.pw_gid)
    return file


def busy(job_id: int, util_pct: float = 90) -> str:
    return "".join(sample(job_id, START_S + 10 * n, util_pct=util_pct) for n in range(5))


def gpus_of(store: Engine) -> dict[int, int | None]:
    return {one.row.job_id: one.use.gpus for one in read_attempts(store)}


def reasons(store: Engine) -> list[str]:
    with store.connect() as connection:
        return sorted(group.reason for group in list_quarantine(connection))


@needs_root
@pytest.mark.parametrize("pseudonyms", [None, HIDDEN])
def test_a_users_lines_count_only_for_their_own_jobs_whenever_these_become_known(
    store: Engine, tmp_path: Path, pseudonyms: Pseudonyms | None
) -> None:
    fake = FakeSacct(tmp_path / "slurm", [job_line(7, START_S, User=USER), job_line(8, START_S, User=OTHER)])
    settings = msgspec.structs.replace(settings_of(fake, tmp_path), pseudonyms=pseudonyms)
    spool = settings.gpu_spool
    put(spool, "a.jsonl", USER, busy(7))
    put(spool, "b.jsonl", USER, busy(8, util_pct=0))
    # The samples are there before sacct has reported the jobs.
    ingest(store, settings, NOW_S)
    assert gpus_of(store) == {7: None, 8: None}
    assert reasons(store) == []
    ingest(store, settings, NOW_S)
    assert gpus_of(store) == {7: 1, 8: None}
    uid = pwd.getpwnam(USER).pw_uid
    told = [f"'b.jsonl' of uid {uid}: lines of jobs that are not known to belong to the file's owner"]
    assert reasons(store) == told
    # When tried again it is still not this user's job; and what was decided is not read again.
    run = Run(settings, NOW_S)
    retry(store, run, lambda _begin_s, _end_s: pytest.fail("nothing is asked of Slurm"))
    report = ingest(store, settings, NOW_S)
    assert (report.gpu_use.new, gpus_of(store), reasons(store)) == (0, {7: 1, 8: None}, told)


@needs_root
def test_in_a_folder_of_users_one_run_is_enough(store: Engine, tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path / "slurm", [job_line(7, START_S, User=USER)])
    settings = settings_of(fake, tmp_path)
    put(settings.gpu_spool, "a.jsonl", USER, busy(7))
    settings.gpu_spool.chmod(0o3777)
    ingest(store, settings, NOW_S)
    assert gpus_of(store) == {7: 1}


@needs_root
def test_lines_of_accounts_that_the_site_trusts_count_for_all_jobs(store: Engine, tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path / "slurm", [job_line(job_id, START_S, User=USER) for job_id in (7, 8)])
    settings = settings_of(fake, tmp_path)
    put(settings.gpu_spool, "a.jsonl", "root", busy(7))
    # The folder belongs to a trusted account: a meter's, or the service's where root ingests by hand.
    put(settings.gpu_spool, "b.jsonl", OTHER, busy(8))
    os.chown(settings.gpu_spool, pwd.getpwnam(OTHER).pw_uid, -1)
    ingest(store, settings, NOW_S)
    assert (gpus_of(store), reasons(store)) == ({7: 1, 8: 1}, [])


@needs_root
def test_odd_files_are_reported_and_delay_no_other(store: Engine, tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path / "slurm", [job_line(7, START_S, User=USER)])
    settings = settings_of(fake, tmp_path)
    spool = settings.gpu_spool
    elsewhere = put(tmp_path / "elsewhere", "secret", "root", busy(7, util_pct=0))
    spool.mkdir()
    os.mkfifo(spool / "a.jsonl")
    (spool / "b.jsonl").symlink_to(elsewhere)
    (spool / "c.jsonl").symlink_to("/dev/zero")
    os.link(elsewhere, spool / "d.jsonl")
    with put(spool, "e.jsonl", USER, "").open("wb") as hole:
        hole.truncate(1024**4)
    # Only now: Debian does not even let root write to a user's file in such a folder (fs.protected_regular).
    spool.chmod(0o1777)
    put(spool, "z.jsonl", "root", busy(7))
    # Last: there, not even root can open another user's file with O_CREAT (fs.protected_regular).
    spool.chmod(0o1777)
    ingest(store, settings, NOW_S)
    assert gpus_of(store) == {7: 1}
    uid = pwd.getpwnam(USER).pw_uid
    assert reasons(store) == [
        "'a.jsonl' of uid 0: it cannot be read: not a regular file",
        "'d.jsonl' of uid 0: it has several names (hard links); leave only one",
        f"'e.jsonl' of uid {uid}: lines that are not valid",
    ]


@needs_root
def test_a_run_reads_a_bounded_part_of_one_users_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_spool, "USER_BYTES", 3 * gpu_spool.BLOCK_BYTES)
    uid = pwd.getpwnam(USER).pw_uid
    for name in "abcde":
        put(tmp_path, f"{name}.jsonl", USER, sample(7, START_S))
    asked: list[int] = []

    def his(owner: int, _uses: object) -> list[bool | None]:
        asked.append(owner)
        return [True]

    parts = list(read_spool_on(tmp_path, {}, NOW_S, "", Owners(frozenset({0}), his)))
    assert 2 <= len(parts) <= 3
    assert set(asked) == {uid}


@needs_root
def test_of_large_files_a_users_are_not_read_further_and_the_sites_are_read_completely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_spool, "PART_BYTES", 5000)
    monkeypatch.setattr(gpu_spool, "USER_BYTES", 3 * gpu_spool.BLOCK_BYTES)
    large = sample(7, START_S) * 500
    for name, owner in (("a", USER), ("b", USER), ("z", "root")):
        put(tmp_path, f"{name}.jsonl", owner, large)
    owners = Owners(frozenset({0}), lambda _uid, uses: [True] * len(uses))
    read = {part.path.stem: part.read_bytes for part in read_spool_on(tmp_path, {}, NOW_S, "", owners)}
    assert read.pop("z") == len(large)
    assert 3 * gpu_spool.BLOCK_BYTES - 200 < sum(read.values()) <= 3 * gpu_spool.BLOCK_BYTES


@needs_root
def test_nothing_in_a_file_is_skipped_behind_a_line_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_spool, "PART_BYTES", 1000)
    text = [sample(job_id, START_S) for job_id in (*[7] * 20, 8, *[7] * 20)]
    file = put(tmp_path, "a.jsonl", USER, "".join(text))
    known = {7}
    owners = Owners(frozenset({0}), lambda _uid, uses: [use.job_id in known or None for use in uses])
    offsets: dict[str, int] = {}
    for samples, read_bytes in ((20, len("".join(text[:20]))), (0, None), (21, file.stat().st_size)):
        parts = list(read_spool_on(tmp_path, offsets, NOW_S, "", owners))
        assert sum(use.samples for part in parts for use in part.uses) == samples
        offsets.update({part.file: part.read_bytes for part in parts})
        assert read_bytes in (None, *offsets.values())
        if not samples:
            known.add(8)


@needs_root
def test_lines_wait_for_their_job_but_not_for_ever(tmp_path: Path) -> None:
    file = put(
        tmp_path, "a.jsonl", USER, sample(7, START_S) + "\n" + sample(8, START_S) + sample(7, START_S + 10)
    )
    os.utime(file, (NOW_S, NOW_S))
    owners = Owners(frozenset({0}), lambda _uid, uses: [True if use.job_id == 7 else None for use in uses])
    (part,) = read_spool_on(tmp_path, {}, NOW_S, "", owners)
    assert [use.job_id for use in part.uses] == [7]
    assert part.read_bytes == len(sample(7, START_S)) + 1
    assert list(read_spool_on(tmp_path, {part.file: part.read_bytes}, NOW_S, "", owners)) == []
    late, told = read_spool_on(tmp_path, {part.file: part.read_bytes}, NOW_S + WAITS_S + 1, "", owners)
    assert ([use.job_id for use in late.uses], late.read_bytes) == ([7], file.stat().st_size)
    assert len(told.quarantined) == 1


@needs_root
def test_a_line_written_meanwhile_waits(tmp_path: Path) -> None:
    file = put(tmp_path, "a.jsonl", USER, sample(7, START_S))

    def grows(_uid: int, _uses: object) -> list[bool | None]:
        with file.open("a") as opened:
            opened.write(sample(7, START_S))
        return [True]

    (part,) = read_spool_on(tmp_path, {}, NOW_S, "", Owners(frozenset({0}), grows))
    assert part.read_bytes < file.stat().st_size


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        ([], None),
        ([Ran("alpha", "ann", T0, T0 + 100)], True),
        ([Ran("alpha", "bob", T0, T0 + 100)], False),
        # the number came again: at another time, in another cluster, and both at once
        ([Ran("alpha", "ann", T0 - 9_000_000, T0 - 8_000_000), Ran("alpha", "bob", T0, T0 + 100)], False),
        ([Ran("alpha", "ann", T0 - 9_000_000, T0 - 8_000_000)], None),
        ([Ran("beta", "ann", T0, T0 + 100)], None),
        ([Ran("alpha", "ann", T0, T0 + 100), Ran("alpha", "bob", T0, T0 + 100)], False),
        ([Ran("alpha", "ann", T0 + 20 + SLACK_S, T0 + 900)], None),
    ],
)
def test_a_use_belongs_to_the_user_whose_job_ran_under_its_number_then(
    runs: list[Ran], verdict: bool | None
) -> None:
    use = msgspec.structs.replace(gpu_use(), cluster="alpha", first_s=T0 + 10, last_s=T0 + 20)
    assert is_his(use, runs, "ann") is verdict


@pytest.mark.parametrize(("uid", "user"), [(nobody(), "nobody"), (2**31 - 7, "")])
def test_an_owner_without_a_name_has_no_jobs(uid: int, user: str, store: Engine, tmp_path: Path) -> None:
    """Not even those of `nobody`, to which a file server maps root, or of jobs for which sacct names no user."""
    settings = settings_of(FakeSacct(tmp_path / "slurm", [job_line(7, START_S, User=user)]), tmp_path)
    ingest(store, settings, NOW_S)
    use = gpu_use(job_id=7, first_s=START_S, last_s=START_S)
    assert is_his(use, [Ran("alpha", user, START_S, START_S)], user)
    assert uid > 0
    assert owners_of(store, [], lambda name: name).verdicts(uid, [use]) == [False]
