"""The store as commands find it: missing, empty, with an older schema, or not a database at all."""

import os
import subprocess
import sys

from accounting.store.database import open_store
from tests.builders import FakeSacct
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run, assert_one_line


def test_an_empty_store_cannot_be_learned_from(run: Run, site: Site) -> None:
    open_store(site.config.store.url, create=True).dispose()
    assert_one_line(run("train"), 1, "cannot learn from 0 attempts")
    assert_one_line(run("evaluate"), 1, "has no attempts")
    assert_one_line(run("explain", "4711"), 1, "has no job 4711")
    assert not (site.folder / "models").exists()


def test_a_store_is_downgraded_only_with_apply(run: Run, site: Site) -> None:
    open_store(site.config.store.url, create=True).dispose()
    ran = run("store", "downgrade", "0003")
    assert (ran.code, ran.out) == (0, "")
    assert "would be taken back (add --apply) from schema" in ran.err
    open_store(site.config.store.url).dispose()
    assert run("store", "downgrade", "0003", "--apply").code == 0
    again = run("store", "downgrade", "0003", "--apply")
    assert (again.code, "from schema 0003 to 0003" in again.err) == (0, True)
    assert_one_line(run("store", "downgrade", "0001"), 1, "cannot be taken back to 0001")


READERS = [
    ["train"],
    ["evaluate"],
    ["explain", "4711"],
    ["report", "waste"],
    ["report", "advisor"],
    ["report", "recoveries"],
    ["export", "--to", "x.csv"],
    ["audit"],
    ["ingest", "--quarantined"],
    ["forecast"],
    ["replay"],
]


def test_only_ingest_upgrades_an_older_store(run: Run, site: Site) -> None:
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", []).command})
    assert run("ingest").code == 0
    assert run("store", "downgrade", "0003", "--apply").code == 0
    before = (site.folder / "store.db").read_bytes()
    for command in READERS:
        assert_one_line(run(*command), 1, "schema of an older version; run `rightsizer ingest`")
    assert (site.folder / "store.db").read_bytes() == before
    forward = run("ingest")
    assert (forward.code, "upgrading the store from schema 0003 to" in forward.err) == (0, True)
    assert_one_line(run("explain", "4711"), 1, "has no job 4711")


def test_a_store_that_is_not_a_database_is_reported_in_one_line(run: Run, site: Site) -> None:
    (site.folder / "store.db").write_text("no database " * 500)
    for command in ("train", "ingest"):
        assert_one_line(run(command), 1, "not a database")


def test_a_missing_store_is_reported_before_anything_heavy_is_imported(site: Site) -> None:
    program = (
        "import sys\nfrom slurm_plugin.cli import main\n"
        "try: main()\nexcept SystemExit as end: code = end.code\n"
        "assert code == 1, code\n"
        "heavy = {'xgboost', 'sklearn', 'scipy', 'numba'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    for command in (
        ["train"],
        ["evaluate"],
        ["evaluate", "--run-time"],
        ["replay", "--nodes", "1x4:1000"],
        ["forecast"],
    ):
        ran = subprocess.run(
            [sys.executable, "-c", program, *command],
            env={**os.environ, "RIGHTSIZER_CONFIG": str(site.config_file)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        assert "run `rightsizer ingest` first" in ran.stderr
