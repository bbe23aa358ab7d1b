"""A service that is absent, refuses, stalls or sends rubbish: the job passes unchanged, within the deadline."""

import contextlib
import os
import socket
import time
from pathlib import Path

import pytest

from tests.conftest import skip_unless_read_by
from tests.lua.conftest import (
    ORDINARY,
    Answer,
    Service,
    Slurmctld,
    install,
    reply_with,
    unchanged,
)

NOBODY = 65534
DEADLINE_MS = 60
LIMIT_MS = 1000
# What a slow machine may take for all of it.
MOST_MS = 10 * LIMIT_MS


def fall_silent(connection: socket.socket, _line: bytes) -> None:
    connection.recv(1)


def drip(connection: socket.socket, _line: bytes) -> None:
    for byte in b'{"v":1,"id":"' + b"0" * 500:
        connection.sendall(bytes([byte]))
        time.sleep(0.01)


def half_then_silent(connection: socket.socket, line: bytes) -> None:
    connection.sendall(b'{"v":1,"id":"')
    fall_silent(connection, line)


def half_then_close(connection: socket.socket, _line: bytes) -> None:
    connection.sendall(b'{"v":1,"id":"')


def close(_connection: socket.socket, _line: bytes) -> None:
    return


def ten_megabytes(connection: socket.socket, _line: bytes) -> None:
    connection.sendall(b"x" * 10_000_000)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (fall_silent, "deadline"),
        (drip, "deadline"),
        (half_then_silent, "deadline"),
        (half_then_close, "closed"),
        (close, "closed"),
        (ten_megabytes, "reply_too_long"),
        (reply_with("not json {id}"), "bad_json"),
        (reply_with('{"v":1,"id":"0000000000000000"}'), "wrong_id"),
        (reply_with('{"v":2,"id":"{id}"}'), "wrong_version"),
        (reply_with('{"v":1,"id":"{id}","grant":{"cpus_per_task":NaN}}'), "bad_json"),
        (reply_with('{"v":1,"id":"{id}","grant":{"cpus_per_task":-1}}'), "below_one"),
        (reply_with('{"v":1,"id":"{id}","grant":{"cpus_per_task":1e308}}'), "above_request"),
    ],
    ids=[
        "silent", "drip", "half_silent", "half_closed", "closed", "10MB", "bad_json", "wrong_id",
        "wrong_version", "nan", "negative", "huge",
    ],
)  # fmt: skip
def test_a_failing_service_changes_nothing(lua: str, folder: Path, answer: Answer, reason: str) -> None:
    # Only a stalling service is tested with a short deadline: on a busy machine any other may take longer to fail.
    script = install(folder, deadline_ms=DEADLINE_MS if reason == "deadline" else LIMIT_MS)
    with Service(folder / "s", answer), Slurmctld(lua, script) as ctld:
        result = ctld.submit(ORDINARY)
    assert unchanged(result, reason)
    assert result["took_ms"] < MOST_MS
    assert reason != "deadline" or result["took_ms"] > DEADLINE_MS * 0.8


# --- the breaker ----------------------------------------------------------------------------------------

OPENED = "rightsizer: the service fails: jobs pass as they were submitted, it is tried again every 30 s"


GOOD = reply_with('{"v":1,"id":"{id}","grant":{"cpus_per_task":1}}')
STALE = '{"v":1,"id":"0000000000000000"}'


def in_turn(*answers: Answer) -> Answer:
    """Answer the first request with the first answer, the second with the second, and so on."""
    left = iter(answers)

    def answer(connection: socket.socket, line: bytes) -> None:
        next(left)(connection, line)

    return answer


def hang_up(connection: socket.socket, _line: bytes) -> None:
    connection.close()


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (fall_silent, "deadline"),
        (half_then_silent, "deadline"),
        (reply_with(STALE), "wrong_id"),
        (reply_with("rubbish"), "bad_json"),
    ],
    ids=["silent", "half_silent", "wrong_id", "rubbish"],
)
def test_a_kept_connection_that_fails_is_not_used_again(
    lua: str, folder: Path, second: Answer, reason: str
) -> None:
    with (
        Service(folder / "s", in_turn(GOOD, second, GOOD), keeps=True) as service,
        Slurmctld(lua, install(folder, deadline_ms=DEADLINE_MS * 5)) as ctld,
    ):
        first, failed, third = (ctld.submit(ORDINARY) for _ in range(3))
    assert first["writes"]["cpus_per_task"] == third["writes"]["cpus_per_task"] == 1
    assert unchanged(failed, reason)
    assert (len(service.requests), service.connections) == (3, 2)


def test_one_connection_serves_many_jobs(lua: str, folder: Path) -> None:
    with Service(folder / "s", GOOD, keeps=True) as service, Slurmctld(lua, install(folder)) as ctld:
        assert all(ctld.submit(ORDINARY)["writes"]["cpus_per_task"] == 1 for _ in range(5))
    assert (len(service.requests), service.connections) == (5, 1)


