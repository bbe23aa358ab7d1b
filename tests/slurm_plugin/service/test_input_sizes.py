"""The size of a submission's input, on real files; and no answer waits for a file server that hangs."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accounting.decisions.decision import decode_decision
from models.past.families import family_keys
from slurm_plugin.config.settings import Config, Inputs
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service import aside, input_sizes
from slurm_plugin.service.answers import Answers
from slurm_plugin.service.aside import MOST_LATE, REST_S, Aside
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.input_sizes import MIB, InputSizes
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.readable_files import Reader
from tests.builders import submission
from tests.conftest import PATIENCE_S, Site
from tests.slurm_plugin.service.asking import asked, line_of, model_in_use
from tests.waiting import wait_until

WAIT_S = 0.004
SOON_S = 10.0  # on a busy machine, still shorter than a wait for anything that hangs


def config(*roots: Path | str, **inputs: Any) -> Config:
    return Config(inputs=Inputs(roots=tuple(map(str, roots)), **inputs))


def of(script: str, **changes: Any) -> Submission:
    """Return a submission of root, who may read the tests' files wherever they are."""
    return submission(uid=0, script=f"#!/bin/sh\n{script}\n", **changes)


def wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let answers wait for the size of their input, however busy the machine is."""
    monkeypatch.setattr(input_sizes, "Aside", lambda work, _wait_s: Aside(work, PATIENCE_S))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, mib in {"a.csv": 1, "b.csv": 2}.items():
        (tmp_path / name).write_bytes(b"x" * (mib * MIB))
    return tmp_path


def test_the_sizes_of_all_existing_files_are_added_up(root: Path) -> None:
    look = InputSizes(config(root)).look
    assert look(of(f"fit {root}/a.csv {root}/b.csv {root}/missing.csv /etc/passwd")) == 3.0
    assert look(of(f"fit {root}/a.csv > {root}/b.csv")) == 1.0
    assert look(of("fit a.csv", work_dir=str(root))) == 1.0
    assert look(of("fit a.csv")) is None
    assert look(of(f"fit {root}/missing.csv")) is None
    assert look(of("fit --all")) is None


def test_one_file_whose_size_is_secret_makes_the_total_unknown(root: Path) -> None:
    (root / "link.csv").symlink_to("/etc/passwd")
    assert InputSizes(config(root)).look(of(f"fit {root}/a.csv {root}/link.csv")) is None


def test_more_files_than_the_site_allows_are_not_looked_at(root: Path) -> None:
    looked: list[str] = []

    def size(path: str, _roots: Sequence[str], _reader: Reader) -> int:
        looked.append(path)
        return 1

    sizes = InputSizes(config(root, most_files=2), size)
    assert sizes.look(of(f"fit {root}/1.c {root}/2.c /elsewhere/3.c")) is not None
    assert sizes.look(of(f"fit {root}/1.c {root}/2.c {root}/3.c")) is None
    assert looked == [f"{root}/1.c", f"{root}/2.c"]


def test_nothing_is_looked_at_without_roots(root: Path) -> None:
    def never(_path: str, _roots: Sequence[str], _reader: Reader) -> int:
        raise AssertionError

    assert InputSizes(config(), never).mib(of(f"fit {root}/a.csv")) is None
    assert InputSizes(config(root), never).mib(submission(script="")) is None


def test_an_unknown_user_has_no_input(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_long(monkeypatch)
    one = msgspec.structs.replace(of(f"fit {root}/a.csv"), uid=2**31 - 5)
    sizes = InputSizes(config(root))
    assert [sizes.mib(one) for _ in range(3)] == [None] * 3
    assert "work beside an answer failed" in caplog.text


def test_files_that_hang_delay_no_answer(root: Path) -> None:
    begun, hangs = threading.Event(), threading.Event()

    def hang(_path: str, _roots: Sequence[str], _reader: Reader) -> int:
        begun.set()
        hangs.wait(30)
        return 5 * MIB

    threads = threading.active_count()
    sizes = InputSizes(config(root), hang)
    since_s = time.perf_counter()
    assert sizes.mib(of(f"fit {root}/a.csv")) is None
    assert begun.wait(PATIENCE_S)
    # Once timed out, nobody waits for it again, and no other look is started.
    assert [sizes.mib(of(f"fit {root}/b.csv")) for _ in range(1000)] == [None] * 1000
    assert time.perf_counter() - since_s < SOON_S
    assert threading.active_count() == threads + 1
    hangs.set()
    # Once it is back, other files are looked at, and do not get its result.
    wait_until(sizes._aside._is_back)
    sizes._aside._wait_s = PATIENCE_S
    assert sizes.mib(of(f"fit {root}/a.csv")) == 5.0


def test_a_late_result_is_given_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    gates = {name: threading.Event() for name in ("slow", "quick")}
    gates["quick"].set()

    def work(name: str) -> str:
        gates[name].wait(30)
        return name

    beside: Aside[str, str] = Aside(work, PATIENCE_S)
    assert beside.ask("quick") == "quick"
    monkeypatch.setattr(beside, "_wait_s", WAIT_S)
    assert beside.ask("slow") is None
    assert beside.ask("quick") is None
    gates["slow"].set()
    monkeypatch.setattr(beside, "_wait_s", PATIENCE_S)
    wait_until(lambda: beside.ask("quick") == "quick")


def test_after_some_late_results_in_a_row_nothing_is_asked_for_a_while() -> None:
    now_s = [0.0]
    late, done = threading.Semaphore(0), threading.Semaphore(0)
    slow = [True]

    def work(_asked: int) -> int:
        if slow[0]:
            late.acquire(timeout=PATIENCE_S)
        done.release()
        return 1

    beside: Aside[int, int] = Aside(work, WAIT_S, lambda: now_s[0])
    for number in range(MOST_LATE):
        assert beside.ask(number) is None
        late.release()
        assert done.acquire(timeout=PATIENCE_S)
        wait_until(beside._is_back)
    slow[0] = False
    beside._wait_s = PATIENCE_S
    assert beside.ask(0) is None
    assert not done.acquire(timeout=0.1)
    now_s[0] = REST_S + 1
    assert beside.ask(0) == 1


def test_the_wait_is_part_of_the_deadline_of_the_hook(root: Path) -> None:
    quick = Config(inputs=Inputs(roots=(str(root),), deadline_ms=100))
    sizes = InputSizes(quick)
    assert sizes._aside._wait_s == pytest.approx(0.010)
    assert aside.MOST_LATE * sizes._aside._wait_s < quick.hook.deadline_ms / 1000 * 2


def test_roots_of_a_new_configuration_count_from_the_next_job_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_long(monkeypatch)
    file, journal = site.folder / "a.csv", Path(site.config.service.journal)
    file.write_bytes(b"x" * MIB)
    answers = Answers(site.config, model_in_use(site.config), CurrentFacts(site.config), Journal(journal))
    line = line_of(of(f"fit {file}"))
    assert asked(answers.handle, line)
    answers.retune(site.configure(inputs={"roots": [str(site.folder)]}))
    assert asked(answers.handle, line)
    (written,) = journal.iterdir()
    decisions = [decode_decision(line) for line in written.read_bytes().splitlines()]
    assert [one.request.input_mib for one in decisions if one] == [None, 1.0]


def test_the_input_does_not_change_the_family(root: Path) -> None:
    from slurm_plugin.policy.submission import job_request

    request = job_request(of(f"fit {root}/a.csv"))
    assert family_keys(request) == family_keys(msgspec.structs.replace(request, input_mib=3.0))
