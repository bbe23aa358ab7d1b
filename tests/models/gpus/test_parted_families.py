"""For which families a part of a GPU would be enough, by what their jobs did with a whole one."""

from __future__ import annotations

from typing import Any

import pytest

from accounting.report.gpu_jobs import OnOneGpu
from models.gpus.parted_families import PartedFamily, Rule, parted_families
from models.gpus.parts import mig_instances

RULE = Rule(least_jobs=5, mem_margin=0.15, most_times=1.25, alike=lambda family: family != "wrap")
PARTS = mig_instances(80, 7)


def run(**changes: Any) -> OnOneGpu:
    plain = OnOneGpu("ann", "serve", 0, 3600, mem_mib=4000.0, busy=0.01, is_measured=True)
    return plain._replace(**changes)


def rows_of(*runs: OnOneGpu) -> list[PartedFamily]:
    return parted_families(runs, PARTS, RULE).families


def test_the_smallest_instance_is_enough_for_a_family_that_hardly_computes() -> None:
    (row,) = rows_of(*[run()] * 4, run(busy=0.03, end_s=7200))
    assert (row.part, row.why, row.jobs, row.measured, row.gpu_h) == ("1g.10gb", "", 5, 5, 6.0)
    assert row.times_at_most == pytest.approx(1 + 0.03 * 7)
    mean = (4 * 0.01 + 2 * 0.03) / 6
    assert row.busy_mean_pct == round(100 * mean, 1)
    assert row.part_h == round(6 * (1 + 7 * mean), 2)
    assert row.gpu_h_freed == pytest.approx(6 * (1 - (1 + 7 * mean) / 7), abs=0.01)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mem_mib": 50_000.0}, "memory"),
        ({"busy": 0.8}, "busy"),
        ({"busy": None, "is_measured": False}, "too few measured"),
        ({"is_measured": False}, "too few measured"),
        ({"mem_mib": None}, "too few measured"),
        ({"family": "wrap"}, "names tell too little"),
    ],
)
def test_a_family_that_keeps_its_gpu_has_a_reason(changes: dict[str, Any], why: str) -> None:
    (row,) = rows_of(*[run(**changes)] * 5)
    assert (row.part, row.why, row.gpu_h_freed, row.part_h) == ("", why, 0.0, 0.0)


def test_one_run_that_needed_more_decides_even_where_it_failed() -> None:
    (row,) = rows_of(*[run()] * 5, run(mem_mib=20_000.0, is_measured=False))
    assert (row.part, row.measured, row.jobs) == ("3g.40gb", 5, 6)
    (row,) = rows_of(*[run()] * 5, run(busy=0.5, is_measured=False))
    assert row.why == "busy"


def test_the_margin_counts_for_memory() -> None:
    mem_mib = PARTS[0].mem_mib / 1.15
    assert rows_of(*[run(mem_mib=mem_mib - 1)] * 5)[0].part == "1g.10gb"
    assert rows_of(*[run(mem_mib=mem_mib + 1)] * 5)[0].part == "1g.20gb"


def test_the_family_that_frees_most_comes_first_and_users_are_told_apart() -> None:
    small = [run(user="bob", end_s=60)] * 5
    busy = [run(user="eve", busy=0.9, end_s=90_000)] * 5
    rows = rows_of(*small, *busy, *[run()] * 5)
    assert [row.user for row in rows] == ["ann", "bob", "eve"]


def test_a_clock_that_was_set_back_adds_no_negative_hours() -> None:
    (row,) = rows_of(*[run()] * 5, run(start_s=7200, end_s=3600))
    assert row.gpu_h == 5.0


def test_the_span_goes_from_the_first_start_to_the_last_end() -> None:
    assert parted_families([run(end_s=9000), run(start_s=1800)], PARTS, RULE).span_h == 2.5
    assert parted_families([], PARTS, RULE).span_h == 0.0
