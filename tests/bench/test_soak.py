"""What the soak test says of processes: growth is seen, warming up is not taken for it, a restart begins again."""

import os
import threading
import time
from collections.abc import Callable

import pytest

from bench.soak_site import BEFORE, MOST_ERRORS, RECONFIGURE, blame, errors_between, since_s
from bench.trend import Sample, longest_lived, look, trend, trends


def samples(rss_kib: Callable[[int], float], pid: int = 1, count: int = 300) -> list[Sample]:
    """Samples of a process every two seconds."""
    return [Sample(pid, 2.0 * n, int(rss_kib(n)), files=9, threads=3) for n in range(count)]


@pytest.mark.parametrize(
    ("rss_kib", "flat"),
    [
        (lambda _: 100_000, True),
        (lambda n: 100_000 + min(n, 20) * 500, True),
        (lambda n: 100_000 + 20_000 * (n % 7 == 0), True),
        (lambda n: 100_000 + 100 * n, False),
        (lambda n: 100_000 if n < 150 else 130_000, False),
    ],
)
def test_growth_is_told_from_warming_up_and_from_noise(rss_kib: Callable[[int], float], flat: bool) -> None:
    assert trend(samples(rss_kib), "rss_kib").is_flat == flat


def test_the_slope_of_a_growth_is_per_minute() -> None:
    assert trend(samples(lambda n: 1000 + 2 * n), "rss_kib").per_minute == pytest.approx(60.0)


def test_only_the_process_that_lived_longest_counts() -> None:
    both = [*samples(lambda _: 50_000, pid=1, count=20), *samples(lambda _: 90_000, pid=2, count=40)]
    lived = longest_lived(both)
    assert {sample.pid for sample in lived} == {2}
    assert all(one.is_flat for one in trends(lived))
    assert longest_lived([]) == []
    assert trends(lived[:5]) == []


def test_a_process_is_sampled() -> None:
    before = look(os.getpid(), 0.0)
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    reading, writing = os.pipe()
    after = look(os.getpid(), 1.0)
    stop.set()
    for thread in threads:
        thread.join()
    os.close(reading)
    os.close(writing)
    assert before is not None
    assert after is not None
    assert after.threads == before.threads + 5
    assert after.files == before.files + 2
    assert after.rss_kib > 1000
    assert look(2**22 + 1, 0.0) is None


def test_what_slurmctld_logged_at_a_moment_is_found() -> None:
    at_s = time.mktime((2026, 11, 1, 12, 0, 10, 0, 0, -1))
    lines = [
        "[2026-11-01T12:00:08.999] error: too early\n",
        "[2026-11-01T12:00:09.100] debug:  sched: fine\n",
        "[2026-11-01T12:00:09.101] error: slurm_receive_msg: hung up\n",
        "not a line of its own: error\n",
        "[2026-11-01T12:00:11.001] error: too late\n",
    ]
    assert errors_between(lines, at_s - 1, at_s + 1) == ["error: slurm_receive_msg: hung up"]
    assert len(errors_between([lines[2]] * 9, at_s - 1, at_s + 1)) == MOST_ERRORS


FAULTS = [(100.0, "swap_model"), (105.0, RECONFIGURE), (112.0, "reload_script")]


@pytest.mark.parametrize(
    ("sent_s", "ended_s", "blamed"),
    [
        (99.0, 99.1, BEFORE),
        (101.0, 101.1, "swap_model"),
        (104.99, 107.07, RECONFIGURE),  # sent just before
        (104.99, 108.1, "swap_model"),
        (104.99, 135.0, "swap_model"),  # a wait of thirty seconds is not a reconfigure's
        (106.0, 106.1, RECONFIGURE),
        (111.0, 111.1, "swap_model"),  # too long after the reconfigure
        (112.1, 112.2, "reload_script"),
    ],
)
def test_a_submission_without_an_answer_is_attributed_to_a_fault(
    sent_s: float, ended_s: float, blamed: str
) -> None:
    assert blame(FAULTS, sent_s, ended_s) == blamed


def test_the_time_since_a_fault_is_known() -> None:
    assert since_s(FAULTS, RECONFIGURE, 107.0) == 2.0
    assert since_s(FAULTS, "reload_script", 107.0) == float("inf")
