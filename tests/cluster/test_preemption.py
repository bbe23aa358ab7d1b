"""A job that may preempt another, on a real Slurm: it starts when foreseen, once the running job yields."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.advisor.preemption import MAY_BE_PREEMPTED, preemption_in_words
from slurm_plugin.sandbox.shape import Shape
from tests.cluster.conftest import PATIENCE_S, Shell, unhooked_site
from tests.cluster.foreseen import foreseen

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

EXEMPT_S, LIMIT_S = 12, 1200
LINES = ("PreemptType=preempt/qos", "PreemptMode=REQUEUE", f"PreemptExemptTime=00:00:{EXEMPT_S}")
WHOLE = ("-c16", "--mem=100", f"--time={LIMIT_S // 60}")


def test_a_job_that_may_preempt_starts_when_foreseen(make_folder: Callable[[], Path]) -> None:
    with unhooked_site(make_folder() / "site", Shape(lines=LINES)) as sandbox:
        shell = Shell(sandbox)
        shell.run("sacctmgr", "--immediate", "add", "qos", "scavenger")
        shell.run("sacctmgr", "--immediate", "add", "qos", "urgent", "preempt=scavenger")
        low = shell.submit("--qos=scavenger", *WHOLE, script=f"sleep {LIMIT_S}")
        shell.wait_state(low, "RUNNING")
        high = shell.submit("--qos=urgent", *WHOLE, script=f"sleep {LIMIT_S}")
        now, starts_s = foreseen()
        running, waiting = sorted(now.jobs, key=lambda job: job.job_id)
        assert (running.job_id, waiting.job_id) == (low, high)
        assert preemption_in_words(running, now) == MAY_BE_PREEMPTED
        assert preemption_in_words(waiting, now).startswith("it may preempt 1 of the running jobs")
        assert starts_s[high] <= EXEMPT_S
        shell.wait_state(high, "RUNNING")
        started_s = float(_told(shell, high))
        # Slurm looks every two seconds. A machine may be slow, but no test takes as long as the limit.
        assert -2 <= started_s - (now.time_s + starts_s[high]) <= PATIENCE_S
        assert _told(shell, low, "%T") == "PENDING"
        shell.run("scancel", str(low), str(high))


def _told(shell: Shell, job: int, what: str = "%S") -> str:
    said = ("squeue", "--noheader", f"--format={what}", f"--jobs={job}")
    return shell.run("env", "SLURM_TIME_FORMAT=%s", *said).strip()
