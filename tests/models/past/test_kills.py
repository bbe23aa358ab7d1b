"""What jobs killed for memory say: which request is granted in full, and where Slurm does not see what kills."""

from typing import Any

import pytest

from models.past.evidence import past_use
from models.past.jobs import LEARNED
from tests.models.past.test_history import job

KILLED = {"mem_at_least": True, "complete": False, "mem_mib": 500.0, "asked_mem_mib": 4000}


@pytest.mark.parametrize(
    ("then", "asked_mib", "unanswered"),
    [
        ([KILLED], 6000, True),
        ([KILLED], 4000, False),
        ([KILLED], None, False),
        ([KILLED | {"asked_mem_mib": None}], 6000, False),
        # Its workflow does not know of the kill yet, or does not ask for more any longer.
        ([{"asked_mem_mib": 6000}, KILLED], 6000, True),
        ([KILLED, {"asked_mem_mib": 6000}], 6000, False),
        ([KILLED, {"asked_mem_mib": 8000}], 6000, False),
        ([KILLED, {"asked_mem_mib": 5999}], 6000, True),
        ([KILLED, {"asked_mem_mib": 6000, "complete": False}], 6000, True),
        ([KILLED, KILLED | {"asked_mem_mib": 6000}], 6000, True),
        ([KILLED, KILLED], 4000, True),
        ([KILLED, KILLED], None, True),
        ([KILLED, {"complete": False}, KILLED], 4000, True),
        ([KILLED, {"asked_mem_mib": 100}, KILLED], 4000, False),
        ([KILLED, KILLED, {"asked_mem_mib": 4000}], 4000, False),
        # What ended well between the two had asked for less too.
        ([KILLED, {"asked_mem_mib": 5000}, KILLED | {"asked_mem_mib": 6000}], 6000, True),
        # Only a part of its memory was counted, but it ran to its end.
        ([KILLED, KILLED, {"asked_mem_mib": 4000, "mem_at_least": True}], 4000, False),
        ([KILLED | {"mem_at_least": False}], 6000, False),
    ],
)
def test_one_kill_is_unanswered_for_larger_requests_and_two_for_all_until_a_job_ends_well(
    then: list[dict[str, Any]], asked_mib: float | None, unanswered: bool
) -> None:
    jobs = [job(), *(job(**changes) for changes in then)]
    told = {name: past_use(jobs, name, asked_mib) for name in LEARNED}
    assert {name: past is not None and past.kills == "unanswered" for name, past in told.items()} == {
        name: unanswered and name == "memory" for name in LEARNED
    }


WHOLE = {"asked_mem_mib": 4000, "given_mem_mib": 4000, "mem_mib": 200.0}
CUT = WHOLE | {"given_mem_mib": 1056}
HIDDEN = KILLED | {"job_id": 7, "given_mem_mib": 1056, "mem_mib": 1056.0}
AGAIN = WHOLE | {"job_id": 7}


@pytest.mark.parametrize(
    ("then", "unseen"),
    [
        ([HIDDEN, AGAIN], True),
        # What it was seen to use before the kill does not show whether Slurm sees what kills it.
        ([WHOLE, HIDDEN], False),
        ([HIDDEN | {"job_id": 0}, AGAIN | {"job_id": 0}], False),
        ([HIDDEN, AGAIN | {"mem_short": True}], False),
        ([HIDDEN, AGAIN | {"mem_mib": None}], False),
        ([HIDDEN, AGAIN | {"complete": False}], False),
        # It ran on several nodes, and its memory was counted on one.
        ([HIDDEN, AGAIN | {"mem_at_least": True}], False),
        # As much as the next job gets anyway: sampled a little below what it needed.
        ([HIDDEN, AGAIN | {"mem_mib": 880.0}], False),
        ([HIDDEN, AGAIN | {"mem_mib": 879.0}], True),
        # Other jobs were seen to need as much.
        ([HIDDEN, AGAIN, WHOLE | {"mem_mib": 900.0}], False),
        # The user's own request was too small.
        ([HIDDEN | {"given_mem_mib": 4000}, AGAIN], False),
        ([HIDDEN | {"given_mem_mib": None}, AGAIN], False),
        # Memory came with its CPUs, of which it was granted fewer.
        (
            [
                HIDDEN | {"asked_mem_mib": None, "asked_cpus": 8, "given_cpus": 2},
                AGAIN | {"asked_mem_mib": None},
            ],
            True,
        ),
        # A kill by chance, among jobs that were cut as far.
        ([*[CUT] * 9, HIDDEN, AGAIN], True),
        ([*[CUT] * 10, HIDDEN, AGAIN], False),
        # The others ended well with more than the killed job had.
        ([*[CUT | {"given_mem_mib": 1057}] * 10, HIDDEN, AGAIN], True),
        # From some day on the jobs need what is not seen.
        (
            [
                *[CUT] * 50,
                HIDDEN,
                AGAIN,
                HIDDEN | {"job_id": 8, "given_mem_mib": 1300},
                AGAIN | {"job_id": 8},
            ],
            True,
        ),
        ([*[CUT] * 50, HIDDEN, AGAIN, CUT, HIDDEN | {"job_id": 8}, AGAIN | {"job_id": 8}], False),
        # These are not requeued: the user submits new ones, which keep all.
        ([HIDDEN, WHOLE], False),
        # The other one was cancelled.
        ([HIDDEN, WHOLE, CUT | {"complete": False}, WHOLE], False),
        ([HIDDEN, WHOLE, HIDDEN | {"job_id": 8, "given_mem_mib": 1300}, WHOLE], True),
        ([HIDDEN, WHOLE | {"mem_mib": 3000.0}, HIDDEN | {"job_id": 8}, WHOLE], False),
    ],
)
def test_kills_are_unseen_where_the_job_then_uses_less_than_it_was_killed_with(
    then: list[dict[str, Any]], unseen: bool
) -> None:
    jobs = [job(**(WHOLE | {"job_id": 100 + place} | changes)) for place, changes in enumerate(then)]
    told = {name: past_use(jobs, name, 4000) for name in LEARNED}
    assert {name: past is not None and past.kills == "unseen" for name, past in told.items()} == {
        name: unseen and name == "memory" for name in LEARNED
    }
