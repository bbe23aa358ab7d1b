"""Submits jobs to a real slurmctld far faster than sbatch can be started: sbatch's own bytes, freshly signed.

One sbatch process costs 10 ms of fork and exec, so that a handful of them load the machine and not slurmctld. Two
alternatives were rejected: calling libslurm's slurm_submit_batch_job by ctypes needs the layout of a structure of 200
members that changes with every release; slurmrestd adds a package, a daemon and a JSON parser that takes more time than
slurmctld itself. Instead, sbatch submits once through a small proxy that keeps what it sent. That message holds a MUNGE
credential, which slurmctld accepts only once, and whose payload is the digest of the message's body. So a replay is the
same message with a fresh credential for the same payload: slurmctld unpacks, checks, runs its plugins and saves just as
for sbatch. A replay costs its sender about 0.1 ms, and nothing here knows the layout of a job.

Only the standard library and libmunge are used, so that a submitter's process is small. Every replay of one message
submits the same job again: capture several to submit different ones.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MUNGE_OPT_SOCKET = 8
# munge_decode's code for a credential that is valid but was decoded before.
MUNGE_CRED_REPLAYED = 17
RESPONSE_SUBMIT_BATCH_JOB, RESPONSE_SLURM_RC = 4004, 8001
LOOPBACK = "127.0.0.1"
CONNECT_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Message:
    """A captured submission: the bytes before its credential and after it, and the credential's payload."""

    head: bytes
    payload: bytes
    tail: bytes


@dataclass(frozen=True)
class Load:
    """The work of one submitter: `count` submissions from `start_s` (unix time) on, sleeping `gap_s` between them."""

    port: int
    munge_socket: str
    messages: tuple[Message, ...]
    count: int
    gap_s: float
    start_s: float
    until_s: float | None = None


@dataclass(frozen=True)
class Measured:
    """The measurements of one submitter: the time from connecting to the reply for each accepted job, and its span."""

    latencies_s: tuple[float, ...]
    refused: int
    began_s: float
    ended_s: float


class Munge:
    """The parts of libmunge that are needed here."""

    def __init__(self, munge_socket: str) -> None:
        self._library = ctypes.CDLL("libmunge.so.2")
        self._library.munge_ctx_create.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.munge_ctx_create())
        path = ctypes.c_char_p(os.fsencode(munge_socket))
        if self._library.munge_ctx_set(self._context, MUNGE_OPT_SOCKET, path) != 0:
            raise OSError(f"libmunge does not take the socket {munge_socket}")
        self._free = ctypes.CDLL(None).free

    def encode(self, payload: bytes) -> bytes:
        """Return a fresh credential over `payload`."""
        credential = ctypes.c_void_p()
        error = self._library.munge_encode(ctypes.byref(credential), self._context, payload, len(payload))
        if error != 0:
            raise OSError(f"munge_encode fails with error {error}")
        try:
            return ctypes.string_at(credential)
        finally:
            self._free(credential)

    def decode(self, credential: bytes) -> bytes:
        """Return the payload of a credential, even of a used one."""
        payload, length = ctypes.c_void_p(), ctypes.c_int()
        user, group = ctypes.c_uint(), ctypes.c_uint()
        answer = (ctypes.byref(payload), ctypes.byref(length), ctypes.byref(user), ctypes.byref(group))
        error = self._library.munge_decode(credential, self._context, *answer)
        if error not in (0, MUNGE_CRED_REPLAYED):
            raise OSError(f"munge_decode fails with error {error}")
        try:
            return ctypes.string_at(payload, length.value)
        finally:
            self._free(payload)


