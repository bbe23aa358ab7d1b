"""The audit asks Slurm as ingest does: window by window, in shorter ones where an answer comes late, each job once."""

from sqlalchemy import Engine

from accounting.audit.jobs import compare_jobs
from accounting.errors import LateAnswerError
from accounting.ingest.ingesting import fetched_answer
from accounting.slurm.sacct_records import Metering
from accounting.slurm.windows import DAY_S, HOUR_S, Fetched
from tests.builders import T0, answer_of, job_line


def test_each_attempt_is_compared_once_whatever_windows_it_is_asked_in(store: Engine) -> None:
    since_s = T0 - T0 % DAY_S
    # One ends just where a window does, and two in the middle of one.
    ends_s = [since_s + HOUR_S // 4, since_s + 2 * HOUR_S, since_s + 2 * HOUR_S + 1]
    begun_s = since_s - 10
    lines = {end_s: job_line(number, begun_s, end_s - begun_s) for number, end_s in enumerate(ends_s, 1)}
    asked: list[int] = []

    def source(begin_s: int, end_s: int) -> Fetched:
        asked.append(end_s - begin_s)
        if end_s - begin_s > HOUR_S // 4:
            raise LateAnswerError("too much")
        answer = answer_of(line for ended_s, line in lines.items() if ended_s >= begin_s)
        return fetched_answer(answer, end_s, Metering())

    with store.connect() as connection:
        compared = compare_jobs(connection, source, since_s, since_s + DAY_S)
    assert (compared.attempts, compared.not_ingested) == (3, 3)
    assert max(asked) > HOUR_S // 4 >= asked[-1]
