"""What jobs with GPUs were given, counted."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from accounting.report.gpu_jobs import Given, read_given
from accounting.report.selection import Selection
from tests.accounting.report.report_store import fill, measured

ON_ONE: dict[str, Any] = {"alloc_cpus": 4, "alloc_mem_mib": 8000, "alloc_gpus": 1, "nodes": 1}


def test_alike_ones_are_counted_and_who_had_no_gpu_or_never_ran_is_none(store: Engine) -> None:
    fill(
        store,
        [
            measured(1, **ON_ONE),
            measured(2, **ON_ONE),
            measured(3, **{**ON_ONE, "alloc_gpus": 8, "nodes": 2}),
            measured(4, **{**ON_ONE, "alloc_gpus": 0}),
            measured(5, **{**ON_ONE, "alloc_gpus": None}),
            measured(6, start_s=-1, **ON_ONE),
            measured(7, **{**ON_ONE, "alloc_mem_mib": None}),
            measured(8, **ON_ONE, user="bob"),
        ],
    )
    assert read_given(store, Selection()) == [Given(4, 8000, 1, 1, 3), Given(4, 8000, 8, 2, 1)]
    assert read_given(store, Selection(user="bob")) == [Given(4, 8000, 1, 1, 1)]
