"""`rightsizer config`: its output can be read again, and settings that would fail later are reported."""

import json
from pathlib import Path

import pytest

from slurm_plugin.config import file
from slurm_plugin.config.file import SYSTEM_CONFIG, parse_config
from slurm_plugin.config.settings import Config
from tests.conftest import Site
from tests.slurm_plugin.cli.test_explain_ended import as_plain_user
from tests.slurm_plugin.conftest import Run, assert_one_line


def test_the_configuration_is_shown_so_that_it_can_be_read_again(run: Run, site: Site) -> None:
    site.configure(mode="advise")
    assert parse_config(run("config", "show").out) == site.config
    assert json.loads(run("config", "show", "--format", "json").out)["mode"] == "advise"
    checked = run("config", "check")
    assert (checked.code, checked.out) == (0, "")
    assert "valid, mode advise" in checked.err
    site.config_file.write_text("")
    assert parse_config(run("config", "show", "--config", str(site.config_file)).out) == Config()


def test_a_link_that_leads_nowhere_does_not_count_as_no_configuration(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rightsizer.toml").symlink_to(tmp_path / "gone.toml")
    monkeypatch.delenv("RIGHTSIZER_CONFIG", raising=False)
    monkeypatch.setattr(file, "SYSTEM_CONFIG", tmp_path / "rightsizer.toml")
    assert_one_line(
        run("config", "check"), 2, "cannot read the configuration .*rightsizer.toml: No such file"
    )


def test_no_example_truncates_the_file_that_it_reads(run: Run) -> None:
    assert f"> {SYSTEM_CONFIG}\n" not in run("config", "show", "--help").out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"energy": {"time_zone": "Mars"}},
            "energy.time_zone: this machine does not know the time zone `Mars`",
        ),
        ({"energy": {"carbon_file": "/nope"}}, "energy.carbon_file: cannot read /nope"),
        ({"store": {"url": "foo://x"}}, "store.url 'foo://x' cannot be used"),
        ({"store": {"url": "mariadb://h:x/y"}}, "its port is not a number"),
        ({"store": {"url": "sqlite:///var/store.db"}}, "its path is relative"),
        ({"store": {"url_file": "/nope"}}, "cannot read /nope"),
        ({"accounting": {"slurmdbd_url": "no url"}}, "slurmdbd_url cannot be used: .*; write it as mysql"),
        ({"accounting": {"slurmdbd_url": "mysql+pymysql://h:x/y"}}, "its port is not a number"),
        ({"service": {"journal_key": "/nope"}}, "cannot read the journal key /nope"),
        (
            {"accounting": {"pseudonym_key": "/etc/passwd"}},
            "other users may read the pseudonym key /etc/passwd",
        ),
        ({"accounting": {"slurmdbd_url_file": "/nope"}}, "cannot read /nope"),
    ],
)
def test_a_setting_that_would_fail_later_makes_the_configuration_invalid(
    changes: dict[str, dict[str, str]], said: str, run: Run, site: Site
) -> None:
    site.configure(**changes)
    assert_one_line(run("config", "check"), 2, said)


def test_closed_folders_are_reported_as_closed_and_nothing_else(site: Site) -> None:
    closed = site.folder / "closed"
    closed.mkdir(0o000)
    site.configure(
        mode="enforce",
        store={"url_file": str(closed / "url")},
        brakes={"directory": str(closed / "brakes")},
        models={"directory": str(closed / "models")},
    )
    try:
        checked = as_plain_user(
            "config", "check", "--user", "ann", "--format", "csv", "--config", str(site.config_file)
        )
        listed = as_plain_user("models", "--config", str(site.config_file))
    finally:
        closed.chmod(0o755)
    assert checked.returncode == 0, checked.stderr
    assert "the store's URL is not checked: " in checked.stderr
    assert "cannot tell whether a brake is pulled: " in checked.stderr
    assert {"mode,enforce", "brake,not known"} <= set(checked.stdout.splitlines())
    assert (listed.returncode, "you may not read the models" in listed.stderr) == (1, True), listed.stderr