def capture(
    commands: Sequence[Sequence[str]],
    environment: Mapping[str, str],
    port: int,
    munge_socket: str,
    folder: Path,
) -> tuple[Message, ...]:
    """Run sbatch commands through a proxy in front of the slurmctld at `port`; return the submissions sent, in order.

    `folder` gets a copy of slurm.conf. Raises CalledProcessError if an sbatch fails.
    """
    sent: list[bytes] = []
    with _proxy(port, sent) as own_port:
        conf = folder / "proxy.conf"
        original = Path(environment["SLURM_CONF"]).read_text(encoding="utf-8")
        conf.write_text(
            re.sub(r"^SlurmctldPort=.*$", f"SlurmctldPort={own_port}", original, flags=re.MULTILINE),
            encoding="utf-8",
        )
        through_proxy = {**environment, "SLURM_CONF": str(conf)}
        for command in commands:
            subprocess.run(command, env=through_proxy, check=True, capture_output=True, cwd="/")
    munge = Munge(munge_socket)
    return tuple(_message(packet, munge) for packet in sent)


@contextmanager
def _proxy(port: int, sent: list[bytes]) -> Iterator[int]:
    """Forward connections to `port`, recording what submissions sent; yield the port to connect to instead."""
    listener = socket.create_server((LOOPBACK, 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, socket.create_connection((LOOPBACK, port)) as server:
                question = _receive(client)
                server.sendall(question)
                answer = _receive(server)
                if _kind(answer) == RESPONSE_SUBMIT_BATCH_JOB:
                    sent.append(question)
                client.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _receive(connection: socket.socket) -> bytes:
    """Return one whole message, preceded by its length; a part of it if the peer hangs up."""
    received = b""
    while len(received) < 4 or len(received) < 4 + struct.unpack("!I", received[:4])[0]:
        chunk = connection.recv(65536)
        if not chunk:
            break
        received += chunk
    return received


def _kind(packet: bytes) -> int:
    """Return the type of a message: after its length come version and flags, of two bytes each."""
    return int(struct.unpack("!H", packet[8:10])[0]) if len(packet) >= 10 else 0


def _message(packet: bytes, munge: Munge) -> Message:
    """Split a packet at its credential, which is a string with a trailing NUL, preceded by its length."""
    begin = packet.index(b"MUNGE:")
    end = packet.index(b"\0", begin) + 1
    return Message(head=packet[4 : begin - 4], payload=munge.decode(packet[begin:end]), tail=packet[end:])


def signed(message: Message, munge: Munge) -> bytes:
    """Return a message with a fresh credential, preceded by its length."""
    credential = munge.encode(message.payload) + b"\0"
    body = message.head + struct.pack("!I", len(credential)) + credential + message.tail
    return struct.pack("!I", len(body)) + body


def exchange(packet: bytes, port: int) -> bytes:
    """Send slurmctld a message and return its answer; OSError if it accepts none."""
    with socket.create_connection((LOOPBACK, port), CONNECT_PATIENCE_S) as connection:
        connection.sendall(packet)
        return _receive(connection)


def accepted_job(answer: bytes) -> int | None:
    """Return the number of the job that an answer accepts; None if it accepts none."""
    return _first(answer) if _kind(answer) == RESPONSE_SUBMIT_BATCH_JOB else None


def refusal(answer: bytes) -> int | None:
    """Return Slurm's error in an answer that refuses (slurm_errno.h); None if it has none."""
    return _first(answer) if _kind(answer) == RESPONSE_SLURM_RC else None


def _first(answer: bytes) -> int:
    """Return the first number in an answer's body; the body's length is in the header."""
    length = int(struct.unpack("!I", answer[10:14])[0])
    return int(struct.unpack("!I", answer[-length:][:4])[0])


def submit(load: Load) -> Measured:
    """Do the work of one submitter."""
    munge = Munge(load.munge_socket)
    time.sleep(max(0.0, load.start_s - time.time()))
    latencies: list[float] = []
    refused = 0
    began_s = time.time()
    for number in range(load.count):
        if load.until_s is not None and time.time() >= load.until_s:
            break
        packet = signed(load.messages[number % len(load.messages)], munge)
        sent_s = time.perf_counter()
        if accepted_job(exchange(packet, load.port)) is None:
            refused += 1
        else:
            latencies.append(time.perf_counter() - sent_s)
        if load.gap_s:
            time.sleep(load.gap_s)
    return Measured(tuple(latencies), refused, began_s, time.time())
