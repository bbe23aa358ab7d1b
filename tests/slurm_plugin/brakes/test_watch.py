"""What is read from the feed counts once, and a pulled brake is held until it is written down."""

import logging
import time
from pathlib import Path

import msgspec
import pytest

from accounting.records import Attempt
from accounting.request import JobRequest
from models.past.attempts import past_job
from models.past.recent import Finished
from models.past.trials import Trial
from models.sequential import Wealth
from models.versions.feed import append_jobs
from slurm_plugin.brakes import watch
from slurm_plugin.brakes.pools import Outcome, Portion, Wholes
from slurm_plugin.brakes.pulled import FILE, PulledFile
from slurm_plugin.brakes.tallies import Counts, Tally
from slurm_plugin.brakes.watch import Kept, Watch
from slurm_plugin.config.settings import Config
from slurm_plugin.policy.braked import ALL, Brake, family_brake
from tests.builders import attempt, executable

KILLED = Trial(shrunk=True, failed=True, wanted="out_of_memory")
FIT = family_brake("ann", "fit")
NOBODY_RUNS = "#!/bin/sh\n"


class Site:
    """A feed, brakes and a squeue of its own, and the set of brakes that hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held: list[Brake] = []
        self.squeue(NOBODY_RUNS)

    def squeue(self, script: str) -> None:
        executable(self.folder / "bin" / "squeue", script)

    def watch(self) -> Watch:
        plain = Config()
        config = msgspec.structs.replace(
            plain,
            brakes=msgspec.structs.replace(plain.brakes, directory=str(self.folder / "brakes")),
            models=msgspec.structs.replace(plain.models, directory=str(self.folder / "models")),
        )
        return Watch(config, self.held.append, lambda _: False)

    def end(self, numbers: range, trial: Trial | None = KILLED, name: str = "fit") -> None:
        one: Attempt = attempt()
        request, job, now_s = JobRequest(user="ann", job_name=name), past_job(one), time.time()
        told = [
            Finished(
                told_s=now_s, request=request, job=msgspec.structs.replace(job, job_id=number), trial=trial
            )
            for number in numbers
        ]
        append_jobs(self.folder / "models", told, now_s)

    def stopped(self) -> frozenset[Brake]:
        return PulledFile(self.folder / "brakes").read().brakes


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return Site(tmp_path)


def test_a_run_that_appears_twice_counts_once_also_after_a_restart(site: Site) -> None:
    for _ in range(8):
        site.end(range(1))
        site.watch().look()
    assert site.stopped() == frozenset()
    site.end(range(1, 4))
    site.watch().look()
    assert site.stopped() == {FIT}


# As kept by a release whose counts had five numbers, and whose runs had two.
FAILS = [[[0.0] * 3] * 10, [[0.0] * 2] * 10]
EARLIER = {
    "evidence": {
        "families": {"ann\0fit": [[3, 3, 3, 2, 1], [[[1.0, 2.0, 3.0]], [[0.0, 0.0]]], FAILS]},
        "by_partition": {
            "main": [
                [[2, 1, 1, 7, 0], [[[0.5, 0.25, 0.0]], [[0.0, 0.0]]], FAILS],
                {"ann": [1764000000.5, [1, 1, 1, 2, 0]]},
                [["bob", 0.5, 0.25]],
                {"cid": [7, 0.5]},
            ]
        },
    },
    "offsets": {"20251124.jsonl": 120},
    "runs": [[1764000000, 17]],
}


def test_what_an_earlier_release_counted_still_counts() -> None:
    kept = msgspec.json.decode(msgspec.json.encode(EARLIER), type=Kept)
    family, main = kept.evidence.families["ann\0fit"], kept.evidence.by_partition["main"]
    assert family.counts == Counts(shrunk=3, failed=3, wanted=3, whole=2, whole_failed=1, memory_whole=0)
    assert family.kills == Wealth(judged=((1.0, 2.0, 3.0),), others=((0.0, 0.0),))
    assert family.fails == Tally().fails
    assert main.tally.counts == Counts(shrunk=2, failed=1, wanted=1, whole=7)
    counts = Counts(shrunk=1, failed=1, wanted=1, whole=2)
    assert main.portions == {"ann": Portion(since_s=1764000000.5, counts=counts)}
    assert main.outcomes == (Outcome(user="bob", failed=0.5, wanted=0.25),)
    assert main.wholes == {"cid": Wholes(portions=7, failed=0.5)}
    assert (kept.offsets, kept.runs) == ({"20251124.jsonl": 120}, ((1764000000, 17),))


def test_a_bounded_number_of_counted_runs_is_remembered(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "REMEMBERED_RUNS", 2)
    looks = site.watch()
    for numbers in (range(2), range(2), range(1, 2)):
        site.end(numbers)
        looks.look()
    assert site.stopped() == frozenset()
    # The second of three pushes out the first, which then counts again.
    for numbers in (range(2, 3), range(1)):
        site.end(numbers)
        looks.look()
    assert site.stopped() == {FIT}


def test_counts_are_stored_at_once_and_then_every_minute(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    moment_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: moment_s)
    looks, kept, sizes = site.watch(), site.folder / "brakes" / watch.EVIDENCE, list[int]()
    for number, at_s in enumerate((1000.0, 1059.0, 1060.0)):
        moment_s = at_s
        site.end(range(number, number + 1))
        looks.look()
        sizes.append(kept.stat().st_size)
    assert sizes[0] == sizes[1] < sizes[2]
    # No job has ended since.
    kept.unlink()
    moment_s = 2000.0
    looks.look()
    assert not kept.exists()


def test_jobs_that_still_run_are_evidence_against_a_brake_until_they_end(site: Site) -> None:
    """The killed tasks of an array end first; each look asks squeue once, and only about families in danger."""
    site.squeue(f"#!/bin/sh\necho asked >>{site.folder}/asked\nfor i in $(seq 99); do echo fit; done\n")
    looks = site.watch()
    site.end(range(8))
    site.end(range(10, 18), Trial(shrunk=True), name="other")
    looks.look()
    assert site.stopped() == frozenset()
    assert (site.folder / "asked").read_text() == "asked\n"
    site.squeue(NOBODY_RUNS)
    site.end(range(20, 21))
    looks.look()
    assert site.stopped() == {FIT}
    # Once a person releases the brake its counts start anew.
    PulledFile(site.folder / "brakes").let_go(FIT)
    site.end(range(21, 22))
    looks.look()
    assert site.stopped() == frozenset()


def test_no_job_counts_as_running_if_squeue_fails_and_that_is_logged_once(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.squeue("#!/bin/sh\nexit 1\n")
    looks = site.watch()
    for number, name in enumerate(("fit", "sim")):
        site.end(range(10 * number, 10 * number + 4), name=name)
        looks.look()
    assert site.stopped() == {FIT, family_brake("ann", "sim")}
    assert caplog.text.count("the brakes do not know what runs") == 1


def test_a_brake_that_no_disk_takes_is_held_at_every_look_and_written_once_one_does(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    looks = site.watch()
    (site.folder / "brakes").write_text("no folder")
    site.end(range(8))
    looks.look()
    site.end(range(8, 16))
    looks.look()
    assert site.stopped() == frozenset()
    assert site.held == [FIT] * 3, "as it is pulled, and at each look"
    assert caplog.text.count("the brakes do not see all") == 1
    assert caplog.text.count("stopped cutting") == 1
    (site.folder / "brakes").unlink()
    for _ in range(2):
        looks.look()
    assert site.stopped() == {FIT}
    assert len(site.held) == 4


def test_a_brake_that_a_damaged_file_cannot_take_is_pulled_once_it_is_replaced(site: Site) -> None:
    looks, file = site.watch(), site.folder / "brakes" / FILE
    site.end(range(3))
    looks.look()
    site.end(range(3, 4))
    file.write_bytes(b"[]")
    read = PulledFile.read
    with pytest.MonkeyPatch.context() as patch:
        # It is damaged just after the look has read it.
        patch.setattr(PulledFile, "read", lambda own: (read(own), file.write_bytes(b"["))[0])
        looks.look()
    assert site.stopped() == {ALL}
    PulledFile(file.parent).let_go(ALL)
    looks.look()
    assert site.stopped() == {FIT}


def test_a_run_that_says_nothing_about_cuts_is_skipped(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    looks = site.watch()
    with caplog.at_level(logging.ERROR):
        site.end(range(4), trial=None)
        looks.look()
    assert caplog.text == ""
    assert not (site.folder / "brakes").exists()
