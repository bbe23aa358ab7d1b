"""`rightsizer report slowdown`: what it prints, and what it advises."""

from __future__ import annotations

import json

from accounting.store.database import open_store
from tests.accounting.report.report_store import fill, measured
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run


def test_the_command_says_what_to_do(run: Run, site: Site) -> None:
    whole = [measured(number, job_name="fit", wall_s=600) for number in range(8)]
    cut = [measured(10 + number, job_name="fit", wall_s=1800, alloc_mem_mib=2048) for number in range(8)]
    engine = open_store(site.config.store.url, create=True)
    fill(engine, [*whole, *cut], with_steps=False)
    engine.dispose()
    told = run("report", "slowdown")
    assert told.code == 0, told.err
    assert "one family ran 3.00 times as long when cut; 1 row slower beyond chance" in told.err
    assert "rightsizer disable --family USER:FAMILY" in told.err
    [row] = json.loads(run("report", "slowdown", "--format", "json").out)
    assert (row["family"], row["less"], row["times"], row["slower"]) == ("fit", "memory", 3.0, True)
    none = run("report", "slowdown", "--user", "nobody", "--format", "csv")
    assert none.out.startswith("user,family,cluster,partition,cpus,less,")
    assert "no family has five jobs that were cut" in none.err


def test_a_family_counts_once_however_many_rows_it_has(run: Run, site: Site) -> None:
    whole = [measured(number, job_name="fit", wall_s=600) for number in range(8)]
    less = [measured(10 + number, job_name="fit", wall_s=600, alloc_mem_mib=2048) for number in range(8)]
    fewer = [measured(20 + number, job_name="fit", wall_s=600, alloc_cpus=1) for number in range(8)]
    engine = open_store(site.config.store.url, create=True)
    fill(engine, [*whole, *less, *fewer], with_steps=False)
    engine.dispose()
    assert "one family, in the median of 2 rows, ran 1.00 times as long" in run("report", "slowdown").err
