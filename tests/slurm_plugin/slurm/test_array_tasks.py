"""Array task lists as Slurm writes them, and as it would not."""

import pytest

from slurm_plugin.slurm.array_tasks import count_tasks, task_within


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("9-200%5", 192), ("7", 1), ("1,3,5", 3), ("1-9:2,20%1", 6), ("", 1), ("0", 1),
        # A forged record may contain what Slurm would not write.
        ("0-99999999999999999999", 1), ("1" * 5000, 1), (f"0-9:{'1' * 5000}", 1),
    ],
)  # fmt: skip
def test_the_tasks_in_an_array_task_list(text: str, tasks: int) -> None:
    assert count_tasks(text) == tasks


@pytest.mark.parametrize(
    ("task", "is_within"), [(1, True), (2, False), (9, True), (12, True), (5, True), (13, False)]
)
def test_whether_a_task_is_in_a_list(task: int, is_within: bool) -> None:
    assert task_within(task, "1-9:2,12%5") is is_within
