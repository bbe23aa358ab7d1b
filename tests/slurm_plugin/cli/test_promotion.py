"""Retraining next to a service that answers: a model that is no worse takes over, a worse or damaged one never does."""

import errno
import json
import os
import random
import re
import shutil
import signal
import string
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from accounting.decisions.token import find_token
from accounting.records import Attempt
from models.versions import artefact, registry
from models.versions.artefact import read_manifest, sealed
from slurm_plugin.cli.models import train
from slurm_plugin.cli.models.train import MOST_TOLD
from slurm_plugin.service.protocol import Request, decode_reply, encode_request
from tests.builders import T0, attempt, submission
from tests.conftest import IN_USE_S, PATIENCE_S, Site
from tests.slurm_plugin.conftest import Run, assert_one_line
from tests.slurm_plugin.service.asking import connect, model_of
from tests.stores import store_attempts

YEARS_S = 20 * 365 * 86400
KNOWN = submission(cpus_per_task=8, mem_per_node_mib=8000)


def jobs(first: int, count: int, mem_mib: float) -> list[Attempt]:
    """Return jobs of one family, one every 1000 s, that use about `mem_mib`."""
    return [
        attempt(
            job_id=number + 1,
            display_id=str(number + 1),
            submit_s=T0 + 1000 * number,
            start_s=T0 + 1000 * number + 10,
            elapsed_s=600,
            mem_mib=mem_mib + number % 7,
        )
        for number in range(first, first + count)
    ]


def uneven(first: int, count: int) -> list[Attempt]:
    """Return jobs of the same family whose needs differ by a third and more."""
    draw = random.Random(first)
    return [
        replace(one, use=replace(one.use, peak_mem_mib=2000 * draw.lognormvariate(0, 0.15)))
        for one in jobs(first, count, 0.0)
    ]


def store(site: Site, attempts: list[Attempt]) -> None:
    store_attempts(site.config.store.url, attempts)


def gates(run: Run) -> dict[str, tuple[str, str]]:
    """Return for every model in the list whether it is current, and what the gate said."""
    return {
        row["version"]: (row["current"], row["gate"])
        for row in json.loads(run("models", "--format", "json").out)
    }


