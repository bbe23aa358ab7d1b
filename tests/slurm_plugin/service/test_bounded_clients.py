"""Who may ask on the hook's socket, how many at a time, and how much of each client is kept in memory."""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import signal
import socket
from pathlib import Path

import pytest

from slurm_plugin.service.connections import MOST_CONNECTIONS
from slurm_plugin.service.peers import Peers
from slurm_plugin.service.protocol import decode_reply
from tests.conftest import PATIENCE_S, Site, TrainedModel
from tests.slurm_plugin.service.asking import KNOWN, connect, install, line_of, reply
from tests.slurm_plugin.service.test_clients import ask_as


def ends(client: socket.socket) -> bool:
    """Whether the service has hung up."""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        return client.recv(1) == b""
    return True


@pytest.fixture
def open_site(site: Site, trained_model: TrainedModel) -> Site:
    """Return a site whose socket everybody can open, as after a chmod by hand."""
    install(site, trained_model)
    site.folder.chmod(0o755)
    site.configure(service={"socket_mode": "0666"})
    return site


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
def test_a_user_that_the_kernel_names_but_the_site_does_not_is_hung_up_on(open_site: Site) -> None:
    service = open_site.serve()
    for _ in range(3):
        assert ask_as(open_site.socket, "nobody", line_of(KNOWN)).stdout == b""
    assert reply(open_site).token, "root may ask"
    service.send_signal(signal.SIGTERM)
    _, log = service.communicate(timeout=PATIENCE_S)
    refused = f"uid {pwd.getpwnam('nobody').pw_uid} may not ask".encode()
    assert log.count(refused) == 1, "said once, not at each connection"
    # An admin who follows the hint in the log must not let in everybody whom a user namespace hides.
    assert b"PrivateUsers=no" in log


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("uid", [pwd.getpwnam("nobody").pw_uid, 3_000_000_000])
def test_a_user_that_the_site_names_may_ask(uid: int, open_site: Site) -> None:
    open_site.configure(service={"users": [str(uid)]})
    open_site.serve()
    assert decode_reply(ask_as(open_site.socket, uid, line_of(KNOWN)).stdout).token


def test_a_user_unknown_to_the_machine_is_reported_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    near, far = socket.socketpair(socket.AF_UNIX)
    with near, far:
        assert Peers(["no-such-user"]).admits(near), "this process is the service's own user"
    assert "service.users names no-such-user" in caplog.text


def test_the_quietest_of_too_many_connections_is_closed(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.serve()
    with contextlib.ExitStack() as opened:
        held = []
        for number in range(MOST_CONNECTIONS):
            client = opened.enter_context(connect(site.socket))
            held.append(client)
            client.sendall(line_of(KNOWN, str(number)))
            assert decode_reply(client.makefile("rb").readline()).id == str(number)
        # The first one sends again, so that the second is the quietest.
        held[0].sendall(line_of(KNOWN, "again"))
        assert decode_reply(held[0].makefile("rb").readline()).id == "again"
        with connect(site.socket) as late:
            late.sendall(line_of(KNOWN, "late"))
            assert decode_reply(late.makefile("rb").readline()).id == "late"
            assert ends(held[1])
            held[0].sendall(line_of(KNOWN, "still"))
            assert decode_reply(held[0].makefile("rb").readline()).id == "still"


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def test_a_client_that_takes_no_answers_fills_no_memory_and_delays_nobody(
    site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    pid = site.serve().pid
    assert reply(site).token
    before_mib = resident_mib(pid)
    sent = 0
    with connect(site.socket) as greedy:
        greedy.settimeout(1.0)
        lines = line_of(KNOWN) * 500
        with contextlib.suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
            while sent < 256 * 2**20:
                sent += greedy.send(lines)
        # Without a bound everything would be read, and the answers kept.
        assert sent < 16 * 2**20
        assert reply(site).id == "7"
    assert resident_mib(pid) - before_mib < 32


def test_a_client_that_asked_before_a_stop_is_answered(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    service = site.serve()
    assert reply(site).token
    service.send_signal(signal.SIGSTOP)
    kept = [connect(site.socket) for _ in range(8)]
    for number, client in enumerate(kept):
        client.sendall(line_of(KNOWN, str(number)))
    service.send_signal(signal.SIGTERM)
    service.send_signal(signal.SIGCONT)
    for number, client in enumerate(kept):
        with client, client.makefile("rb") as replies:
            assert decode_reply(replies.readline()).id == str(number)
            assert replies.readline() == b""
    assert service.wait(PATIENCE_S) == 0
    assert not site.socket.exists()
