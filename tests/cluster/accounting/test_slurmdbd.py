"""slurmdbd's own database gives the same as sacct for every attempt, on every installed release."""

from __future__ import annotations

import re
import time

import pytest
from msgspec.structs import replace

from accounting.dumps.slurmdbd import read_database
from accounting.errors import SlurmError
from accounting.records import Attempt
from accounting.store import schema
from slurm_plugin.sandbox import cluster, daemons, teardown
from slurm_plugin.sandbox.cluster import Sandbox
from slurm_plugin.sandbox.slurm_conf import DATABASE_NAME, DATABASE_USER
from tests.cluster.accounting.played import Played

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

READER = "rightsizer_reader"


@pytest.fixture(scope="module")
def reader(played: Played) -> str:
    """Return the URL of the database for an account that may only read it."""
    sandbox = played.site.sandbox
    add_reader(sandbox)
    return url_of(sandbox, READER)


def add_reader(sandbox: Sandbox) -> None:
    """Start the database again with one more account, which may only read."""
    setup = sandbox.layout.database_setup
    statements = (
        f"CREATE USER IF NOT EXISTS '{READER}'@'127.0.0.1';",
        f"GRANT SELECT ON {DATABASE_NAME}.* TO '{READER}'@'127.0.0.1';",
    )
    setup.write_text(setup.read_text(encoding="utf-8") + "\n".join(statements) + "\n", encoding="utf-8")
    teardown.end_daemon(sandbox.layout, daemons.MARIADBD)
    cluster.bring_up([daemons.mariadbd(sandbox.cluster)], sandbox.cluster, lambda _: None)


def url_of(sandbox: Sandbox, account: str) -> str:
    """Return the URL of slurmdbd's database for an account (`user`, or `user:password`)."""
    return f"mysql+pymysql://{account}@127.0.0.1:{sandbox.manifest.ports.mariadb}/{DATABASE_NAME}"


def key_of(attempt: Attempt) -> tuple[int, int]:
    """Return the key of an attempt."""
    return attempt.row.job_id, attempt.row.submit_s


def without_list(attempt: Attempt) -> Attempt:
    """Return an attempt of tasks that never started without the list of them: `12` instead of `12_[0-2]`."""
    row = attempt.row
    return replace(attempt, row=replace(row, display_id=re.sub(r"_\[.*\]$", "", row.display_id)))


def test_the_database_gives_the_same_attempts_as_sacct(played: Played, reader: str) -> None:
    site = played.site
    site.configuration("direct", slurmdbd_url=reader, cluster=site.sandbox.layout.cluster)
    ingested = site.ingest("direct")
    assert ingested.status == 0, ingested.said
    direct = {key_of(one): without_list(one) for one in site.attempts("direct")}
    by_sacct = {key_of(one): without_list(one) for one in played.attempts}
    other = [one for key, one in by_sacct.items() if direct.get(key) != one]
    # Only sacct shows bytes that are not UTF-8.
    assert [
        one.row.job_name
        for one in other
        if not (site.keeps_bytes and "\\xff" in f"{one.row.job_name}{one.row.comment}")
    ] == []
    # sacct shows in no window what was never eligible, such as tasks that waited for others of their array.
    assert [one for key, one in direct.items() if key not in by_sacct and one.row.start_s] == []
    assert site.rows(schema.quarantine, "direct") == []


def test_jobs_outside_the_window_are_left_out(played: Played, reader: str) -> None:
    name, now_s = played.site.sandbox.layout.cluster, int(time.time())
    parts = list(read_database(reader, name, now_s - 10**6, now_s - 10**5, now_s))
    assert sum(len(part.jobs) for part in parts) == 0


def test_an_account_that_may_write_is_refused_with_the_grant_to_use(played: Played) -> None:
    sandbox = played.site.sandbox
    conf = (sandbox.layout.etc / "slurmdbd.conf").read_text(encoding="utf-8")
    (password,) = re.findall(r"^StoragePass=(.*)$", conf, re.MULTILINE)
    with pytest.raises(SlurmError, match="GRANT SELECT ON"):
        list(read_database(url_of(sandbox, f"{DATABASE_USER}:{password}"), sandbox.layout.cluster, 0, 1, 1))


def test_an_unknown_cluster_is_refused_with_the_command_that_lists_clusters(reader: str) -> None:
    with pytest.raises(SlurmError, match="sacctmgr list cluster"):
        list(read_database(reader, "elsewhere", 0, 1, 1))
    with pytest.raises(SlurmError, match="not a cluster's name"):
        list(read_database(reader, "x`; --", 0, 1, 1))
