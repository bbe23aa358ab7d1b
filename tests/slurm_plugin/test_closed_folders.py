"""One line tells a user that a folder above models or tables is closed to them, as the shipped units make it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import FakeSacct
from tests.conftest import Site
from tests.slurm_plugin.cli.test_evaluate_online import line, table
from tests.slurm_plugin.cli.test_explain_ended import as_plain_user
from tests.slurm_plugin.service.test_feed_service import ended


@pytest.fixture
def closed(site: Site) -> Iterator[Path]:
    """Yield a folder that nobody may enter; the site's models are configured to lie below it."""
    folder = site.folder / "closed"
    (folder / "models").mkdir(parents=True)
    site.configure(models={"directory": str(folder / "models")})
    folder.chmod(0)
    yield folder
    folder.chmod(0o755)


@pytest.mark.parametrize(
    "words", [("models",), ("models", "v1"), ("models", "--prune"), ("promote", "v1"), ("rollback",)]
)
def test_commands_on_models_say_that_the_models_are_closed(
    site: Site, closed: Path, words: tuple[str, ...]
) -> None:
    told = as_plain_user(*words, "--config", str(site.config_file))
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == (
        f"rightsizer: you may not read the models in {closed}/models; run this as the user who trains\n"
    )


def test_a_grants_file_in_a_closed_folder_is_refused_before_the_work(site: Site, closed: Path) -> None:
    jobs = table(site.folder / "jobs.csv", [line(1)])
    for out in (closed / "out.csv", closed / "models" / "out.csv"):
        options = ["--online", "--from-file", str(jobs), "--predictions", str(out)]
        told = as_plain_user("evaluate", *options, "--config", str(site.config_file))
        assert (told.returncode, told.stdout) == (1, "")
        assert told.stderr.startswith(f"rightsizer: cannot write {out}: Permission denied; ")
        assert told.stderr.count("\n") == 1


def test_an_unreadable_configuration_says_who_has_to_read_it(site: Site) -> None:
    site.config_file.chmod(0)
    told = as_plain_user("config", "check", "--config", str(site.config_file))
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert "let this user, and the service's user, read it (chmod a+r" in told.stderr


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("socket", "give that user the folder (RuntimeDirectory= in a unit), or set service.socket"),
        (
            "journal",
            "run this as the service's user, give that user the folder (chown), or set service.journal",
        ),
    ],
)
def test_a_service_that_may_not_write_names_the_user_who_needs_the_folder(
    site: Site, closed: Path, key: str, said: str
) -> None:
    site.configure(service={key: str(closed / key)}, models={"directory": str(site.models)})
    told = as_plain_user("serve", "--config", str(site.config_file))
    assert (told.returncode, said in told.stderr.splitlines()[-1]) == (1, True)


def test_a_store_with_an_unwritable_file_hints_at_its_companion_files(site: Site) -> None:
    sacct = FakeSacct(site.folder / "slurm", ended(range(1, 4))).command
    site.configure(accounting={"sacct": sacct})
    assert as_plain_user("ingest", "--config", str(site.config_file)).returncode == 0
    (site.folder / "store.db-shm").touch(0o440)
    told = as_plain_user("ingest", "--config", str(site.config_file))
    assert (told.returncode, told.stderr.count("\n")) == (1, 1)
    assert "files next to it (-wal, -shm)" in told.stderr


def test_ingest_works_for_a_user_who_may_not_feed_the_models(site: Site, closed: Path) -> None:
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", ended(range(1, 4))).command})
    told = as_plain_user("ingest", "--format", "json", "--config", str(site.config_file))
    assert told.returncode == 0, told.stderr
    assert f"new jobs count only from the next training on: cannot write {closed}/models: " in told.stderr
    assert "Traceback" not in told.stderr
    assert json.loads(told.stdout)
