"""Past attempts in columns, read back one by one: the same requests and jobs as from the attempts themselves."""

from typing import Any

import msgspec
import numpy as np
import pytest

from accounting.records import Attempt
from models.past import rows
from models.past.attempts import past_job, request_of
from models.past.columns import columns_of_attempts
from models.past.rows import past_jobs, requests_in
from tests.builders import T0, attempt


def told(number: int, **changes: Any) -> Attempt:
    made = attempt(job_id=number, submit_s=T0 + 1000 * number, mem_mib=100.5 + number, **changes)
    texts = {"account": f"a{number % 2}", "partition": f"p{number % 3}", "qos": "" if number % 2 else "high"}
    return msgspec.structs.replace(made, row=msgspec.structs.replace(made.row, **texts))


ATTEMPTS = [
    told(0),
    told(1, user="zoe", job_name="", req_gpus=2, gpus=1),
    told(10, state="FAILED"),
    told(2, user="ann", job_name="fit_α.sh", state="OUT_OF_MEMORY", token=False),
    msgspec.structs.replace(told(3), asked_cpus=None, asked_mem_mib=None, asked_gpus=None, input_mib=12.5),
    msgspec.structs.replace(told(9), use=msgspec.structs.replace(told(9).use, step_cpus=3, step_mem_mib=400)),
    msgspec.structs.replace(told(4), asked_cpus=7, num_tasks=3, script_signature=""),
    msgspec.structs.replace(told(5), row=msgspec.structs.replace(told(5).row, limit_s=None, start_s=0)),
    *(
        msgspec.structs.replace(one, use=msgspec.structs.replace(one.use, memory_quality="censored"))
        for one in (told(6, nodes=4), told(7, nodes=4, state="OUT_OF_MEMORY"), told(8))
    ),
]


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_attempts_in_columns_give_the_same_requests_and_past_jobs(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(rows, "OBJECTS_AT_ONCE", at_once)
    past = columns_of_attempts(ATTEMPTS)
    every = np.arange(len(past))
    assert list(requests_in(past, every)) == [request_of(one) for one in ATTEMPTS]
    assert list(past_jobs(past, every)) == [past_job(one) for one in ATTEMPTS]
    odd, chosen = past.part(every % 2 == 1), np.array([2, 0])
    assert list(requests_in(odd, chosen)) == [request_of(ATTEMPTS[5]), request_of(ATTEMPTS[1])]
    assert list(past_jobs(odd, chosen)) == [past_job(ATTEMPTS[5]), past_job(ATTEMPTS[1])]
    assert list(requests_in(past, np.array([], np.int64))) == []
