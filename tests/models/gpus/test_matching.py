"""The matching of classes is the best there is, and the same with both algorithms."""

import itertools

import numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models.gpus import matching
from models.gpus.matching import matched
from models.scheduling.room import Floats, Ints

GAINS = st.integers(-20, 60).map(lambda hundredths: hundredths / 100)
COUNTS = arrays(numpy.int64, 3, elements=st.integers(0, 3))


def best_of_all(gain: Floats, rows: Ints, columns: Ints) -> float:
    """Return the largest sum of gains, by trying each way of giving each single row a column or none."""
    singles = [row for row, count in enumerate(rows) for _ in range(count)]
    choices = [column for column, count in enumerate(columns) for _ in range(count)] + [-1] * len(singles)
    best = 0.0
    for chosen in set(itertools.permutations(choices, len(singles))) if len(choices) < 9 else ():
        pairs = zip(singles, chosen, strict=True)
        best = max(best, sum(gain[row, column] for row, column in pairs if column >= 0))
    return best


@settings(max_examples=60, deadline=None)
@given(
    gain=arrays(numpy.float64, (3, 3), elements=GAINS),
    rows=arrays(numpy.int64, 3, elements=st.integers(0, 1)),
    columns=arrays(numpy.int64, 3, elements=st.integers(0, 2)).filter(lambda found: found.sum() <= 4),
)
def test_no_other_matching_gains_more(gain: Floats, rows: Ints, columns: Ints) -> None:
    found = matched(gain, rows, columns)
    assert abs((found * gain).sum() - best_of_all(gain, rows, columns)) < 1e-9


@settings(max_examples=60, deadline=None)
@given(gain=arrays(numpy.float64, (3, 3), elements=GAINS), rows=COUNTS, columns=COUNTS)
def test_matching_job_by_job_and_by_classes_gains_the_same(gain: Floats, rows: Ints, columns: Ints) -> None:
    wanted = numpy.maximum(gain, 0)
    found = [way(wanted, rows, columns) for way in (matching._one_by_one, matching._transported)]
    one, other = ((each * wanted).sum() for each in found)
    assert abs(one - other) < 1e-9
    for each in (*found, matched(gain, rows, columns)):
        assert (each >= 0).all()
        assert (each.sum(axis=1) <= rows).all()
        assert (each.sum(axis=0) <= columns).all()
    assert not matched(gain, rows, columns)[gain <= 0].any()


def test_many_jobs_are_matched_by_classes() -> None:
    # 1,500 of one class and 1,000 of another with 2,000: all of the better one, and of the other as many as are left.
    gain = numpy.array([[0.5, 0.2], [0.4, -0.1]])
    found = matched(gain, numpy.array([1500, 1000]), numpy.array([2000, 3000]))
    assert found.tolist() == [[1000, 500], [1000, 0]]
