"""`rightsizer report cuts`, as an admin reads it after a month in observe mode."""

from __future__ import annotations

import json

from accounting.store.database import open_store
from tests.accounting.report.report_store import fill, measured
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run

ASKED = "asked=tasks:1,cpus:8,mem:8192"
WOULD = f"rightsizer/1;id=a;mode=observe;why=resized;{ASKED};would=cpus:3,mem:2048;model=v"
DONE = f"rightsizer/1;id=a;mode=enforce;why=resized;{ASKED};granted=cpus:3,mem:2048;model=v"


def test_the_report_has_a_row_for_each_partition_and_one_for_all(run: Run, site: Site) -> None:
    engine = open_store(site.config.store.url, create=True)
    fill(
        engine,
        [
            measured(1, admin_comment=WOULD, partition="batch"),
            measured(2, admin_comment=WOULD, partition="gpu"),
            measured(3, admin_comment=DONE, partition="gpu", alloc_cpus=3, alloc_mem_mib=2048),
        ],
        with_steps=False,
    )
    engine.dispose()
    rows = json.loads(run("report", "cuts", "--format", "json").out)
    assert {(row["name"], row["cuts"], row["cut"]) for row in rows} == {
        ("batch", "would be", 1),
        ("gpu", "would be", 1),
        ("gpu", "done", 1),
    }
    whole = json.loads(run("report", "cuts", "--by", "all", "--format", "json").out)
    assert [(row["name"], row["cuts"], row["cut"]) for row in whole] == [
        ("all jobs", "would be", 2),
        ("all jobs", "done", 1),
    ]
    assert "short at most %" in run("report", "cuts").out
    none = run("report", "cuts", "--user", "nobody-here")
    assert (none.code, "no ended job of this selection has a decision" in none.err) == (0, True)
