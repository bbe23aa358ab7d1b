"""`rightsizer train --engine`: missing parts are reported before anything is started, and nothing is lost."""

import pytest

from models.versions import registry
from tests.builders import past
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run, assert_one_line
from tests.stores import store_attempts


def store(site: Site, jobs: int) -> None:
    store_attempts(site.config.store.url, past(jobs))


def test_without_the_extra_the_command_says_what_to_install(
    run: Run, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(site, 90)
    first = run("train").out.strip()
    monkeypatch.setattr("slurm_plugin.cli.models.train.DASK", ("dask_that_nobody_has",))
    assert_one_line(
        run("train", "--engine", "dask"),
        1,
        r"--engine dask needs dask_that_nobody_has; run `\S+/bin/pip install -c constraints.txt '\.\[dask\]'` in",
    )
    assert registry.versions(site.models) == [first]
    assert registry.current_version(site.models) == first


def test_no_worker_is_started_if_there_is_nothing_to_learn(run: Run, site: Site) -> None:
    pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    store(site, 0)
    assert_one_line(run("train", "--engine", "dask"), 1, "cannot learn from 0 attempts")


def test_the_default_engine_is_this_machine(run: Run) -> None:
    said = run("train", "--help").out
    assert "--engine [local|dask]" in said
    assert "default: local" in said
