"""Old models are removed by command or by a training, and never while a service uses them."""

import json
import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from models.training import training
from models.versions import registry
from models.versions.promotion_log import LOG, read_promotions
from models.versions.succession import encode_promotion
from tests.conftest import PATIENCE_S, Site, TrainedModel
from tests.slurm_plugin.cli.test_promotion import jobs, store
from tests.slurm_plugin.conftest import Run

YEAR_S = 365 * 86400


@pytest.fixture
def old(site: Site, trained_model: TrainedModel) -> list[str]:
    """Return five models of two years ago, all promoted a year ago; the site keeps as few as it may."""
    site.configure(models={"keep_days": 1, "keep_newest": 1})
    made = [
        training.save(trained_model.trained, site.models, 1_700_000_000 + 60 * number) for number in range(5)
    ]
    for version in made:
        registry.promote(site.models, version)
    then_s = time.time() - YEAR_S
    log = [msgspec.structs.replace(one, time_s=then_s) for one in read_promotions(site.models)]
    (site.models / LOG).write_bytes(b"".join(map(encode_promotion, log)))
    for version in made:
        os.utime(site.models / version, (then_s, then_s))
    return made


def goes(run: Run, *options: str) -> list[str]:
    return [
        row["version"]
        for row in json.loads(run("models", "--prune", "--format", "json", *options).out)
        if row["goes"]
    ]


def test_models_to_be_removed_are_shown_and_removed_only_with_apply(
    run: Run, site: Site, old: list[str]
) -> None:
    assert goes(run) == old[:2]
    assert "2 of 5 versions would be removed, and 0 leftovers" in run("models", "--prune").err
    assert registry.versions(site.models) == old
    ran = run("models", "--prune", "--apply")
    assert f"2 old models were removed: {old[0]}, {old[1]}" in ran.err
    assert registry.versions(site.models) == old[2:]
    assert goes(run) == []
    for command in (("promote",), ("models",)):
        gone = run(*command, old[0])
        assert (gone.code, gone.out) == (1, "")
        assert f"model {old[0]} was removed from {site.models}" in gone.err


@pytest.mark.parametrize("wrong", [("--apply",), ("--prune", "20260101T000000.000Z-abcdef")])
def test_options_that_make_no_sense_together_are_refused(
    run: Run, site: Site, wrong: tuple[str, ...]
) -> None:
    assert site.models
    assert run("models", *wrong).code == 2


def reason(run: Run, version: str) -> str:
    rows = json.loads(run("models", "--prune", "--format", "json").out)
    return next(str(row["why"]) for row in rows if row["version"] == version)


def test_a_service_keeps_the_model_that_it_still_answers_with(run: Run, site: Site, old: list[str]) -> None:
    service = site.serve()
    # Nothing but the service itself still shows which one that is.
    (site.models / registry.CURRENT).unlink()
    (site.models / LOG).unlink()
    assert reason(run, old[4]) == "in use by a running process"
    run("models", "--prune", "--apply")
    assert registry.versions(site.models) == old[3:]
    service.send_signal(signal.SIGTERM)
    service.communicate(timeout=PATIENCE_S)
    assert service.returncode == 0
    assert reason(run, old[4]) == "among the newest others"


def test_a_training_removes_old_models_whatever_the_gate_says(run: Run, site: Site, old: list[str]) -> None:
    store(site, jobs(0, 60, 2000.0))
    ran = run("train", "--promote", "never")
    assert ran.code == 0, ran.err
    new = ran.out.strip()
    assert f"2 old models were removed: {old[0]}, {old[1]}" in ran.err
    assert registry.versions(site.models) == [*old[2:], new]


def test_a_training_succeeds_even_if_the_log_of_promotions_is_unusable(
    run: Run, site: Site, old: list[str]
) -> None:
    store(site, jobs(0, 60, 2000.0))
    (site.models / LOG).unlink()
    (site.models / LOG).mkdir()
    ran = run("train", "--promote", "never")
    assert (ran.code, len(registry.versions(site.models))) == (0, len(old) + 1)
    assert "old models were not removed: " in ran.err
    assert Path(site.models / old[0]).is_dir()
