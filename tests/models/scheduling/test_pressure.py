"""How large a job may be that is promised its deadline."""

import math

from models.scheduling.pressure import Pressure


def after(works_s: list[float]) -> Pressure:
    """Jobs that came one a second; half is promised, and the first hour counts as ten minutes at least."""
    pressure = Pressure(0.5)
    for number, work_s in enumerate(works_s):
        pressure.came(float(number), work_s)
    return pressure


def test_where_all_can_be_done_any_size_may_come() -> None:
    assert after([100, 150, 50]).most_s(2) == math.inf


def test_smallest_first_up_to_what_is_promised() -> None:
    # 300 s of 600 s: 50 + 100 + 100 fit, 150 does not.
    assert after([150, 100, 50, 100, 400]).most_s(4) == 150


def test_what_came_an_hour_ago_is_forgotten() -> None:
    pressure = after([2000, 100, 50])
    assert pressure.most_s(3600) == 2000
    assert pressure.most_s(3601) == math.inf
    assert pressure.came_lately
    assert pressure.most_s(3603) == math.inf
    assert not pressure.came_lately
