"""Local times that occur twice: in a dump of the night in which summer time ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.accounting.dumps.table import job, numbered, read, step, text

# In Berlin clocks go back from 03:00 to 02:00 on that day, at 01:00 UTC.
BACK_S = 1761440400
DAY = "2025-10-26T"


@pytest.mark.parametrize(
    ("submit", "start", "end", "elapsed_s", "begin_s", "over_s"),
    [
        ("01:40:00", "01:50:00", "02:20:00", 5400, -4200, 1200),
        ("01:40:00", "01:50:00", "02:20:00", 1800, -4200, -2400),
        ("01:40:00", "02:50:00", "02:10:00", 1200, -600, 600),
        ("02:40:00", "02:10:00", "02:30:00", 1200, 600, 1800),
        ("01:40:00", "02:10:00", "02:30:00", 1200, -3000, -1800),
        ("01:40:00", "02:10:00", "03:10:00", 3600, -3000, 4200),
        ("01:40:00", "None", "02:20:00", 0, None, -2400),
        ("02:40:00", "None", "02:20:00", 0, None, 1200),
        ("01:40:00", str(BACK_S - 600), str(BACK_S - 60), 540, -600, -60),
    ],
)
@pytest.mark.parametrize("many", [1, 700])
def test_a_time_that_occurs_twice_is_the_second_one_where_only_that_fits(
    submit: str,
    start: str,
    end: str,
    elapsed_s: int,
    begin_s: int | None,
    over_s: int,
    many: int,
    tmp_path: Path,
) -> None:
    local = {
        name: f"{DAY}{time}" if ":" in time else time
        for name, time in (("Submit", submit), ("Start", start), ("End", end))
    }
    of_step = {name: local[name] for name in ("Start", "End")} if begin_s is not None else {}
    rows = [
        row
        for number in range(many)
        for row in (
            # Other jobs whose times differ, so that columns are read in bulk.
            *numbered(1000 + number, Submit=f"2023-11-10T10:{number // 60:02}:{number % 60:02}"),
            job(**local, ElapsedRaw=str(elapsed_s)),
            step(**of_step, ElapsedRaw=str(elapsed_s)),
        )
    ]
    records = read(tmp_path, text(rows))
    assert records.quarantined == ()
    found = [one for one in records.jobs.to_pylist() if one["job_id"] == 100]
    assert len(found) == many
    wanted = (0 if begin_s is None else BACK_S + begin_s, BACK_S + over_s)
    assert {(one["start_s"], one["end_s"]) for one in found} == {wanted}
    if begin_s is not None:
        # A step has no submit time of its own: what fits without one stays.
        steps = {(one["start_s"], one["end_s"]) for one in records.steps.to_pylist()[1::2]}
        assert all(over - begin + 1 >= elapsed_s for begin, over in steps)
