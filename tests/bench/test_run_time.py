"""The benchmark of run times: its sweep by hand, its pictures, and one type of the real traces."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy
import pytest

from bench import run_time_table
from bench.run_time_sweep import Learned, Setting, settings_of, swept
from bench.run_time_traces import LEAST_MEDIAN_S, TracedType, read_types
from models.run_time.adaptive_scaling import Scaling
from models.run_time.importance import Floats
from models.run_time.regression import (
    FOREST,
    FOREST_ON_LAWS,
    MIN_JOBS,
    XGBOOST,
    Error,
    Jobs,
    Judged,
    Model,
    NotLearned,
    judge,
)
from models.run_time.strategy import TypeModel
from tests.traces import TRACES, needs_traces

on_traces = needs_traces("memory/*")


def flat(rows: Floats) -> Floats:
    return numpy.full(len(rows), 60.0)


def learned(wmape: float = 0.1, name: str = "sort", *, trusted: bool = True) -> Learned:
    """Three judged jobs of one hour that requested 8 cores and 1000 MiB; the last one used most of both."""
    used = numpy.array([[1.0, 300.0], [1.0, 200.0], [2.0, 250.0], [1.0, 100.0], [6.0, 700.0]])
    traced = TracedType(
        workflow="flow",
        tool=name,
        jobs=Jobs(resources=("cores", "mem_mib"), amounts=used, run_s=numpy.full(5, 3600.0)),
        asked_cores=numpy.full(5, 8.0),
        asked_mem_mib=numpy.full(5, 1000.0),
    )
    known = Model(resources=("cores", "mem_mib"), fit=lambda *_: flat, predict=flat)
    judged = Judged(
        learned_from=2,
        judged=3,
        model=known,
        predicted_s={XGBOOST: numpy.full(3, 3601.0), FOREST: numpy.full(3, 3602.0)},
        errors={XGBOOST: Error(1.0, wmape), FOREST: Error(2.0, 0.2), FOREST_ON_LAWS: Error(1.0, 0.05)},
        median=Error(3.0, 0.3),
        median_by_chance=0.01,
        importances=(),
    )
    model = TypeModel(
        resources=known.resources,
        predict=flat,
        important=frozenset(),
        lowest=used.min(axis=0),
        typical=numpy.median(used, axis=0),
        highest=used[:2].max(axis=0),
    )
    return Learned(traced=traced, judged=judged, model=model if trusted else NotLearned("too few"))


def test_a_setting_has_its_savings_and_its_jobs_that_fall_short() -> None:
    point = swept([learned()], Setting(scaling=Scaling(alpha=0.25), floor=False))
    assert (point.saved_cores, point.saved_memory) == (0.75, 0.75)
    assert (point.scaled_jobs, point.changed_share) == (1, 0)
    assert [point.short_of_cores, point.short_of_memory] == pytest.approx([1 / 3, 1 / 3])
    floored = swept([learned()], Setting(scaling=Scaling(alpha=0.25), floor=True))
    assert floored.saved_memory == pytest.approx(0.7), "not below the 300 MiB that an earlier job used"


def test_a_type_without_enough_support_from_earlier_jobs_is_left_alone() -> None:
    point = swept([learned(trusted=False)], Setting(scaling=Scaling(alpha=0.25), floor=False))
    assert (point.saved_cores, point.saved_memory, point.scaled_jobs) == (0, 0, 0)


def test_the_goals_name_the_types_that_miss_them() -> None:
    doubted = learned(0.3, "guess", trusted=False)
    rows = {(row["goal"], row["of"]): row for row in run_time_table.summary([learned(), doubted])}
    assert rows["XGBoost ahead of the random forest", "all types"]["not for"] == "flow: guess"
    assert rows["XGBoost ahead of the random forest", "types trusted before"]["holds"] == 1
    assert (
        rows["XGBoost ahead of a forest on the same laws", "types trusted before"]["not for"] == "flow: sort"
    )
    assert [run_time_table.error_row(one)["trusted"] for one in (learned(), doubted)] == ["yes", "no"]


def that_said(one: Learned, ours_s: list[float], peers_s: list[float]) -> Learned:
    """The same type with as many later jobs, all of one hour, for which the methods predicted this much more."""
    run_s = numpy.full(one.judged.learned_from + len(ours_s), 3600.0)
    jobs = msgspec.structs.replace(one.traced.jobs, amounts=numpy.ones((len(run_s), 2)), run_s=run_s)
    said_s = {XGBOOST: 3600 + numpy.array(ours_s), FOREST: 3600 + numpy.array(peers_s)}
    return msgspec.structs.replace(
        one,
        traced=msgspec.structs.replace(one.traced, jobs=jobs),
        judged=msgspec.structs.replace(one.judged, predicted_s=said_s),
    )


@pytest.mark.parametrize(
    ("nearer_s", "by_chance"),
    [([1.0] * 12, 2 / 2**12), ([1.0, -1.0] * 6, 1.0), ([0.0] * 12, 1.0)],
)
def test_the_chance_of_a_lead_is_that_of_random_signs(nearer_s: list[float], by_chance: float) -> None:
    one = that_said(learned(), [2.0] * len(nearer_s), [-2 - nearer for nearer in nearer_s])
    assert run_time_table.chance(one) == pytest.approx(by_chance, abs=0.015)


def test_only_a_lag_beyond_chance_counts_as_behind() -> None:
    behind = learned(wmape=0.25)
    goal = "… or not behind it by more than chance"
    [row, _] = [row for row in run_time_table.summary([behind]) if row["goal"] == goal]
    assert row["holds"] == 1, "three jobs tell nothing"
    lags = that_said(behind, [2.0] * 12, [1.0] * 12)
    [row, _] = [row for row in run_time_table.summary([lags]) if row["goal"] == goal]
    assert row["not for"] == "flow: sort"


def test_pictures_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from bench.run_time_plots import plot_errors, plot_sweep

    types = [learned(0.04, "fast"), learned(0.3, "slow")]
    points = [swept(types, setting) for setting in settings_of()]
    for file in (plot_errors(types, tmp_path), plot_sweep(points, tmp_path)):
        assert file.read_bytes().startswith(b"\x89PNG")


@on_traces
def test_the_types_of_the_traces_are_those_that_fit() -> None:
    types, unfit = read_types(TRACES)
    assert len({one.name for one in types}) == len(types) > 30
    for one in types:
        assert len(one.jobs.run_s) >= MIN_JOBS
        assert numpy.median(one.jobs.run_s) >= LEAST_MEDIAN_S
    assert any("picard_mergesamfiles (median" in name for name in unfit)


@on_traces
def test_on_a_real_tool_the_boosted_trees_are_ahead_of_the_forest() -> None:
    [one] = [one for one in read_types(TRACES)[0] if one.name == "eager: preseq"]
    result = judge(one.jobs, (XGBOOST, FOREST))
    assert isinstance(result, Judged)
    assert result.errors[XGBOOST].wmape <= 0.15
    assert result.errors[XGBOOST].wmape < result.errors[FOREST].wmape
