"""Rehearsals: when they happen, with which line, and what happens if one fails."""

import asyncio

import pytest

from slurm_plugin.service.answers import Send
from slurm_plugin.service.rehearsals import EXPECTED_S, LEAST_PAUSE_S, PAUSE_SHARE, Rehearsals, pause_s

# After a few of them more than a socket holds: the replies have to be read.
REPLY = b"x" * 16383 + b"\n"
ENOUGH = 40


async def until_logged(caplog: pytest.LogCaptureFixture, words: str) -> None:
    """Wait for a line of the log; the patience of the test limits the wait."""
    while words not in caplog.text:
        await asyncio.sleep(LEAST_PAUSE_S)


def test_rehearsals_get_rarer_and_end() -> None:
    assert pause_s(0.0) == pause_s(0.01) == LEAST_PAUSE_S
    assert pause_s(EXPECTED_S / 2) == pytest.approx(EXPECTED_S / 2 * PAUSE_SHARE)
    assert pause_s(EXPECTED_S + 1) is None


def test_the_latest_line_is_answered_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[bytes] = []
    enough = asyncio.Event()

    def handle(line: bytes, send: Send) -> bool:
        heard.append(line)
        send(REPLY)
        if len(heard) >= ENOUGH:
            enough.set()
        return True

    async def rehearse() -> None:
        rehearsals = Rehearsals(handle)
        await rehearsals.connect()
        rehearsals.begin(b"first")
        rehearsals.begin(b"second")
        await asyncio.wait_for(enough.wait(), 30)
        rehearsals.close()
        assert set(heard) == {b"second"}
        heard.clear()
        rehearsals.begin(b"late")
        await asyncio.sleep(LEAST_PAUSE_S * 10)

    asyncio.run(rehearse())
    assert not heard, "it was closed"
    assert not caplog.records


def test_a_failing_rehearsal_ends_only_those_of_its_line(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[bytes] = []

    def handle(line: bytes, send: Send) -> bool:
        heard.append(line)
        if line == b"first":
            raise ValueError(line)
        send(REPLY)
        return True

    async def rehearse() -> None:
        rehearsals = Rehearsals(handle)
        await rehearsals.connect()
        rehearsals.begin(b"first")
        await until_logged(caplog, "a rehearsal failed")
        await asyncio.sleep(LEAST_PAUSE_S * 10)
        assert heard == [b"first"]
        rehearsals.begin(b"second")
        while heard.count(b"second") < ENOUGH:
            await asyncio.sleep(LEAST_PAUSE_S)
        rehearsals.close()

    asyncio.run(asyncio.wait_for(rehearse(), 30))
    assert caplog.text.count("a rehearsal failed") == 1


def test_rehearsals_end_with_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[bytes] = []

    def handle(line: bytes, _send: Send) -> bool:
        heard.append(line)
        return False

    async def rehearse() -> None:
        rehearsals = Rehearsals(handle)
        await rehearsals.connect()
        rehearsals.begin(b"first")
        await until_logged(caplog, "no more rehearsals")
        rehearsals.begin(b"second")
        await asyncio.sleep(LEAST_PAUSE_S * 10)
        rehearsals.close()

    asyncio.run(asyncio.wait_for(rehearse(), 30))
    assert heard == [b"first"]
    assert caplog.text.count("no more rehearsals") == 1
