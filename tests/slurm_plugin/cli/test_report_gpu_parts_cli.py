"""`rightsizer report gpu-parts`: whose jobs need only a part of a GPU."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest

from accounting.records import Attempt
from accounting.store.database import open_store
from accounting.store.records import write_gpu_use
from tests.accounting.report.report_store import fill, measured
from tests.builders import gpu_use
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run


def stock(site: Site, *, busy_pct: dict[str, float]) -> None:
    """Fill a store with jobs of each user, five hours in all, with one GPU kept busy for `busy_pct` of the time."""
    engine = open_store(site.config.store.url, create=True)
    jobs = [
        on_gpu(10 * place + number, user=user)
        for place, user in enumerate(busy_pct)
        for number in range(1, 6)
    ]
    fill(engine, jobs, with_steps=False)
    with engine.begin() as connection:
        write_gpu_use(
            connection,
            [
                gpu_use(
                    job_id=one.row.job_id,
                    cluster=one.row.cluster,
                    first_s=one.row.start_s,
                    last_s=one.row.end_s,
                    util_mean_pct=busy_pct[one.row.user],
                )
                for one in jobs
            ],
        )
    engine.dispose()


def on_gpu(number: int, **changes: Any) -> Attempt:
    figures = {"gpus": 1, "gpu_mem_mib": 6000.0, "gpu_quality": "sampled", "gpu_source": "nvml"}
    return measured(number, **{"job_name": "serve", "alloc_gpus": 1, "nodes": 1, **figures, **changes})


def test_a_user_who_hardly_computes_is_advised_an_instance_and_another_keeps_a_gpu(
    site: Site, run: Run
) -> None:
    stock(site, busy_pct={"ann": 2.0, "eve": 90.0})
    told = run("report", "gpu-parts", "--gpu-mem-gib", "80", "--format", "json")
    assert told.code == 0, told.err
    ann, eve = json.loads(told.out)
    assert (ann["user"], ann["part"], ann["times_at_most"], ann["why"]) == ("ann", "1g.10gb", 1.14, "")
    assert ann["gpu_h_freed"] == pytest.approx(5 * (1 - 1.14 / 7), abs=0.01)
    assert (eve["user"], eve["part"], eve["why"]) == ("eve", "", "busy")
    assert (
        "1 of 2 families could use a part of a GPU; of 10.0 GPU hours held by jobs with one GPU this frees at least 4.2"
        in told.err
    )
    # Five hours of ann's, made a seventh longer, within the 40 between the first start and the last end.
    assert re.search(r"on average over 4\d hours these jobs would hold 0.1\d+ of 1g.10gb", told.err)


def test_every_format_shows_the_same(site: Site, run: Run) -> None:
    stock(site, busy_pct={"ann": 2.0})
    as_json, as_csv, table = (
        run("report", "gpu-parts", "--gpu-mem-gib", "80", "--format", form)
        for form in ("json", "csv", "table")
    )
    (row,) = json.loads(as_json.out)
    (same,) = csv.DictReader(io.StringIO(as_csv.out))
    assert same == {name: "" if value is None else str(value) for name, value in row.items()}
    assert re.search(r"5 \(5\) .* 1g\.10gb ", table.out)


def test_shards_and_gpus_with_four_instances_are_advised(site: Site, run: Run) -> None:
    stock(site, busy_pct={"ann": 2.0})

    def part_by(*options: str) -> str:
        (row,) = json.loads(run("report", "gpu-parts", *options, "--format", "json").out)
        return str(row["part"])

    assert part_by("--gpu-mem-gib", "32", "--shards", "4") == "shard:1"
    assert part_by("--gpu-mem-gib", "24", "--instances", "4") == "2g.12gb"
    assert part_by("--gpu-mem-gib", "6") == ""


def test_without_measurements_the_report_says_what_to_do(site: Site, run: Run) -> None:
    engine = open_store(site.config.store.url, create=True)
    fill(
        engine,
        [on_gpu(n, gpu_source="", gpu_quality="absent", gpus=None, gpu_mem_mib=None) for n in range(1, 9)],
    )
    engine.dispose()
    told = run("report", "gpu-parts", "--gpu-mem-gib", "80")
    assert "none of 1 family is known to manage with a part of a GPU" in told.err
    assert "8.0 of 8.0 hours belong to families with too few measured jobs; `rightsizer collect`" in told.err
    none = run("report", "gpu-parts", "--gpu-mem-gib", "80", "--user", "nobody")
    assert (none.code, none.out.strip()) == (0, "")
    assert "no attempt with one GPU: the store has no attempt of this selection" in none.err


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--gpu-mem-gib"),
        (("--gpu-mem-gib", "0"), "not in the range"),
        (("--gpu-mem-gib", "80", "--shards", "1"), "not in the range"),
        (("--gpu-mem-gib", "80", "--slower", "-1"), "not in the range"),
        (("--gpu-mem-gib", "80", "--instances", "5"), "'7', '4'"),
        (("--gpu-mem-gib", "80", "--instances", "4", "--shards", "4"), "--shards replaces MIG"),
    ],
)
def test_wrong_options_are_explained(options: tuple[str, ...], said: str, run: Run) -> None:
    told = run("report", "gpu-parts", *options)
    assert told.code == 2
    assert said in told.err
