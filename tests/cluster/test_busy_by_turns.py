"""On a real Slurm: a job that runs as many pieces at a time as it has CPUs is slowed by a cut, and soon is no more."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from models.demand.slowed import LEAST_JOBS
from slurm_plugin.sandbox import cluster
from tests.cluster.recovery_site import Site, past_of, start_site

ASKED_CPUS = 2
# A second of work, then two pieces that wait for two seconds: three seconds with two CPUs, five with one.
TURNS = """python3 -c 'import time
while time.process_time() < 1: pass'
seq 2 | xargs -P "$SLURM_CPUS_PER_TASK" -n 1 sh -c 'sleep 2'
"""
WHOLE_S, BUSY = 3, 1 / 3


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="rightsizer-", dir="/tmp") as directory:
        folder = Path(directory)
        folder.chmod(0o777)
        site = start_site(folder, 2)
        try:
            yield site
        finally:
            cluster.stop(folder / "site")


def test_who_keeps_fewer_cores_busy_than_with_all_cpus_gets_them_back(site: Site) -> None:
    asked = (f"-c{ASKED_CPUS}", "--mem=500")
    whole = [
        msgspec.structs.replace(
            past, use=msgspec.structs.replace(past.use, cores_per_task=BUSY, wall_s=WHOLE_S)
        )
        for past in past_of("turns", TURNS, 900_000, asked={"cpus_per_task": ASKED_CPUS}, used_mib=30)
    ]
    site.train({"turns": whole})
    cut = [site.submit("turns", TURNS, asked=asked) for _ in range(LEAST_JOBS)]
    site.wait_for(lambda: site.have_come_back(*cut))
    assert {run.cpus for runs in site.runs(*cut).values() for run in runs} == {1}
    environment = {**os.environ, **site.sandbox.environment()}

    def has_all() -> bool:
        subprocess.run(["rightsizer", "ingest"], env=environment, check=True, capture_output=True)
        job = site.submit("turns", TURNS, asked=asked)
        site.wait_for(lambda: site.have_come_back(job))
        [run] = site.runs(job)[str(job)]
        return run.cpus == ASKED_CPUS

    site.wait_for(has_all)
    said = site.user.run(
        "rightsizer", "predict", "--why", "--", *asked, "--job-name=turns", str(site.folder / "turns.sh")
    )
    assert "with half as many they kept fewer busy, and ran longer" in said