@contextmanager
def load(site: Site) -> Iterator[list[tuple[float, str]]]:
    """Run clients that ask without a pause; yield what they got: (moment, model), with '' for a request that failed."""
    answers: list[tuple[float, str]] = []
    done = threading.Event()

    def ask_on(number: int) -> None:
        with connect(site.socket) as client, client.makefile("rb") as replies:
            while not done.is_set():
                job = msgspec.structs.replace(KNOWN, mem_per_node_mib=8000 + len(answers) % 50)
                client.sendall(encode_request(Request(v=1, id=str(number), kind="submit", job=job)))
                line = replies.readline()
                token = find_token(decode_reply(line).token) if line else None
                answers.append((time.monotonic(), token.model if token else ""))
                done.wait(0.005)

    threads = [threading.Thread(target=ask_on, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        done.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)


def until_in_use(answers: list[tuple[float, str]], version: str) -> float:
    """Wait for an answer by a version and return how long after now it came."""
    began = time.monotonic()
    while answers[-1][1] != version:
        assert time.monotonic() - began < PATIENCE_S
        time.sleep(0.005)
    return time.monotonic() - began


def test_retraining_promotes_a_better_model_while_the_service_answers(run: Run, site: Site) -> None:
    store(site, jobs(0, 60, 2000.0))
    ran = run("train")
    old = ran.out.strip()
    assert ran.code == 0, ran.err
    assert f"model {old} is current" in ran.err
    service = site.serve()
    store(site, jobs(60, 200, 150.0))
    with load(site) as answers:
        new = run("train", "--promote", "never").out.strip()
        assert registry.current_version(site.models) == old
        assert f"model {new} is current" in run("promote", new).err
        waited_s = until_in_use(answers, new)
        better = run("train")
    assert waited_s <= IN_USE_S
    assert "gate: " in better.err
    models = [model for _, model in answers]
    assert len(models) > 100
    assert set(models) <= {old, new, better.out.strip()}, "some request was not answered"
    assert gates(run)[old] == ("", "passed")
    service.send_signal(signal.SIGTERM)
    _, log = service.communicate(timeout=PATIENCE_S)
    assert b"Traceback" not in log


def test_a_gate_that_passes_puts_the_new_model_in_use(run: Run, site: Site) -> None:
    store(site, jobs(0, 60, 2000.0))
    old = run("train").out.strip()
    site.serve()
    assert model_of(site) == old
    store(site, jobs(60, 200, 150.0))
    with load(site) as answers:
        ran = run("train")
        new = ran.out.strip()
        assert f"model {new} is current" in ran.err, ran.err
        assert until_in_use(answers, new) <= IN_USE_S
    assert {model for _, model in answers} == {old, new}
    assert gates(run) == {old: ("", "passed"), new: ("yes", "passed")}


def moved(attempts: list[Attempt], by_s: int) -> list[Attempt]:
    """Return attempts that ran that much later."""
    times = ("submit_s", "start_s", "end_s")
    return [
        replace(one, row=replace(one.row, **{name: getattr(one.row, name) + by_s for name in times}))
        for one in attempts
    ]


@pytest.mark.parametrize("made_s", [T0 + 60_000, T0 + 2 * YEARS_S])
def test_jobs_from_while_a_clock_was_ahead_keep_no_later_model_from_being_judged(
    made_s: int, run: Run, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(site, [*jobs(0, 60, 2000.0), *moved(jobs(57, 3, 2000.0), YEARS_S)])
    with monkeypatch.context() as patch:
        # As with the releases that learned from all jobs, or with a clock that is still ahead.
        patch.setattr("slurm_plugin.cli.stored.time", SimpleNamespace(time=lambda: T0 + 2 * YEARS_S))
        patch.setattr("slurm_plugin.cli.models.train.time", SimpleNamespace(time=lambda: made_s))
        old = run("train").out.strip()
    assert read_manifest(site.models / old).last_end_s > time.time()
    store(site, jobs(60, 200, 150.0))
    ran = run("train")
    newer = ran.out.strip()
    assert registry.current_version(site.models) == newer != old, ran.err
    assert read_manifest(site.models / newer).last_end_s < time.time()
    assert ("the clock was ahead" in ran.err) is (made_s > time.time())


def test_a_model_is_not_promoted_over_one_that_became_current_while_it_was_trained(
    run: Run, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(site, jobs(0, 60, 2000.0))
    first = run("train").out.strip()
    second = run("train", "--promote", "always").out.strip()
    store(site, jobs(60, 200, 150.0))
    make = train._make

    def made_during_a_rollback(*arguments: Any, **options: Any) -> Any:
        made = make(*arguments, **options)
        registry.promote(site.models, first, "rollback")
        return made

    with monkeypatch.context() as patch:
        patch.setattr(train, "_make", made_during_a_rollback)
        ran = run("train")
    assert gates(run)[ran.out.strip()] == ("", "passed")
    assert registry.current_version(site.models) == first != second
    assert f"{first} became the current model during this training" in ran.err
    assert "is current" not in ran.err
    again = run("train")
    assert registry.current_version(site.models) == again.out.strip(), again.err


def test_a_worse_or_damaged_model_leaves_the_old_one_in_use(run: Run, site: Site) -> None:
    store(site, uneven(0, 150))
    old = run("train").out.strip()
    site.serve()
    store(site, uneven(150, 150))
    # Two jobs are too short a past.
    site.configure(models={"recent_jobs": 2})
    with load(site) as answers:
        ran = run("train")
        worse = ran.out.strip()
        assert ran.code == 0
        assert "gate: memory: saves" in ran.err
        assert f"model {worse} was refused and is not the current one" in ran.err
        (site.models / worse / "history.json").write_bytes(b"{}")
        assert_one_line(run("promote", worse), 1, "differs from its digest")
        registry.promote(site.models, worse)
        time.sleep(1.5)
    assert {model for _, model in answers} == {old}
    assert gates(run) == {old: ("", "passed"), worse: ("yes", "refused")}


def test_the_first_of_many_reasons_are_printed_and_the_card_has_all(run: Run, site: Site) -> None:
    def of_all(first: int) -> list[Attempt]:
        named = enumerate(string.ascii_lowercase[:12])
        return [
            replace(one, row=replace(one.row, job_name=f"fit-{letter}"))
            for place, letter in named
            for one in uneven(first + 110 * place, 110)
        ]

    store(site, of_all(0))
    run("train")
    store(site, of_all(12 * 110))
    site.configure(models={"recent_jobs": 2})
    ran = run("train")
    told = [line for line in ran.err.splitlines() if line.startswith("gate: ")]
    more = re.fullmatch(r"gate: (\d+) more reasons; `rightsizer models \S+` shows all of them", told[-1])
    assert more is not None, told
    card = run("models", ran.out.strip()).out
    assert len(told) == MOST_TOLD + 1
    assert len(re.findall(r"^- (?:jobs of|memory|cores)", card, re.MULTILINE)) == MOST_TOLD + int(more[1])


def test_the_card_of_a_refused_model_says_why(run: Run, site: Site) -> None:
    store(site, jobs(0, 100, 2000.0))
    first = run("train").out.strip()
    store(site, jobs(100, 20, 2000.0))
    refused = run("train").out.strip()
    assert gates(run) == {first: ("yes", "passed"), refused: ("", "refused")}
    card = run("models", refused).out
    assert "Refused against the current model" in card
    assert "only 10 jobs to judge on" in card
    assert "wait until about 80 more jobs of known use have ended" in card
    assert json.loads(run("models", refused, "--format", "json").out)["attempts"] == 120
    assert run("promote", refused).code == 0
    assert gates(run)[refused] == ("yes", "refused")


def test_a_current_model_that_cannot_be_loaded_is_not_compared_with(run: Run, site: Site) -> None:
    store(site, jobs(0, 100, 2000.0))
    first = run("train").out.strip()
    (site.models / first / "golden.json").unlink()
    ran = run("train")
    assert "the new model is not compared with the current one" in ran.err
    assert f"model {ran.out.strip()} is current" in ran.err


@pytest.mark.parametrize(
    ("failing", "code"),
    [("manifest.json", errno.EMFILE), ("history.json", errno.EIO), ("promotions.jsonl", errno.EACCES)],
)
def test_a_current_model_that_cannot_be_read_now_stays(
    failing: str, code: int, run: Run, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users' requests would be an easier opponent than the model that could not be read just now."""
    store(site, jobs(0, 100, 2000.0))
    first = run("train").out.strip()
    read = Path.read_bytes

    def read_bytes(file: Path) -> bytes:
        if file in (site.models / first / failing, site.models / failing):
            raise OSError(code, os.strerror(code), str(file))
        return read(file)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", read_bytes)
        ran = run("train")
    assert ran.code == 0, ran.err
    assert "gate: the current model stays, because it could not be read" in ran.err
    assert failing in ran.err
    assert os.strerror(code) in ran.err
    assert "then run `rightsizer train` again" in ran.err
    assert gates(run) == {first: ("yes", "passed"), ran.out.strip(): ("", "refused")}
    assert "could not be read" in run("models", ran.out.strip()).out


def test_too_little_memory_for_the_current_model_does_not_change_it(
    run: Run, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(site, jobs(0, 100, 2000.0))
    first = run("train").out.strip()
    decode = artefact.stored_history

    def stored_history(content: bytes) -> object:
        if content == (site.models / first / "history.json").read_bytes():
            raise MemoryError
        return decode(content)

    store(site, jobs(100, 20, 2000.0))
    with monkeypatch.context() as patch:
        patch.setattr(artefact, "stored_history", stored_history)
        ran = run("train")
    assert "there is too little memory for the model" in ran.err
    assert gates(run) == {first: ("yes", "passed"), ran.out.strip(): ("", "refused")}


def test_an_unreadable_link_is_not_taken_for_a_missing_model(
    run: Run, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(site, jobs(0, 100, 2000.0))
    first = run("train").out.strip()

    def fail(link: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(link))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "readlink", fail)
        patch.setattr(Path, "lstat", fail)
        ran = run("train")
    assert "gate: the current model stays, because it could not be read" in ran.err
    assert gates(run) == {first: ("yes", "passed"), ran.out.strip(): ("", "refused")}


def test_a_current_model_whose_manifest_was_resealed_is_not_compared_with(run: Run, site: Site) -> None:
    """Its digests and its seal hold, but it is not the promoted one: the service refuses it."""
    store(site, jobs(0, 100, 2000.0))
    first = run("train").out.strip()
    file = site.models / first / "manifest.json"
    manifest = read_manifest(file.parent)
    changed = sealed(msgspec.structs.replace(manifest, attempts=manifest.attempts + 1))
    file.write_bytes(msgspec.json.encode(changed))
    ran = run("train")
    assert "the new model is not compared with the current one: " in ran.err
    assert "is not the promoted one" in ran.err
    assert gates(run)[ran.out.strip()] == ("yes", "passed")


@pytest.mark.parametrize(
    ("promote", "current", "gate"), [("always", "yes", "not asked"), ("never", "", "passed")]
)
def test_the_gate_can_be_bypassed(promote: str, current: str, gate: str, run: Run, site: Site) -> None:
    store(site, jobs(0, 100, 2000.0))
    version = run("train", "--promote", promote).out.strip()
    assert gates(run) == {version: (current, gate)}


def test_a_missing_version_and_a_missing_card_are_reported(run: Run, site: Site) -> None:
    assert_one_line(run("models", "v9"), 1, "there is no model v9")
    store(site, jobs(0, 100, 2000.0))
    version = run("train").out.strip()
    assert run("models", version, "--format", "csv").code == 2
    plain = Path(shutil.copytree(site.models / version, site.models / "plain"))
    assert read_manifest(plain).version == version
    (plain / "card.md").unlink()
    assert_one_line(run("models", "plain"), 1, "card.md cannot be read")


@pytest.mark.parametrize("output_format", ["table", "json", "csv"])
def test_drift_is_shown_and_has_exit_code_3(output_format: str, run: Run, site: Site) -> None:
    store(site, jobs(0, 800, 2000.0))
    calm = run("evaluate", "--drift", "--format", output_format)
    assert "log_max" in calm.out
    assert calm.code == 0, calm.out
    store(site, jobs(800, 400, 150.0))
    ran = run("evaluate", "--drift", "--format", output_format)
    assert ran.code == 3, ran.err
    assert "drifted" in ran.out
    assert "memory: " in ran.err
    assert "jobs_seen" not in ran.err, "it grows from week to week"
    assert "log_max" in ran.err
    assert "drift as families grow older" in ran.err


def listed(run: Run) -> dict[str, str]:
    """Return the current model in the list."""
    [current] = [row for row in json.loads(run("models", "--format", "json").out) if row["current"]]
    return dict(current)


def test_the_list_says_since_when_and_by_what_a_model_is_current(run: Run, site: Site) -> None:
    store(site, jobs(0, 100, 2000.0))
    first = run("train").out.strip()
    assert listed(run)["by"].startswith("gate, ")
    since = datetime.fromisoformat(listed(run)["since"])
    assert since.tzinfo is not None, "a program cannot know whose local time it is"
    assert abs(since.timestamp() - time.time()) < 60
    second = run("train", "--promote", "always").out.strip()
    assert listed(run)["by"].startswith("always, ")
    assert run("promote", first).code == 0
    assert (listed(run)["version"], listed(run)["by"].partition(",")[0]) == (first, "by hand")
    # The one that was current before, not the one that precedes it by name.
    assert f"model {second} is current" in run("rollback").err
    assert (listed(run)["version"], listed(run)["by"].partition(",")[0]) == (second, "rollback")
    assert f"model {first} is current" in run("rollback").err
    assert_one_line(run("rollback"), 1, "nothing was changed")


def test_a_rollback_skips_models_that_no_service_would_load(run: Run, site: Site) -> None:
    store(site, jobs(0, 100, 2000.0))
    versions = [run("train", "--promote", "always").out.strip() for _ in range(3)]
    (site.models / versions[1] / "golden.json").write_bytes(b"[]")
    ran = run("rollback")
    assert f"skipping model {versions[1]}: " in ran.err
    assert f"model {versions[0]} is current" in ran.err


def test_a_registry_without_a_log_can_be_listed_and_rolled_back(run: Run, site: Site) -> None:
    store(site, jobs(0, 100, 2000.0))
    first = run("train").out.strip()
    refused = run("train").out.strip()
    last = run("train", "--promote", "always").out.strip()
    (site.models / "promotions.jsonl").unlink()
    assert (listed(run)["version"], listed(run)["by"]) == (last, "not logged")
    assert f"model {first} is current" in run("rollback").err
    assert refused in gates(run)


def test_the_list_says_that_the_current_model_is_damaged(run: Run, site: Site) -> None:
    store(site, jobs(0, 100, 2000.0))
    version = run("train").out.strip()
    for name in ("history.json", "manifest.json"):
        (site.models / version / name).write_bytes(b"{}")
        ran = run("models")
        assert ran.code == 0
        assert "the current model is damaged, and a running service keeps using the one before" in ran.err
        assert name in ran.err
