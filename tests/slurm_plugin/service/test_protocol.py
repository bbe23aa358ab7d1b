"""Version 1 of the wire format, tested with the golden frames that the Lua side is tested with too."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.request import Grant
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service.protocol import (
    MAX_REQUEST_BYTES,
    VERSION,
    Reply,
    Request,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    in_utf8,
)
from tests.builders import submission

FRAMES_FILE = Path(__file__).resolve().parents[2] / "contract" / "wire_v1.json"
if not FRAMES_FILE.exists():
    pytest.skip("the golden frames are not there", allow_module_level=True)
FRAMES: dict[str, Any] = json.loads(FRAMES_FILE.read_text(encoding="utf-8"))


# Lua 5.1 has only one kind of number: its check looks at the value, ours at the type.
FOR_LUA_ALONE = {"integers_written_as_floats"}


def named(kind: str) -> list[Any]:
    return [pytest.param(frame, id=frame["name"]) for frame in FRAMES[kind]]


def accepted_replies() -> list[Any]:
    kept = [frame for frame in FRAMES["replies"] if frame["accept"] and frame["name"] not in FOR_LUA_ALONE]
    return [pytest.param(frame, id=frame["name"]) for frame in kept]


@pytest.mark.parametrize("frame", named("requests"))
def test_each_golden_request_is_understood(frame: dict[str, Any]) -> None:
    line = json.dumps({"v": VERSION, "id": "7", "kind": "submit", "job": frame["job"]}).encode()
    request = decode_request(line)
    assert isinstance(request, Request)
    told = {
        name: value
        for name, value in json.loads(msgspec.json.encode(request.job)).items()
        if name in frame["job"]
    }
    assert told == frame["job"]
    silent = set(Submission.__struct_fields__) - set(frame["job"])
    assert all(getattr(request.job, name) in (None, "", False) for name in silent)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"a\x80b", "a?b"),
        (b"\xf4\x8f\xbf\xbf", "\U0010ffff"),
        (b"\xed\xa0\x80", "???"),
        (b"\xc3\xa9\xa9\xff\xff\xc3", "é????"),
        (b"\xf0\x9f\x98 \xc0\x80", "??? ??"),
    ],
)
def test_each_byte_that_is_not_utf_8_becomes_a_question_mark(sent: bytes, read: str) -> None:
    assert in_utf8(sent) == read.encode()
    line = encode_request(Request(v=VERSION, id="7", kind="submit", job=submission(name="NAME")))
    request = decode_request(line.replace(b"NAME", sent))
    assert isinstance(request, Request)
    assert request.job.name == read


@pytest.mark.parametrize("frame", accepted_replies())
def test_each_golden_reply_that_the_hook_accepts_is_a_reply(frame: dict[str, Any]) -> None:
    text = frame["reply"].replace("{id}", "7").replace("{pad}", "x" * frame.get("pad_bytes", 0))
    reply = decode_reply(text.encode())
    assert (reply.v, reply.id) == (VERSION, "7")
    assert decode_reply(encode_reply(reply)) == reply


def test_unchanged_dimensions_are_not_on_the_wire() -> None:
    assert json.loads(encode_reply(Reply(v=1, id="7"))) == {"v": 1, "id": "7"}
    reply = json.loads(encode_reply(Reply(v=1, id="7", grant=Grant(cpus_per_task=2))))
    assert reply == {"v": 1, "id": "7", "grant": {"cpus_per_task": 2}}


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)


@given(TEXT, TEXT, st.none() | st.integers(1, 2**32), st.lists(TEXT, max_size=3))
def test_an_encoded_request_is_one_line_that_decodes_to_itself(
    identity: str, name: str, cpus: int | None, other: list[str]
) -> None:
    job = submission(name=name, comment=name, cpus_per_task=cpus, other=tuple(other))
    request = Request(v=VERSION, id=identity, kind="submit", job=job)
    line = encode_request(request)
    assert line.count(b"\n") == 1
    assert decode_request(line) == request


def altered(**changes: Any) -> bytes:
    plain = msgspec.to_builtins(Request(v=VERSION, id="7", kind="submit", job=submission()))
    job = {**plain["job"], **changes.pop("job", {})}
    return json.dumps({**plain, "job": job, **changes}).encode()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "truncated"),
        (b"{}", "missing required field"),
        (b"[1]", "Expected `object`"),
        (b"\xff\xfe", "invalid"),
        (altered(v=2), "version 2"),
        (altered(kind="cancel"), "unknown kind"),
        (altered(extra=1), "unknown field"),
        (altered(job={"extra": 1}), "unknown field"),
        (altered(job={"cpus_per_task": "8"}), "Expected `int"),
        (altered(job={"cpus_per_task": 1.5}), "Expected `int"),
        (altered(job={"user": None}), "Expected `str`"),
        (altered()[:-3], "truncated"),
        (altered(job={"script": "x" * MAX_REQUEST_BYTES}), "longer than"),
    ],
)
def test_an_error_says_in_words_why_a_line_is_not_a_request(line: bytes, said: str) -> None:
    answer = decode_request(line)
    assert isinstance(answer, str)
    assert said in answer


@given(st.binary(max_size=200))
def test_no_bytes_make_the_decoder_fail(line: bytes) -> None:
    assert isinstance(decode_request(line), str)
