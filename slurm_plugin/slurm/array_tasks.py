"""The tasks of an array, as Slurm lists them: `1-9:2,12%5`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A single task, a range, or a range with a step: 3, 1-9 or 1-9:2.
_TASKS = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?(?::(\d{1,10}))?", re.ASCII)


def count_tasks(text: str) -> int:
    """Return how many tasks `1-9:2,12%5` is; 1 if it names none."""
    return max(1, sum(len(span) for span in _task_spans(text)))


def task_within(task: int, text: str) -> bool:
    """Whether a task is one of `1-9:2,12%5`."""
    return any(task in span for span in _task_spans(text))


def tasks_in(text: str) -> list[str]:
    """Return the tasks that `1-9:2,12%5` is, each as a number; none if it names none."""
    return [str(task) for span in _task_spans(text) for task in span]


def _task_spans(text: str) -> Iterator[range]:
    """Yield the tasks of each part; none for what Slurm would not write, such as a number that it cannot hold."""
    for part in text.partition("%")[0].split(","):
        if span := _TASKS.fullmatch(part):
            low, high, step = span.groups()
            yield range(int(low), int(high or low) + 1, max(1, int(step or 1)))
