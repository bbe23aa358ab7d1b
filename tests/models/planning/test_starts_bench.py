"""The measure of expected starts: no interval is influenced by later starts, and counts are those reported."""

from __future__ import annotations

import numpy

from bench.advisor_starts import Foreseen, calibrated_afterwards, coverage
from models.scheduling.room import Floats

PLANS, PERIOD_S = 200, 600.0


def foreseen_and_started() -> tuple[Foreseen, Floats]:
    """Return plans of two jobs each, foreseen within a tenth, and starts that are off by much more."""
    draw = numpy.random.default_rng(1)
    told_s = numpy.repeat(PERIOD_S * numpy.arange(PLANS), 2)
    start_s = draw.uniform(60.0, 3600.0, 2 * PLANS)
    foreseen = Foreseen(
        told_s=told_s,
        job=numpy.arange(2 * PLANS),
        start_s=start_s,
        low_s=0.9 * start_s,
        high_s=1.1 * start_s,
        journaled=numpy.ones(2 * PLANS, dtype=bool),
    )
    return foreseen, told_s + start_s * numpy.exp(0.7 * draw.standard_normal(2 * PLANS))


def test_a_start_does_not_influence_intervals_reported_before_it() -> None:
    foreseen, started_s = foreseen_and_started()
    now_s = 100 * PERIOD_S
    later_s = numpy.where(started_s > now_s, started_s * 3, started_s)
    found, other = (calibrated_afterwards(foreseen, each) for each in (started_s, later_s))
    before = foreseen.told_s <= now_s
    for one, same in zip(found, other, strict=True):
        assert one[before].tolist() == same[before].tolist()
        assert one.tolist() != same.tolist()


def test_rows_say_how_many_starts_the_intervals_held() -> None:
    foreseen, started_s = foreseen_and_started()
    rows = {(row["foreseen"], row["ahead"]): row for row in coverage(foreseen, started_s)}
    row = rows["first", "any"]
    after_s = started_s - foreseen.told_s
    held = ((after_s >= numpy.floor(foreseen.low_s)) & (after_s <= foreseen.high_s)).mean()
    assert row["within rolled (%)"] == round(100 * float(held), 1) < 20
    assert 70 < float(str(row["within calibrated (%)"])) < 90
    assert (
        row["starts"]
        == 2 * PLANS
        == sum(
            int(str(each["starts"]))
            for (said, ahead), each in rows.items()
            if said == "first" and ahead != "any"
        )
    )
