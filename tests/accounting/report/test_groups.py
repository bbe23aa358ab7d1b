"""Sums of many attempts equal those computed the simple way, however many families there are."""

import functools
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from accounting.records import Attempt
from accounting.report import groups as grouping
from accounting.report import reading
from accounting.report import spreads as spreading
from accounting.report.groups import REST, Gathering
from accounting.report.selection import Selection, usage_query
from accounting.report.spreads import CLASS_WIDTH, Spreading, classes_of
from accounting.report.usage import view_families, view_first
from accounting.report.waste import waste_of
from accounting.store.batches import read_batches
from models.past.families import family_name
from tests.accounting.report.report_store import RULE, fill, measured
from tests.accounting.report.test_report_use import rows_of


def plain_figures(attempts: list[Attempt]) -> dict[str, float]:
    """The same figures computed the simple way, one attempt after another."""
    known = [one for one in attempts if one.use.memory_quality in ("exact", "sampled")]
    return {
        "mem_gib_h_asked": sum((one.asked_mem_mib or 0) / 1024 * one.use.wall_s / 3600 for one in attempts),
        "mem_gib_h_used": sum((one.use.peak_mem_mib or 0) / 1024 * one.use.wall_s / 3600 for one in known),
        "core_h_used": sum((one.use.cores or 0) * one.use.wall_s / 3600 for one in attempts),
        "mem_used_median_gib": statistics.median_low([one.use.peak_mem_mib or 0 for one in known]) / 1024,
        "cores_used_median": statistics.median_low([one.use.cores or 0 for one in attempts]),
    }


def test_many_attempts_in_many_batches_give_the_same_sums(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "PENDING_ROWS", 300)
    monkeypatch.setattr(spreading, "PENDING_ROWS", 300)
    draw = random.Random(5)
    attempts = [
        measured(
            n,
            user=f"u{draw.randint(0, 4)}",
            job_name=f"{draw.choice(['fit', 'sim', 'plot'])}_{n}",
            wall_s=draw.randint(0, 90_000),
            peak_mem_mib=draw.choice([0.0, draw.uniform(1, 60_000)]),
            memory_quality=draw.choice(["exact", "sampled", "short"]),
            cores=draw.uniform(0, 64),
        )
        for n in range(1, 2001)
    ]
    fill(store, attempts)
    gathering = Gathering(("user",), family_name)
    for batch in read_batches(store, usage_query(Selection()), rows=130):
        assert batch.num_rows <= 130
        gathering.add(batch)
    found = gathering.groups()
    assert found is not None
    monkeypatch.setattr(reading, "read_batches", functools.partial(read_batches, rows=70))
    rows = rows_of(store, view_families(found, RULE))
    assert len(rows) == 15
    for row in rows:
        mine = [
            one
            for one in attempts
            if one.row.user == row["user"] and family_name(one.row.job_name) == row["family"]
        ]
        assert row["jobs"] == len(mine)
        for name, exact in plain_figures(mine).items():
            high = CLASS_WIDTH if name.endswith(("median", "median_gib")) else 1.0
            assert exact - 0.001 <= float(str(row[name])) <= exact * high + 0.001, name


def test_more_families_than_there_is_room_for_are_folded_and_users_stay_whole(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "PENDING_ROWS", 100)
    names = [chr(97 + n // 26) + chr(97 + n % 26) for n in range(400)]
    large = [measured(n, user="big", job_name="large", alloc_cpus=1000) for n in range(1, 11)]
    small = [measured(n + 20, user=f"u{n % 2}", job_name=name) for n, name in enumerate(names)]
    fill(store, [*large, *small])
    gathering = Gathering(("user",), family_name, most_families=50)
    for batch in read_batches(store, usage_query(Selection()), rows=40):
        gathering.add(batch)
    found = gathering.groups()
    assert found is not None
    assert found.sums.num_rows <= 50 + 3
    assert found.folded >= 350
    rows = rows_of(store, view_families(found, RULE), top=500)
    assert (rows[0]["family"], rows[0]["jobs"]) == ("large", 10)
    assert {row["user"] for row in rows if row["family"] == REST} == {"u0", "u1"}
    users = {row["user"]: row["jobs"] for row in rows_of(store, view_first(found, RULE, "user"))}
    assert users == {"big": 10, "u0": 200, "u1": 200}
    worst = waste_of(view_families(found, RULE), top=500).rows
    assert all(row["right_cores"] is None for row in worst if row["family"] == REST)


@given(st.lists(st.floats(0, 1e12, allow_subnormal=False), min_size=1))
def test_values_of_a_class_lie_within_two_per_cent(values: list[float]) -> None:
    amounts = np.array(values)
    classes = classes_of(amounts)
    for number in set(classes.tolist()):
        inside = amounts[classes == number]
        assert inside.max() <= inside.min() * CLASS_WIDTH * (1 + 1e-9)


def test_groups_that_were_not_requested_have_no_percentiles(store: Engine) -> None:
    fill(store, [measured(1, user="a"), measured(2, user="b", limit_s=None)])
    one = Spreading(["b"])
    for batch in read_batches(store, usage_query(Selection())):
        one.add(batch, batch["user"].combine_chunks())
    found = one.percentiles([0.5])
    assert {key for key, _ in found} == {"b"}
    assert ("b", "wall_limit") not in found
    assert Spreading(["b"]).percentiles([0.5]) == {}
