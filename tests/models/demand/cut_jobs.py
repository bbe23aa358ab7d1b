"""Past jobs that were cut, for tests of what they show."""

from typing import Any

import msgspec

from models.past.attempts import past_job
from models.past.jobs import PastJob
from tests.builders import attempt


def job(**changes: Any) -> PastJob:
    """A job of one task that had requested eight CPUs, was granted two, and kept both busy."""
    told = {"asked_cpus": 8, "given_cpus": 2, "cores_per_task": 2.0, "num_tasks": 1}
    return msgspec.structs.replace(past_job(attempt()), **(told | changes))
