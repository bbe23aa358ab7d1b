"""The service keeps answering whatever is sent to its socket."""

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec
import pytest

from accounting.errors import ServiceError
from slurm_plugin.service.connections import SLOW_S
from slurm_plugin.service.protocol import MAX_REQUEST_BYTES, decode_reply
from slurm_plugin.service.server import GIVE_WAY_S, bind_socket, until_stopped
from tests.conftest import PATIENCE_S, Site, TrainedModel
from tests.slurm_plugin.service.asking import KNOWN, ask, connect, install, line_of, reply


def test_the_service_answers_and_stops_cleanly(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.configure(mode="enforce", service={"socket_mode": "0606"})
    service = site.serve()
    assert reply(site).grant
    assert site.socket.stat().st_mode & 0o777 == 0o606
    assert reply(site).grant
    service.send_signal(signal.SIGTERM)
    _, log = service.communicate(timeout=PATIENCE_S)
    assert service.returncode == 0
    [journal] = Path(site.config.service.journal).glob("decisions-*.jsonl")
    assert len(journal.read_bytes().splitlines()) == 2, "what was answered last is there too"
    assert not site.socket.exists()
    assert b"Traceback" not in log


def test_a_service_that_ends_leaves_the_socket_of_its_replacement(site: Site) -> None:
    first = site.serve()
    site.socket.unlink()
    with bind_socket(site.socket, 0o600):
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=PATIENCE_S)
        connect(site.socket).close()


def test_work_next_to_the_event_loop_gives_way_to_answers() -> None:
    async def work() -> None:
        assert sys.getswitchinterval() == pytest.approx(GIVE_WAY_S)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    usual_s = sys.getswitchinterval()
    assert usual_s > GIVE_WAY_S
    try:
        asyncio.run(until_stopped(work()))
    finally:
        sys.setswitchinterval(usual_s)


def test_a_connection_is_kept_for_line_after_line(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.serve()
    with connect(site.socket) as client, client.makefile("rb") as replies:
        for number in range(3):
            line = line_of(KNOWN, str(number))
            client.sendall(line[:20])
            client.sendall(line[20:])
            assert decode_reply(replies.readline()).id == str(number)


def test_a_client_that_sends_a_line_too_slowly_is_hung_up_on(site: Site) -> None:
    site.serve()
    with connect(site.socket) as client:
        began = time.monotonic()
        client.sendall(b"{")
        assert client.recv(1) == b""
        assert time.monotonic() - began >= SLOW_S


def test_a_client_that_sends_a_line_byte_by_byte_is_hung_up_on_too(site: Site) -> None:
    site.serve()
    with connect(site.socket) as client:

        def trickle() -> None:
            for _ in range(40):
                client.sendall(b"{")
                time.sleep(SLOW_S / 10)

        with pytest.raises(ConnectionError):
            trickle()


def test_the_service_survives_everything_that_is_not_a_request(
    site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    service = site.serve()
    good = line_of(KNOWN)
    for bad in (b"\n", b"rubbish\n", b"\x00\xff" * 1000 + b"\n", b"[" * 30000 + b"\n", b"{}\n" * 500):
        assert ask(site.socket, bad) == b""
    took_s = []
    for _ in range(5):
        began = time.monotonic()
        assert ask(site.socket, b"x" * (MAX_REQUEST_BYTES + 1)) == b""
        took_s.append(time.monotonic() - began)
    assert min(took_s) < SLOW_S / 2, "it waited for more of what is too long already"
    assert ask(site.socket, b"x" * (20 * MAX_REQUEST_BYTES)) == b""
    assert ask(site.socket, good[:-1] + b" " * MAX_REQUEST_BYTES + b"\n") == b""
    huge = msgspec.structs.replace(KNOWN, cpus_per_task=10**30, mem_per_node_mib=-1, num_tasks=-(10**30))
    ask(site.socket, line_of(huge))
    closed = connect(site.socket)
    closed.sendall(good * 20)
    closed.close()
    half = connect(site.socket)
    half.sendall(good[: len(good) // 2])
    assert reply(site).id == "7"
    half.sendall(good[len(good) // 2 :] + good)
    lines = half.makefile("rb")
    assert [decode_reply(lines.readline()).id for _ in range(2)] == ["7", "7"]
    half.close()
    assert service.poll() is None


def test_a_silent_client_is_dropped(site: Site) -> None:
    site.serve()
    with connect(site.socket) as silent:
        began = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(1) == b""
        assert time.monotonic() - began < PATIENCE_S


def test_many_clients_at_once_each_get_their_own_answer(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.serve()

    def identity(number: int) -> str:
        return decode_reply(ask(site.socket, line_of(KNOWN, f"client-{number}"))).id

    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        assert list(pool.map(identity, range(300))) == [f"client-{number}" for number in range(300)]


def test_a_socket_in_use_is_reported_in_one_line_and_the_running_service_stays(site: Site) -> None:
    site.serve()
    second = site.start("serve")
    _, log = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 1
    # A line before it may say which of Slurm's limits could not be read.
    assert "a running service uses the socket" in log.decode().splitlines()[-1]
    assert "Traceback" not in log.decode()
    assert reply(site).id == "7"


def test_the_socket_of_a_stuck_service_counts_as_in_use_too(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stuck:
        stuck.bind(str(path))
        stuck.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waiting:
            waiting.setblocking(False)
            waiting.connect_ex(str(path))
            with pytest.raises(ServiceError, match="a running service uses the socket"):
                bind_socket(path, 0o600)
    assert path.is_socket()


def test_the_socket_of_a_killed_service_is_replaced(site: Site) -> None:
    first = site.serve()
    first.kill()
    first.wait()
    assert site.socket.exists()
    site.serve()
    assert reply(site).id == "7"


def test_a_file_at_the_path_of_the_socket_is_left_alone(site: Site) -> None:
    site.socket.write_text("precious")
    service = site.start("serve")
    _, log = service.communicate(timeout=PATIENCE_S)
    assert service.returncode == 1
    assert b"exists and is not a socket" in log
    assert b"Traceback" not in log
    assert site.socket.read_text() == "precious"


@pytest.mark.parametrize("name", ["x" * 120, "file/socket"])
def test_a_path_where_no_socket_can_be_is_reported_in_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServiceError, match=r"set service\.socket"):
        bind_socket(tmp_path / name, 0o600)
