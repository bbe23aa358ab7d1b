"""Retrain, gate and promote on a real Slurm while sbatch goes on: no submission suffers, and the old model stays if the
new one is damaged or worse.

The accounting of weeks is put into the store; submissions, allocations and the deciding models are real.
"""

import contextlib
import getpass
import itertools
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from accounting.decisions.decision import Decision, decode_decision
from accounting.decisions.token import find_token
from accounting.records import Attempt
from models.versions import registry
from models.versions.promotion_log import read_promotions
from slurm_plugin.config.file import load_config, render_config
from slurm_plugin.sandbox import cluster, daemons
from slurm_plugin.sandbox.cluster import Options, Sandbox
from tests.builders import SCRIPT, T0, attempt
from tests.cluster.conftest import Shell
from tests.cluster.matrix.prefixes import chosen_prefix
from tests.conftest import IN_USE_S, PATIENCE_S
from tests.stores import store_attempts
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ASKED_MIB, FIRST_MIB, LATER_MIB = 8000, 2000.0, 150.0
RUNS_EACH_S = 0.4
Damage = Callable[[Path], object]


def flip_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


DAMAGES: tuple[Damage, ...] = (flip_a_byte, truncate, Path.unlink)


class Site:
    """A sandbox that enforces, with a model in use that learned from jobs of FIRST_MIB."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.shell = Shell(sandbox)
        self.sandbox = sandbox
        self.folder = folder
        config = load_config(str(sandbox.layout.rightsizer_toml))
        self.url, self.models, self.journal = (
            config.store.url,
            Path(config.models.directory),
            config.service.journal,
        )
        self.script = folder / "fit.sbatch"
        self.script.write_text(SCRIPT, encoding="utf-8")
        (folder / "fit").write_text("#!/bin/sh\n", encoding="utf-8")
        (folder / "fit").chmod(0o755)
        self._jobs = itertools.count(1)

    def account(self, count: int, mem_mib: float) -> None:
        """Put `count` more jobs into the store, one every 1000 s, that used about `mem_mib`."""
        attempts = [self._ended(next(self._jobs), mem_mib) for _ in range(count)]
        store_attempts(self.url, attempts)

    def _ended(self, number: int, mem_mib: float) -> Attempt:
        submit_s = T0 + 1000 * number
        return attempt(
            user=getpass.getuser(),
            job_id=number,
            display_id=str(number),
            submit_s=submit_s,
            start_s=submit_s + 10,
            elapsed_s=600,
            mem_mib=mem_mib + number % 7,
        )

    def train(self, options: str = "") -> str:
        """Train, as a user would type it; return all output."""
        return self.shell.run("sh", "-c", f"rightsizer train {options} 2>&1")

    def forgetful(self) -> Path:
        """Write a configuration by which two jobs are a family's whole past."""
        config = load_config(str(self.sandbox.layout.rightsizer_toml))
        models = msgspec.structs.replace(config.models, recent_jobs=2)
        file = self.folder / "forgetful.toml"
        file.write_text(render_config(msgspec.structs.replace(config, models=models)), encoding="utf-8")
        return file

    def submit(self, *options: str) -> int:
        """Submit the job and return its id; 0 if sbatch failed."""
        argv = ["sbatch", "--parsable", "--output=/dev/null", "--job-name=fit", f"--mem={ASKED_MIB}"]
        environment = {**os.environ, **self.sandbox.environment()}
        ran = subprocess.run(
            [*argv, *options, f"--chdir={self.folder}", str(self.script)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return int(ran.stdout.partition(";")[0]) if ran.returncode == 0 else 0

    def decisions(self) -> list[Decision]:
        """Return all decisions of the service, in order."""
        lines = b"".join(
            file.read_bytes() for file in sorted(Path(self.journal).glob("*.jsonl"))
        ).splitlines()
        decided = [decode_decision(line) for line in lines]
        assert None not in decided
        return [one for one in decided if one]

    def log(self, name: str) -> str:
        return (self.sandbox.layout.log / f"{name}").read_text(encoding="utf-8")


class Load:
    """What was submitted while the load lasted: jobs that are held, and some that run."""

    def __init__(self, site: Site) -> None:
        self._began = len(site.decisions())
        self._site = site
        self.held: list[int] = []
        self.running: list[int] = []

    def decisions(self) -> list[Decision]:
        return self._site.decisions()[self._began :]

    def assert_answered(self, *models: str) -> None:
        """Check that every submission succeeded and was sized, and that these models decided one after the other."""
        submitted = [*self.held, *self.running]
        assert all(submitted), f"sbatch failed {submitted.count(0)} times of {len(submitted)}"
        # The service journals a moment after it answers.
        wait_until(lambda: len(self.decisions()) >= len(submitted))
        decided = self.decisions()
        assert len(decided) == len(submitted) > 10
        assert {(one.reason, one.applied) for one in decided} == {("resized", True)}
        assert [model for model, _ in itertools.groupby(one.model for one in decided)] == list(models)
        assert "left as it was submitted" not in self._site.log("slurmctld.log")
        assert "Traceback" not in self._site.log(f"{daemons.SERVE}.out")


@contextlib.contextmanager
def load(site: Site) -> Iterator[Load]:
    """Submit without a pause while the block runs."""
    under, done = Load(site), threading.Event()

    def submit_on(jobs: list[int], pause_s: float, *options: str) -> None:
        while not done.wait(pause_s):
            jobs.append(site.submit(*options))

    threads = [
        threading.Thread(target=submit_on, args=(under.held, 0.0, "--hold")),
        threading.Thread(target=submit_on, args=(under.running, RUNS_EACH_S)),
    ]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(under.held) > 2 and len(under.running) > 1)
        yield under
    finally:
        done.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        site.shell.run("scancel", *map(str, filter(None, under.held)))


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Site:
    folder = make_folder()
    options = Options(directory=folder / "site", nodes=1, slurm_prefix=chosen_prefix(), mode="enforce")
    site = Site(cluster.start(options), folder)
    site.account(60, FIRST_MIB)
    assert "is current" in site.train()
    wait_until(lambda: "in use" in site.log(f"{daemons.SERVE}.out"))
    return site


def test_a_better_model_takes_over_between_two_submissions(site: Site) -> None:
    old = registry.current_version(site.models)
    assert old is not None
    with load(site) as under:
        site.account(200, LATER_MIB)
        said = site.train()
        new = registry.current_version(site.models)
        assert new != old, said
        assert new is not None
        assert f"model {new} is current" in said
        wait_until(lambda: under.decisions()[-1].model == new)
        ran = len(under.running)
        wait_until(lambda: len(under.running) > ran + 1)
    under.assert_answered(old, new)
    promotion = read_promotions(site.models)[-1]
    assert (promotion.version, promotion.why, promotion.before) == (new, "gate", old)
    first = next(one for one in under.decisions() if one.model == new)
    assert 0 < first.time_s - promotion.time_s <= IN_USE_S
    assert_allocated_as_decided(site, under, {old: FIRST_MIB, new: LATER_MIB})


def assert_allocated_as_decided(site: Site, under: Load, used_mib: dict[str, float]) -> None:
    """Check that each job that ran was allocated its model's grant, and that this is near what its past jobs used."""
    by_id = {one.id: one for one in under.decisions()}
    models = set()
    for job in under.running:
        assert site.shell.wait_ended(job) == "COMPLETED"
        token = find_token(site.shell.accounted(job, "AdminComment"))
        assert token is not None
        decided = by_id[token.decision_id]
        allocated_mib = int(site.shell.allocated(job)["mem"].removesuffix("M"))
        assert allocated_mib == decided.grant.mem_per_node_mib
        assert used_mib[decided.model] <= allocated_mib <= 1.5 * used_mib[decided.model]
        models.add(decided.model)
    assert models == set(used_mib)


def test_a_damaged_model_never_answers_whichever_file_is_damaged(site: Site) -> None:
    good = registry.current_version(site.models)
    assert good is not None
    names = sorted(file.name for file in (site.models / good).iterdir())
    assert {"manifest.json", "history.json", "golden.json", "memory.onnx"} <= set(names)
    with load(site) as under:
        for damage, name in itertools.product(DAMAGES, names):
            bad = f"{good}-{damage.__name__}-{name}"
            shutil.copytree(site.models / good, site.models / bad)
            damage(site.models / bad / name)
            swap_by_hand(site, bad)
            wait_refused(site, bad, f"{good} stays in use: ", name)
        listed = site.shell.run("sh", "-c", "rightsizer models 2>&1")
        decided = len(under.decisions())
        wait_until(lambda: len(under.decisions()) > decided)
        swap_by_hand(site, good)
    assert "the current model is damaged, and a running service keeps using the one before" in listed
    under.assert_answered(good)
    for folder in site.models.glob(f"{good}-*"):
        shutil.rmtree(folder)


def wait_refused(site: Site, version: str, *said: str) -> None:
    """Wait until the service has refused a version, and check that it gives all these reasons."""

    def lines() -> list[str]:
        return [
            line
            for line in site.log(f"{daemons.SERVE}.out").splitlines()
            if f"model {version} is refused" in line
        ]

    wait_until(lambda: bool(lines()))
    [line] = lines()
    assert all(word in line for word in said), line


def swap_by_hand(site: Site, version: str) -> None:
    """Make a version current without any of our checks."""
    site.shell.run("ln", "-sfn", version, str(site.models / registry.CURRENT))


def test_a_worse_model_is_refused_and_the_old_one_stays_in_use(site: Site) -> None:
    old = registry.current_version(site.models)
    assert old is not None
    site.account(120, LATER_MIB)
    with load(site) as under:
        # A refusal is not a failure: the command's exit status is 0.
        said = site.train(f"--config {site.forgetful()}")
        decided = len(under.decisions())
        wait_until(lambda: len(under.decisions()) > decided)
    assert "gate: memory: saves" in said
    assert "was refused and is not the current one" in said
    assert registry.current_version(site.models) == old
    listed = json.loads(site.shell.run("rightsizer", "models", "--format", "json"))
    assert [(row["version"], row["gate"]) for row in listed if row["current"]] == [(old, "passed")]
    assert listed[-1]["gate"] == "refused"
    under.assert_answered(old)
