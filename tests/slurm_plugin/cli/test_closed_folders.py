"""Journals whose folder may not be listed: ingest reads what it can, and names what it cannot."""

import pytest

from tests.builders import FakeSacct
from tests.conftest import Site
from tests.slurm_plugin.cli.test_explain_ended import as_plain_user


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_closed_folder_is_named(is_closed: bool, site: Site) -> None:
    closed = {}
    for section, key in (("service", "journal"), ("advisor", "directory"), ("recovery", "directory")):
        folder = site.folder / f"closed-{section}"
        folder.mkdir()
        folder.chmod(0o000 if is_closed else 0o755)
        closed[section] = {key: str(folder)}
    spool = site.folder / "no-spool-yet"
    fake = FakeSacct(site.folder / "slurm", [])
    site.configure(**closed, accounting={"sacct": str(fake.command), "gpu_spool": str(spool)})
    done = as_plain_user("ingest")
    assert done.returncode == 0, done.stderr
    for what, section in (
        ("decisions", "service"),
        ("the advisor's plans", "advisor"),
        ("recoveries", "recovery"),
    ):
        line = f"{what} were not read: {site.folder / f'closed-{section}'}: Permission denied"
        assert (line in done.stderr) == is_closed
    assert "the use of GPUs" not in done.stderr