@pytest.mark.parametrize("left", ["\n", "x", f"\n{STALE}"], ids=["line", "byte", "reply"])
def test_what_follows_a_reply_is_not_taken_for_a_later_answer(lua: str, folder: Path, left: str) -> None:
    answer = reply_with('{"v":1,"id":"{id}","grant":{"cpus_per_task":1}}\n' + left, newline=False)
    with Service(folder / "s", answer, keeps=True) as service, Slurmctld(lua, install(folder)) as ctld:
        assert all(ctld.submit(ORDINARY)["writes"]["cpus_per_task"] == 1 for _ in range(3))
    assert service.connections == 3


def test_a_service_that_hung_up_in_between_is_asked_again(lua: str, folder: Path) -> None:
    # The second line meets a connection that is closed without an answer.
    with (
        Service(folder / "s", in_turn(GOOD, hang_up, GOOD), keeps=True) as service,
        Slurmctld(lua, install(folder)) as ctld,
    ):
        assert all(ctld.submit(ORDINARY)["writes"]["cpus_per_task"] == 1 for _ in range(2))
    assert service.connections == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(fall_silent, "deadline"), (close, "closed"), (reply_with('{"v":2,"id":"{id}"}'), "wrong_version")],
    ids=["silent", "closed", "wrong_version"],
)
def test_the_third_failure_opens_the_breaker(lua: str, folder: Path, answer: Answer, reason: str) -> None:
    # Long enough that the deadline passes while waiting, not before the request is sent.
    script = install(folder, deadline_ms=DEADLINE_MS * 5 if reason == "deadline" else LIMIT_MS)
    with Service(folder / "s", answer) as service, Slurmctld(lua, script) as ctld:
        results = [ctld.submit(ORDINARY) for _ in range(20)]
    line = f"rightsizer: job left as it was submitted: {reason}"
    assert [result["lines"] for result in results] == [[line], [line], [OPENED, line], *[[]] * 17]
    assert all((result["rc"], result["writes"]) == (0, {}) for result in results)
    assert len(service.requests) == 3
    assert sum(result["took_ms"] for result in results) < MOST_MS


def test_a_job_that_cannot_be_rewritten_does_not_open_the_breaker(lua: str, folder: Path) -> None:
    script = install(folder)
    grant = reply_with('{"v":1,"id":"{id}","grant":{"cpus_per_task":1}}')
    with Service(folder / "s", grant) as service, Slurmctld(lua, script) as ctld:
        for _ in range(5):
            assert unchanged(ctld.submit(ORDINARY | {"min_cpus": 1}), "coupled_field")
    assert len(service.requests) == 5


# --- no service -----------------------------------------------------------------------------------------


def test_a_missing_socket_leaves_the_job_alone(lua: str, folder: Path) -> None:
    with Slurmctld(lua, install(folder)) as ctld:
        assert unchanged(ctld.submit(ORDINARY), "connect_failed")


def test_a_socket_without_a_listener_leaves_the_job_alone(lua: str, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(folder / "s"))
    with Slurmctld(lua, install(folder)) as ctld:
        assert unchanged(ctld.submit(ORDINARY), "connect_failed")


def test_a_path_too_long_for_a_socket_leaves_the_job_alone(lua: str, folder: Path) -> None:
    script = install(folder, f'return {{ socket = "/{"x" * 200}" }}')
    with Slurmctld(lua, script) as ctld:
        assert unchanged(ctld.submit(ORDINARY), "connect_failed")


def test_a_socket_without_permission_leaves_the_job_alone(lua: str, folder: Path) -> None:
    script = install(folder)
    user = NOBODY if os.geteuid() == 0 else None
    with Service(folder / "s", close) as service:
        service.path.chmod(0)
        if user is not None:
            skip_unless_read_by(user)
        with Slurmctld(lua, script, user=user) as ctld:
            assert unchanged(ctld.submit(ORDINARY), "connect_failed")
        assert service.requests == []


@pytest.mark.parametrize("backlog", [8, 0], ids=["never_accepts", "full_backlog"])
def test_a_service_that_never_accepts_leaves_the_job_alone(lua: str, folder: Path, backlog: int) -> None:
    script = install(folder, deadline_ms=DEADLINE_MS)
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as waiting:
        listener.bind(str(folder / "s"))
        listener.listen(backlog)
        for _ in range(0 if backlog else 3):
            queued = waiting.enter_context(socket.socket(socket.AF_UNIX))
            queued.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                queued.connect(str(folder / "s"))
        with Slurmctld(lua, script) as ctld:
            result = ctld.submit(ORDINARY)
    assert unchanged(result, "deadline" if backlog else None)
    assert result["took_ms"] < MOST_MS


def test_jobs_are_cut_again_once_the_service_comes_back(lua: str, folder: Path) -> None:
    grant = reply_with('{"v":1,"id":"{id}","grant":{"mem_per_node_mib":512}}')
    with Slurmctld(lua, install(folder)) as ctld:
        assert unchanged(ctld.submit(ORDINARY), "connect_failed")
        with Service(folder / "s", grant):
            assert ctld.submit(ORDINARY)["writes"] == {"min_mem_per_node": 512}
