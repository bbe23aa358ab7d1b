"""How processes are killed, stopped, doubled and reloaded: the service, slurmctld, slurmdbd."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator

from slurm_plugin.sandbox import daemons
from tests.cluster.fault_site import FaultSite

PATIENCE_S = 120.0
# slurmctld saves its jobs every five seconds at most.
SAVED_S = 7.0
RELOADS = 5
KILLS = 4


@contextlib.contextmanager
def socket_removed(site: FaultSite) -> Iterator[None]:
    """Unlink the running service's socket."""
    site.start_service()
    site.socket.unlink()
    yield
    site.stop_service()


@contextlib.contextmanager
def switched_off(site: FaultSite) -> Iterator[None]:
    """Make the kill switch, and check that jobs are cut again once it is gone."""
    site.start_service()
    site.kill_switch.touch()
    yield
    site.kill_switch.unlink()
    site.assert_cut_again()


def toggle_switch(site: FaultSite) -> None:
    """Make and remove the kill switch."""
    for _ in range(20):
        site.kill_switch.touch()
        time.sleep(0.05)
        site.kill_switch.unlink()
        time.sleep(0.05)


def reconfigure_and_touch(site: FaultSite) -> None:
    """Make slurmctld read everything anew, again and again."""
    for number in range(RELOADS):
        os.utime(site.script)
        if number % 2:
            site.signal_daemon(daemons.SLURMCTLD, signal.SIGHUP)
        else:
            site.sandbox.command("scontrol", "reconfigure")
        time.sleep(1.1)


@contextlib.contextmanager
def second_service(site: FaultSite) -> Iterator[None]:
    """Start a second service next to the first: it refuses."""
    site.start_service()
    with site.program("serve") as second:
        assert second.wait(PATIENCE_S) != 0, "a second service takes the socket of a running one"
        yield


@contextlib.contextmanager
def second_beside_hung(site: FaultSite) -> Iterator[None]:
    """Start a second service next to one that hangs: it refuses, and the first answers again when it continues."""
    with site.stopped_service():
        with site.program("serve") as second:
            assert second.wait(PATIENCE_S) != 0, "a second service takes the socket of one that hangs"
        yield
    site.assert_cut_again()


@contextlib.contextmanager
def replaced_service(site: FaultSite) -> Iterator[None]:
    """Take the socket away from a service, start another one, and end the first: the second must go on answering."""
    site.start_service()
    site.socket.unlink()
    with site.program("serve"):
        site.wait_for(
            lambda: daemons.unix_complaint(site.socket) is None, "the second service does not answer"
        )
        site.signal_daemon(daemons.SERVE, signal.SIGTERM)
        site.wait_for(lambda: site.service_pid() is None, "the first service does not end")
        yield
    site.remove_socket_path()


def kill_starting_services(site: FaultSite) -> None:
    """Kill the service at random moments of its start."""
    draw = random.Random(8)
    for _ in range(KILLS):
        site.stop_service()
        with site.program("serve") as starting:
            time.sleep(draw.uniform(0.05, 2.0))
            starting.kill()
            starting.wait()
    site.start_service()


def kill_slurmctld(site: FaultSite) -> None:
    """Kill slurmctld and start it again."""
    site.signal_daemon(daemons.SLURMCTLD, signal.SIGKILL)
    site.wait_for(lambda: site.daemon_pid(daemons.SLURMCTLD) is None, "slurmctld survives SIGKILL")
    site.bring_up(daemons.slurmctld)


@contextlib.contextmanager
def slurmctld_killed(site: FaultSite) -> Iterator[None]:
    """Kill slurmctld after it has saved its jobs, and start it again: it knows them as they were."""
    site.start_service()
    kept = [site.submit() for _ in range(3)]
    time.sleep(SAVED_S)
    kill_slurmctld(site)
    for one in kept:
        assert one.job is not None, one.said
        assert site.tres(one.job) == one.tres, f"job {one.job} came back as {site.tres(one.job)}"
    yield


@contextlib.contextmanager
def slurmdbd_killed(site: FaultSite) -> Iterator[None]:
    """Kill slurmdbd under a running service."""
    site.start_service()
    site.signal_daemon(daemons.SLURMDBD, signal.SIGKILL)
    site.wait_for(lambda: site.daemon_pid(daemons.SLURMDBD) is None, "slurmdbd survives SIGKILL")
    yield
    site.bring_up(daemons.slurmdbd)


@contextlib.contextmanager
def started_beside_hung_slurmdbd(site: FaultSite) -> Iterator[None]:
    """Start the service while slurmdbd accepts connections and does not answer."""
    site.stop_service()
    site.signal_daemon(daemons.SLURMDBD, signal.SIGSTOP)
    try:
        site.start_service()
        yield
    finally:
        site.signal_daemon(daemons.SLURMDBD, signal.SIGCONT)
    site.stop_service()
