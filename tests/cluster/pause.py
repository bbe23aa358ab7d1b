"""The breaker's real pause on a real slurmctld: the calls of the service are counted at its own socket."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.cluster.fault_site import ASKED, FaultSite, Submitted
from tests.lua.conftest import Service, reply_with
from tests.lua.test_failing_service import fall_silent

PAUSE_S = 30.0
# Submissions stop this long before the pause ends, and begin again this long after its end.
MARGIN_S = 2.0
# A submission that took longer on a busy machine may have come after the end of the pause: then all starts again.
TRIES = 5
# As long as possible: this counts how often the service is asked, not how soon a busy machine answers.
UNHURRIED_MS = 1000
# How long to wait until a connection is counted.
COUNTED_S = 30.0
EVERY_S = 4.0
FAILURES = 3
GRANT = reply_with('{"v":1,"id":"{id}","grant":{"cpus_per_task":2,"mem_per_node_mib":512}}')
GRANTED = "cpu=2,mem=512M"


@dataclass(frozen=True)
class PauseSeen:
    """Connections to the service in each phase, and the jobs of all phases.

    The phases: failures that open the breaker, a pause, a failing probe among other submissions, a second pause, and a
    probe that is answered.
    """

    opening: int
    first_pause: int
    failed_probe: int
    second_pause: int
    answered_probe: int
    after: int
    while_failing: tuple[Submitted, ...]
    once_well: tuple[Submitted, ...]
    late: bool

    def complaint(self) -> str:
        """Say what is wrong; empty if nothing is."""
        if self.opening != FAILURES:
            return f"{self.opening} connections before it opened, not {FAILURES}"
        if self.first_pause or self.second_pause:
            return f"asked {self.first_pause} and {self.second_pause} times in pauses of {PAUSE_S:.0f} s"
        if (self.failed_probe, self.answered_probe) != (1, 1):
            return f"{self.failed_probe} failed and {self.answered_probe} answered probes, not one of each"
        if any(one.tres != ASKED for one in self.while_failing):
            return "a job was not accepted unchanged"
        if self.after != len(self.once_well) - 1 or any(one.tres != GRANTED for one in self.once_well):
            return "the breaker does not close again"
        return ""

    def row(self) -> dict[str, object]:
        """Return what was seen, as the table shows it."""
        return {
            "connections until it opened": self.opening,
            "in the first 30 s": self.first_pause,
            "then, failing": self.failed_probe,
            "in the next 30 s": self.second_pause,
            "then, answered": self.answered_probe,
            "jobs left as they were": len(self.while_failing),
            "cut again": sum(one.tres == GRANTED for one in self.once_well),
            "verdict": self.complaint() or "right",
        }


def watch_pause(site: FaultSite) -> PauseSeen:
    """Fall silent until the breaker opens; count calls in its pause, at the probe, in the next pause, and after."""
    for _ in range(TRIES):
        seen = watch_once(site)
        if not seen.late:
            break
    return seen


def watch_once(site: FaultSite) -> PauseSeen:
    """Watch it once; `late` if a submission of a pause may have come after the pause's end."""
    site.stop_service()
    site.mend(UNHURRIED_MS)
    site.reload()
    with Service(site.socket, fall_silent) as service:
        site.let_slurmctld_in()
        counted = Counter(service)
        # Each pause begins between these two times.
        failing, before_s = [site.submit() for _ in range(FAILURES - 1)], time.monotonic()
        failing.append(site.submit())
        opened_s, opening = time.monotonic(), counted.fresh(FAILURES)
        failing += submit_until(site, before_s + PAUSE_S - MARGIN_S)
        late = time.monotonic() > before_s + PAUSE_S
        first_pause = counted.fresh()
        wait_until(opened_s + PAUSE_S + MARGIN_S)
        before_s = time.monotonic()
        failing += [site.submit() for _ in range(FAILURES)]
        probed_s, failed_probe = time.monotonic(), counted.fresh(1)
        failing += submit_until(site, before_s + PAUSE_S - MARGIN_S)
        late |= time.monotonic() > before_s + PAUSE_S
        second_pause = counted.fresh()
        service.answer = GRANT
        wait_until(probed_s + PAUSE_S + MARGIN_S)
        well = [site.submit()]
        answered_probe = counted.fresh(1)
        well += [site.submit() for _ in range(FAILURES)]
        after = counted.fresh(FAILURES)
    site.remove_socket_path()
    site.cancel_all()
    return PauseSeen(
        opening,
        first_pause,
        failed_probe,
        second_pause,
        answered_probe,
        after,
        tuple(failing),
        tuple(well),
        late,
    )


class Counter:
    """Counts how many connections have reached a service since the last look."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._seen = 0

    def fresh(self, expected: int = 0) -> int:
        """Return the number of new ones, once there are as many as expected: a busy machine accepts them late."""
        until_s = time.monotonic() + COUNTED_S
        while self._service.connections < self._seen + expected and time.monotonic() < until_s:
            time.sleep(0.05)
        seen, self._seen = self._seen, self._service.connections
        return self._seen - seen


def submit_until(site: FaultSite, end_s: float) -> list[Submitted]:
    """Submit now and again until a time of the monotonic clock."""
    submitted: list[Submitted] = []
    while time.monotonic() < end_s:
        submitted.append(site.submit())
        wait_until(min(end_s, time.monotonic() + EVERY_S))
    return submitted


def wait_until(end_s: float) -> None:
    """Sleep until a time of the monotonic clock."""
    time.sleep(max(0.0, end_s - time.monotonic()))
