"""The file of pulled brakes: written completely or not at all, and everything is stopped if it cannot be read."""

import multiprocessing
import os
from pathlib import Path

import pytest

from accounting.errors import ServiceError
from slurm_plugin.brakes.pulled import FILE, Pulled, PulledFile, Stopped
from slurm_plugin.brakes.tallies import Counts
from slurm_plugin.policy.braked import ALL, Brake, family_brake, partition_brake
from tests.builders import DEEP

GPU, FIT = partition_brake("gpu"), family_brake("ann", "fit-1")


def pulled(brake: Brake, why: str = "by hand") -> Pulled:
    return Pulled(brake=brake, time_s=1.5, why=why, counts=Counts(shrunk=4, failed=4, wanted=4))


def test_a_pulled_brake_stays_until_it_is_released(tmp_path: Path) -> None:
    file = PulledFile(tmp_path / "new")
    assert file.read() == Stopped()
    assert not file.let_go(GPU)
    file.pull(pulled(GPU))
    file.pull(pulled(FIT))
    file.pull(pulled(GPU, "again"))
    assert PulledFile(tmp_path / "new").read() == Stopped((pulled(GPU), pulled(FIT)))
    assert file.let_go(GPU)
    assert file.read().brakes == {FIT}


def test_a_family_stopped_by_an_older_release_stays_stopped_until_it_is_released(tmp_path: Path) -> None:
    file, now = PulledFile(tmp_path), family_brake("ann", "nf-bwa_(WT)")
    for name in ("nf-bwa_(s#)", "nf-bwa_(#)"):
        file.pull(pulled(Brake("family", "ann", name)))
    assert file.read().brakes == {now}
    assert file.let_go(now)
    assert file.read() == Stopped()


@pytest.mark.parametrize(
    "content", [b"", b"[", b"{}", b'[{"brake":{"level":"node"}}]', b"\xff\xfe", b"[" + DEEP]
)
def test_a_damaged_file_stops_everything_and_is_not_overwritten(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    file = PulledFile(tmp_path)
    assert "is damaged" in file.read().damaged
    assert file.read().brakes == {ALL}
    with pytest.raises(ServiceError, match=r"is damaged.*; nothing is cut until `rightsizer enable --all`"):
        file.pull(pulled(GPU))
    assert not file.let_go(GPU)
    assert (tmp_path / FILE).read_bytes() == content
    assert file.let_go(ALL)
    assert file.read() == Stopped()


def test_a_file_that_may_not_be_read_stops_everything(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    assert "cannot be read" in PulledFile(tmp_path).read().damaged


def test_a_change_is_seen_at_the_next_look(tmp_path: Path) -> None:
    file = PulledFile(tmp_path)
    seen = [file.changed()]
    for change in (lambda: file.pull(pulled(GPU)), lambda: file.pull(pulled(FIT)), lambda: file.let_go(GPU)):
        change()
        assert file.changed() not in seen
        assert file.changed() == file.changed()
        seen.append(file.changed())


def test_a_folder_that_cannot_be_made_is_an_expected_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServiceError, match=r"set brakes\.directory"):
        PulledFile(tmp_path / "file" / "folder").pull(pulled(GPU))


def pull_many(folder: str, who: int) -> None:
    for number in range(20):
        PulledFile(Path(folder)).pull(pulled(partition_brake(f"p{who}-{number}")))


def test_two_processes_that_pull_at_once_lose_no_brake(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork" if os.name == "posix" else None)
    both = [context.Process(target=pull_many, args=(str(tmp_path), who)) for who in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(30)
    assert [one.exitcode for one in both] == [0, 0]
    assert len(PulledFile(tmp_path).read().pulled) == 40
