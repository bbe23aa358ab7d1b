"""`rightsizer explain` and `ingest` if several clusters, with jobs of the same id, share a store."""

import json
from pathlib import Path

import pytest

from accounting.store.database import open_store
from accounting.store.records import windows_read
from tests.builders import FakeSacct, attempt, executable, job_line
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run, assert_one_line
from tests.stores import write_attempts


@pytest.fixture
def shared(site: Site) -> Site:
    """Return a site whose store has a job 7 of two clusters: with 100 CPUs and with 200."""
    engine = open_store(site.config.store.url, create=True)
    with engine.begin() as connection:
        write_attempts(
            connection,
            [
                attempt(job_id=7, cluster=cluster, req_cpus=cpus)
                for cluster, cpus in (("alpha", 100), ("beta", 200))
            ],
        )
    engine.dispose()
    return site


def asked_cpus(out: str) -> list[int]:
    return [row["asked"] for row in json.loads(out) if row["resource"] == "CPUs"]


def test_explain_says_which_clusters_job_it_means_or_asks(shared: Site, run: Run) -> None:
    named = run("explain", "7", "--cluster", "beta", "--format", "json")
    assert (named.code, asked_cpus(named.out)) == (0, [200])
    assert_one_line(run("explain", "7"), 1, "several clusters have a job 7: alpha, beta; .*--cluster")
    assert_one_line(
        run("explain", "7", "--cluster", "gamma"),
        1,
        "no job 7 of cluster gamma, but one of alpha, beta; give",
    )
    assert_one_line(
        run("explain", "8", "--cluster", "gamma"),
        1,
        "no job 8 of cluster gamma; if it has ended, run `rightsizer ingest`",
    )
    shared.configure(accounting={"cluster": "alpha"})
    own = run("explain", "7", "--format", "json")
    assert (own.code, asked_cpus(own.out)) == (0, [100])
    assert "showing the job of cluster alpha" in own.err


def test_ingest_marks_the_cluster_that_slurmctld_names(
    site: Site, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", [job_line(7)]).command})
    executable(tmp_path / "scontrol", "#!/bin/sh\necho 'ClusterName             = Beta'\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert run("ingest").code == 0
    engine = open_store(site.config.store.url)
    with engine.connect() as connection:
        assert windows_read(connection, "sacct").get("beta") is not None
        assert windows_read(connection, "sacct").get("") is None
    engine.dispose()
