"""The wire, version 1: one JSON line from the hook, one back.

Both sides are tested with the frames in tests/contract/wire_v1.json.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from accounting.damage import UNREADABLE
from accounting.request import Grant
from slurm_plugin.policy.submission import ClientSubmission, Submission

VERSION = 1
MAX_REQUEST_BYTES = 64 * 1024


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request from the hook; `id` comes back in the reply."""

    v: int
    id: str
    kind: str
    job: Submission


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request from a direct srun or salloc, before it submits."""

    v: int
    id: str
    kind: str
    job: ClientSubmission


AnyRequest = TypeVar("AnyRequest", Request, ClientRequest)


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer: what to change, the token to leave, the line to show. What is absent is not done."""

    v: int = msgspec.field()
    id: str = msgspec.field()
    grant: Grant = Grant()
    token: str = ""
    message: str = ""


_REQUESTS = msgspec.json.Decoder(Request)
_CLIENT_REQUESTS = msgspec.json.Decoder(ClientRequest)
_ENCODER = msgspec.json.Encoder()


def decode_request(line: bytes) -> Request | str:
    """Return the hook's request in a line, or a message that says why it is none."""
    return _decode(line, _REQUESTS, "submit")


def decode_client_request(line: bytes) -> ClientRequest | str:
    """Return a client's request in a line, or a message that says why it is none."""
    return _decode(line, _CLIENT_REQUESTS, "cli")


def _decode(line: bytes, decoder: msgspec.json.Decoder[AnyRequest], kind: str) -> AnyRequest | str:
    if len(line) > MAX_REQUEST_BYTES:
        return f"longer than {MAX_REQUEST_BYTES} bytes"
    try:
        request = decoder.decode(line)
    except UnicodeDecodeError:
        return _decode(in_utf8(line), decoder, kind)
    except UNREADABLE as error:
        return str(error)
    if request.v != VERSION:
        return f"version {request.v}, this service speaks {VERSION}"
    return request if request.kind == kind else f"unknown kind {request.kind!r}"


def in_utf8(line: bytes) -> bytes:
    """Return a line with a question mark for each byte that is not UTF-8; names and scripts may hold any bytes."""
    return line.decode(errors="surrogateescape").encode(errors="replace")


def encode_request(request: Request | ClientRequest) -> bytes:
    """Return the line of a request."""
    return msgspec.json.encode(request) + b"\n"


def encode_reply(reply: Reply) -> bytes:
    """Return the line of a reply."""
    return _ENCODER.encode(reply) + b"\n"


def decode_reply(line: bytes) -> Reply:
    """Return the reply in a line; raises msgspec.DecodeError if it is none."""
    return msgspec.json.decode(line, type=Reply)
