"""A database URL may be in a file of its own, and that file is secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from accounting.errors import ConfigError
from slurm_plugin.config.file import render_config
from slurm_plugin.config.secret_urls import slurmdbd_url, store_url
from slurm_plugin.config.settings import Accounting, Config, Store
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run, assert_one_line

URL = "postgresql://rightsizer:hunter2@db/rightsizer"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "url"
    file.write_text(f"  {URL}\n")
    file.chmod(0o640)
    return file


def test_without_a_file_the_url_is_that_of_the_configuration() -> None:
    assert store_url(Config(store=Store(url="sqlite:///x"))) == "sqlite:///x"
    assert slurmdbd_url(Config()) == ""


def test_the_url_in_the_file_counts_and_is_shown_to_nobody(file: Path) -> None:
    config = Config(
        store=Store(url_file=str(file)), accounting=Accounting(slurmdbd_url="x", slurmdbd_url_file=str(file))
    )
    assert (store_url(config), slurmdbd_url(config)) == (URL, URL)
    assert "hunter2" not in render_config(config)


@pytest.mark.parametrize("mode", [0o644, 0o641, 0o602])
def test_a_file_that_is_open_to_everybody_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(
        ConfigError, match=r"store\.url_file names a file with a secret; run `chmod o= "
    ) as raised:
        store_url(Config(store=Store(url_file=str(file))))
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "\n", "one\ntwo"])
def test_a_file_must_hold_one_url(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match="needs a file with exactly one URL"):
        store_url(Config(store=Store(url_file=str(file))))


def test_every_command_uses_the_file(site: Site, run: Run) -> None:
    file = site.folder / "url"
    file.write_text(f"sqlite:///{site.folder}/elsewhere.db\n")
    file.chmod(0o600)
    site.configure(store={"url_file": str(file)})
    # There is no sacct, but the store is made all the same.
    run("ingest")
    assert (site.folder / "elsewhere.db").exists()
    assert not (site.folder / "store.db").exists()
    file.chmod(0o644)
    assert_one_line(run("report", "users"), 2, "every user may read")
