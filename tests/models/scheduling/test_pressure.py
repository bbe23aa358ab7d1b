"""How large a job may be that is promised its deadline."""

import math

from models.scheduling.pressure import Pressure


def after(works_s: list[float]) -> Pressure:
    """Jobs that came one per second; half is promised, and the first hour counts as at least ten minutes."""
    pressure = Pressure(0.5)
    for number, work_s in enumerate(works_s):
        pressure.came(float(number), work_s)
    return pressure


def test_any_size_is_promised_where_all_work_can_be_done() -> None:
    assert after([100, 150, 50]).most_s(2) == math.inf


def test_the_smallest_jobs_are_promised_first_up_to_the_promised_share() -> None:
    # 300 s of 600 s: 50 + 100 + 100 fit, 150 does not.
    assert after([150, 100, 50, 100, 400]).most_s(4) == 150


def test_more_is_promised_the_longer_jobs_have_been_coming() -> None:
    pressure = after([700, 150, 50])
    assert pressure.most_s(600) == 700
    # Half of 1,800 s is all of their work; a second earlier it is not.
    assert pressure.most_s(1799) == 700
    assert pressure.most_s(1800) == math.inf


def test_jobs_that_came_an_hour_ago_are_forgotten() -> None:
    pressure = after([2000, 100, 50])
    assert pressure.most_s(3600) == 2000
    assert pressure.most_s(3601) == math.inf
    assert pressure.came_lately
    assert pressure.most_s(3603) == math.inf
    assert not pressure.came_lately
