"""The advisor's cycles: written to the store once, and read from it as evidence."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from sqlalchemy import Engine, select

from accounting.frames import Floats
from accounting.ingest.run import IngestSettings, Run
from accounting.ingest.spools import ingest_spools
from accounting.journal.advice import AdvisedJob, Cycle, encode_cycle
from accounting.report.advisor import LEAST_BLOCKS, Blocks, Foreseen, effects, start_rows
from accounting.report.advisor_reading import AS_IT_IS, read_blocks, read_foreseen, read_recent_foreseen
from accounting.report.selection import Selection
from accounting.store import schema
from accounting.store.advice import write_cycles
from models.planning.orders import AS_IS
from tests.accounting.report.report_store import fill, measured
from tests.builders import T0
from tests.stores import content

BLOCK_S = 3600


def cycle(number: int, **changes: Any) -> Cycle:
    fields: dict[str, Any] = {
        "id": f"cycle-{number}",
        "time_s": float(T0 + 60 * number),
        "cluster": "alpha",
        "objective": "slowdown",
        "order": "shortest first",
        "why": "it is best by 12 %",
        "gain": 0.12,
        "pending": 5,
        "running": 2,
        "applied": True,
        "tried": (("as it is", 3.5), ("shortest first", 3.1)),
        "jobs": (
            AdvisedJob(job_id=7, submit_s=float(T0), before=0, after=16, start_s=float(T0 + 500), reason="x"),
        ),
    }
    return Cycle(**{**fields, **changes})


def settings_of(folder: Path) -> IngestSettings:
    return IngestSettings(
        sacct="none",
        overlap_s=0,
        first_days=1,
        gpu_spool=folder / "spool",
        journal=folder / "journal",
        advisor=folder / "advisor",
    )


def read_on(store: Engine, folder: Path) -> Run:
    run = Run(settings_of(folder), T0)
    ingest_spools(store, run)
    return run


def test_cycles_are_read_from_where_reading_stopped_and_none_twice(store: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "advisor"
    folder.mkdir()
    file = folder / "cycles-20260101.jsonl"
    first, second = encode_cycle(cycle(1)), encode_cycle(cycle(2))
    file.write_bytes(first + b"rubbish\n" + second[:20])
    run = read_on(store, tmp_path)
    assert (run.report.cycles.new, run.report.quarantined) == (1, 1)
    file.write_bytes(first + b"rubbish\n" + second)
    assert read_on(store, tmp_path).report.cycles.new == 1
    before = content(store)
    again = read_on(store, tmp_path)
    assert (again.report.cycles.new, again.report.quarantined, content(store)) == (0, 0, before)
    with store.connect() as connection:
        rows = connection.execute(select(schema.advisor_cycles)).mappings().all()
        jobs = connection.execute(select(schema.advised_jobs)).mappings().all()
    assert [(row["id"], row["chosen"], row["applied"], row["control"]) for row in rows] == [
        ("cycle-1", "shortest first", 1, 0),
        ("cycle-2", "shortest first", 1, 0),
    ]
    assert [(row["job_id"], row["factor_after"], row["start_s"]) for row in jobs] == [(7, 16, T0 + 500)] * 2


def test_a_line_with_a_number_beyond_what_a_store_holds_is_quarantined(store: Engine, tmp_path: Path) -> None:
    told = cycle(1)
    [job] = told.jobs
    jobs: list[dict[str, Any]] = [
        {"job_id": 2**63},
        {"submit_s": 1e300},
        {"before": 2**63},
        {"after": -(2**63) - 1},
    ]
    damaged = [
        *(cycle(2, jobs=(msgspec.structs.replace(job, **change),)) for change in jobs),
        cycle(2, pending=2**31),
        cycle(2, running=2**64),
    ]
    (tmp_path / "advisor").mkdir()
    file = tmp_path / "advisor" / "cycles-20260101.jsonl"
    file.write_bytes(b"".join(map(encode_cycle, [*damaged, told])))
    report = read_on(store, tmp_path).report
    assert (report.cycles.new, report.quarantined) == (1, len(damaged))


def test_the_starts_of_jobs_that_started_are_compared_with_those_foreseen(store: Engine) -> None:
    def told(job_id: int, foreseen_s: int, width_s: int = 100) -> AdvisedJob:
        return AdvisedJob(
            job_id=job_id,
            submit_s=float(T0),
            before=0,
            after=5,
            base_start_s=float(T0 + foreseen_s + 900),
            start_s=float(T0 + foreseen_s),
            low_s=float(T0 + foreseen_s - width_s),
            high_s=float(T0 + foreseen_s + width_s),
        )

    acted = cycle(0, jobs=(told(1, 600), told(2, 600), told(3, 600), told(99, 600)))
    watched = cycle(1, applied=False, control=True, jobs=(told(4, 600),))
    other = cycle(2, cluster="beta", jobs=(told(1, 600),))
    fill(
        store,
        [
            measured(1, start_s=T0 + 650, display_id="1"),
            measured(2, start_s=T0 + 1200, display_id="2"),
            measured(3, start_s=T0 + 610, display_id="9_3"),
            measured(4, start_s=T0 + 1560, display_id="4"),
            measured(5, start_s=T0 + 10, display_id="5"),
        ],
    )
    with store.begin() as connection:
        write_cycles(connection, [acted, watched, other])
    rows = {(row["order"], row["advisor"]): row for row in start_rows(read_foreseen(store, Selection()))}
    # Nothing can be said of the tasks of an array, and nothing is known yet of job 99.
    assert rows["shortest first", "acted"]["jobs"] == 2
    assert rows["shortest first", "acted"]["within_interval_pct"] == 50
    assert rows["shortest first", "acted"]["median_error_min"] == pytest.approx((50 + 600) / 2 / 60, abs=0.01)
    # Where the plan was not carried out, the start without it counts, and no interval.
    watched_row = rows["shortest first", "watched"]
    assert (watched_row["median_late_min"], watched_row["within_interval_pct"]) == (1.0, None)
    assert rows["all", ""]["jobs"] == 3


def test_the_latest_rows_of_each_part_of_time_are_read_also_of_jobs_not_started(store: Engine) -> None:
    def at(second: int, *job_ids: int, cluster: str = "alpha") -> Cycle:
        jobs = tuple(
            AdvisedJob(job_id=job_id, submit_s=float(T0), before=0, after=1, start_s=T0 + second + 60.0)
            for job_id in job_ids
        )
        told_s = float(T0 + second)
        return cycle(second, id=f"{cluster} {second}", time_s=told_s, cluster=cluster, jobs=jobs)

    fill(store, [measured(1, start_s=T0 + 500, display_id="1"), measured(4, start_s=T0 + 5, display_id="4")])
    with store.begin() as connection:
        write_cycles(connection, [at(10, 1), at(20, 1, 2), at(30, 3), at(110, 4), at(120, 5, cluster="beta")])
    read = partial(read_recent_foreseen, store, "alpha", T0 + 200.0, part_s=100.0)
    found = read(back_s=200.0, most=3)
    rows = zip((found.told_s - T0).tolist(), found.job, (found.started_s - T0).tolist(), strict=True)
    told = {(told_s, int(job.split()[1])): started_s for told_s, job, started_s in rows}
    # Three rows of the first hundred seconds; the job that started before the cycle was another run.
    assert set(told) == {(110.0, 4), (30.0, 3), (20.0, 1), (20.0, 2)}
    assert told[20.0, 1] == 500.0
    assert all(np.isnan(told[key]) for key in set(told) - {(20.0, 1)})
    assert len(read(back_s=100.0, most=3).job) == 1


def test_slurm_records_starts_to_the_second(store: Engine) -> None:
    def told(job_id: int, low_s: float, high_s: float) -> AdvisedJob:
        return AdvisedJob(
            job_id=job_id,
            submit_s=float(T0),
            before=0,
            after=0,
            start_s=T0 + low_s,
            low_s=T0 + low_s,
            high_s=T0 + high_s,
        )

    # Between the first plan and the end of its second; in the second in which the interval begins; before; after.
    jobs = (told(1, 0.7, 0.8), told(2, 2.4, 9.0), told(3, 2.4, 9.0), told(4, 2.4, 9.0))
    starts = {1: 0, 2: 2, 3: 1, 4: 10}
    fill(store, [measured(job, start_s=T0 + at_s, display_id=str(job)) for job, at_s in starts.items()])
    later = cycle(1, time_s=T0 + 1.1, jobs=(told(1, 1.1, 5.0), told(2, 2.0, 3.0)))
    with store.begin() as connection:
        write_cycles(connection, [cycle(0, time_s=T0 + 0.7, jobs=jobs), later])
    (row, _) = start_rows(read_foreseen(store, Selection()))
    # For the second plan one job had started before it: that is an earlier run of it. The other job moves again.
    assert (row["jobs"], row["foreseen"], row["within_interval_pct"]) == (4, 5, 60)


def waits(wait_s: Floats, run_s: Floats) -> Floats:
    found: Floats = np.maximum(1.0, wait_s / np.maximum(run_s, 10))
    return found


def test_jobs_belong_to_the_block_in_which_they_were_submitted(store: Engine) -> None:
    begin = T0 // BLOCK_S * BLOCK_S

    def at(block: int, second: int, applied: bool, control: bool) -> Cycle:
        return cycle(
            0,
            id=f"{block}.{second}",
            time_s=float(begin + block * BLOCK_S + second),
            applied=applied,
            control=control,
        )

    cycles = [at(0, second, True, False) for second in (100, 3000)]
    cycles += [at(1, second, False, True) for second in (100, 3000)]
    cycles += [at(2, 100, True, False), at(2, 3000, False, True)]  # it changed within the block
    cycles += [at(3, second, False, False) for second in (100, 3000)]  # it never acted

    def job(number: int, block: int, second: int, wait_s: int) -> Any:
        submit_s = begin + block * BLOCK_S + second
        return measured(
            number,
            submit_s=submit_s,
            start_s=submit_s + wait_s,
            end_s=submit_s + wait_s + 50,
            display_id=str(number),
        )

    fill(
        store,
        [
            job(1, 0, 200, 500),
            job(2, 0, 50, 500),  # before the first cycle
            job(3, 0, 3500, 500),  # after the last
            job(4, 1, 200, 3600),
            job(5, 2, 200, 10),
            job(6, 3, 200, 10),
        ],
        with_steps=False,
    )
    with store.begin() as connection:
        write_cycles(connection, cycles)
    blocks = read_blocks(store, Selection(), BLOCK_S, waits)
    assert list(blocks.acted) == [True, False]
    assert blocks.wait_s.tolist() == [500, 3600]
    assert blocks.slowdown.tolist() == [550 / 50, 3650 / 50]
    assert list(blocks.begun_in) == [True, False]
    assert read_blocks(store, Selection(user="nobody"), BLOCK_S, waits).acted == []


def test_blocks_of_two_clusters_at_one_time_are_two(store: Engine) -> None:
    begin = T0 // BLOCK_S * BLOCK_S
    clusters = ("alpha", "beta")
    cycles = [
        cycle(0, id=f"{cluster}.{second}", cluster=cluster, time_s=float(begin + second))
        for cluster in clusters
        for second in (0, 3000)
    ]
    jobs = [
        measured(
            number,
            cluster=cluster,
            submit_s=begin + 100 * number,
            start_s=begin + 500,
            end_s=begin + 600,
            display_id=str(number),
        )
        for cluster in clusters
        for number in (1, 2)
    ]
    fill(store, jobs, with_steps=False)
    with store.begin() as connection:
        write_cycles(connection, cycles)
    blocks = read_blocks(store, Selection(), BLOCK_S, waits)
    assert sorted(blocks.block.tolist()) == [0, 0, 1, 1]
    assert effects(blocks)[0].acted_blocks == 2


def planted(seed: int, effect: float, blocks: int = 40) -> Blocks:
    """Blocks of 20 to 60 jobs, each with a level of its own; acting takes a share off every wait."""
    draw = np.random.default_rng(seed)
    block, acted, wait_s = [], [], []
    for number in range(blocks):
        is_acted = bool(draw.random() < 0.5)
        level = draw.lognormal(6, 0.5)
        jobs = int(draw.integers(20, 60))
        drawn = level * draw.lognormal(0, 1.0, jobs) * (1 - effect if is_acted else 1)
        block += [number] * jobs
        acted += [is_acted] * jobs
        wait_s += drawn.tolist()
    waited = np.array(wait_s)
    return Blocks(
        block=np.array(block),
        acted=acted,
        wait_s=waited,
        slowdown=1 + waited / 100,
        begun_in=[True] * len(waited),
    )


@pytest.mark.parametrize("effect", [0.0, 0.3, 0.6])
def test_the_interval_covers_a_planted_effect_about_as_often_as_it_says(effect: float) -> None:
    found = [effects(planted(seed, effect))[0] for seed in range(100)]
    covered = [
        one.low_pct <= 100 * effect <= one.high_pct
        for one in found
        if one.low_pct is not None and one.high_pct is not None
    ]
    assert len(covered) == 100
    assert 0.87 <= np.mean(covered) <= 0.99


def test_no_effect_is_reported_as_none_and_a_large_one_as_one() -> None:
    none = [effects(planted(seed, 0.0))[0].says for seed in range(60)]
    assert none.count("no difference can be shown") >= 51
    large = [effects(planted(seed, 0.7, blocks=80))[0].says for seed in range(30)]
    assert large.count("better with the advisor") >= 28
    assert effects(planted(1, -3.0, blocks=80))[1].says == "worse with the advisor"


def test_too_few_blocks_tell_nothing_and_the_report_says_so() -> None:
    few = planted(3, 0.5, blocks=LEAST_BLOCKS)
    for effect in effects(few):
        assert effect.says.startswith("too few data")
        assert (effect.low_pct, effect.high_pct) == (None, None)
        assert effect.acted_blocks + effect.watched_blocks == LEAST_BLOCKS


@pytest.mark.parametrize("waited", [None, 0, 2])
def test_one_job_that_waited_is_no_certain_effect(waited: int | None) -> None:
    """Ten blocks of two jobs of either kind; one job waited while the advisor watched (0) or acted (2), or none did."""
    block, wait_s = np.repeat(np.arange(20), 2), np.zeros(40)
    if waited is not None:
        wait_s[waited] = 60.0
    found = effects(
        Blocks(
            block=block,
            acted=(block % 2 > 0).tolist(),
            wait_s=wait_s,
            slowdown=np.ones(40),
            begun_in=[True] * 40,
        )
    )
    assert (found[0].low_pct, found[0].high_pct) == (None, None)
    assert found[0].says == "too few data: hardly any job waited while the advisor watched"
    assert found[1].says == "no difference can be shown"


def test_without_foreseen_starts_there_is_no_row() -> None:
    none = np.empty(0)
    nothing = Foreseen(
        job=[], order=[], acted=[], told_s=none, foreseen_s=none, low_s=none, high_s=none, started_s=none
    )
    assert start_rows(nothing) == []


def test_slurms_own_order_has_the_same_name_as_in_plans() -> None:
    assert AS_IT_IS == AS_IS
