"""The advisor's loop: one cycle after another until it is stopped, whatever happens in one.

After a failure nothing more is changed, one line says why, what outlived its lease is undone, and the next cycle
starts afresh.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from accounting.errors import RightsizerError
from slurm_plugin.advisor.cycle import Advisor, Outcome
from slurm_plugin.freed_memory import give_back_memory
from slurm_plugin.log_lines import SaidOnce
from slurm_plugin.slurm.queue import Written

log = logging.getLogger(__name__)

# If slurmctld is so slow that a cycle takes longer than a period, it is left in peace for this share of the cycle.
PAUSE_SHARE = 0.25
LEFT_ALONE = "this cycle failed, the queue is left as it is and the next one tries again"


def watch(advisor: Advisor, stop: threading.Event, told: Callable[[Outcome], None]) -> list[Written]:
    """Run cycles until `stop` is set, then undo what was changed, and return the result of that.

    `told` is called after each cycle that succeeds. Pauses are counted by a monotonic clock.
    """
    period_s = advisor.means.settings.period_s
    failures = SaidOnce()
    while not stop.is_set():
        began_s = time.monotonic()
        try:
            told(advisor.cycle())
            failures.over()
        except Exception as error:  # the loop must go on, whatever happens in a cycle
            if failures.is_new(repr(error)):
                log.error("%s: %s", LEFT_ALONE, error, exc_info=not isinstance(error, RightsizerError))  # noqa: TRY400
            stand_back(advisor)
        give_back_memory()
        took_s = time.monotonic() - began_s
        stop.wait(max(period_s - took_s, PAUSE_SHARE * took_s))
    return advisor.means.gateway.undo() if advisor.means.apply else []


def stand_back(advisor: Advisor) -> None:
    """Undo what outlived its lease, as far as slurmctld answers."""
    if advisor.means.apply:
        try:
            advisor.means.gateway.undo(only_expired=True)
        except RightsizerError as error:
            log.warning("what is older than its lease could not be undone yet: %s", error)
