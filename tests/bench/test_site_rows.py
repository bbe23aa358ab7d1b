"""The site that benchmarks are measured on has every column of the store."""

from accounting.store import schema
from bench import site_rows
from bench.training import population


def test_the_rows_have_the_columns_of_the_store() -> None:
    attempts, steps = site_rows.chunk(0, 10)
    assert set(attempts.column_names) == set(schema.attempts.columns.keys())
    assert set(steps.column_names) == set(schema.steps.columns.keys())


def test_a_training_can_be_measured_on_them() -> None:
    assert population(100).num_rows == 100
