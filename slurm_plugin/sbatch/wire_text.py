"""Text as the hook puts it on the wire (lua/rightsizer/text.lua, frame.lua), to see what the service sees. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Callable

import msgspec

from slurm_plugin.policy.submission import Submission

# Of a script's beginning, and of its end.
SCRIPT_BYTES = 8192
TEXT_BYTES = 1024
_TEXTS = ("user", "account", "partition", "qos", "name", "comment")


def _question_marks(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)  # noqa: S101 - it is registered for decoding only
    return "?" * (error.end - error.start), error.end


_HANDLER = "rightsizer.question_marks"
_register: Callable[[str, Callable[[UnicodeError], tuple[str, int]]], None] = codecs.register_error
_register(_HANDLER, _question_marks)


def clean(value: bytes, limit: int) -> str:
    """Return at most `limit` bytes as text, no character cut in half, each byte that is not UTF-8 as `?`."""
    return whole_characters(value, limit).decode("utf-8", errors=_HANDLER)


def whole_characters(value: bytes, limit: int) -> bytes:
    """Return the first `limit` bytes at most, without the front half of a character that the limit cuts through."""
    last = limit
    if len(value) > limit:
        while last > limit - 3 and last > 0 and value[last] & 0xC0 == 0x80:
            last -= 1
    return value[:last]


def ends(script: bytes) -> bytes:
    """Return what is sent of a script: all of it, or its first and its last SCRIPT_BYTES, these from a new line on."""
    if len(script) <= 2 * SCRIPT_BYTES:
        return script
    first, last = whole_characters(script, SCRIPT_BYTES), script[-SCRIPT_BYTES:]
    return first.ljust(SCRIPT_BYTES + 1, b"\n") + last[last.find(b"\n") + 1 :]


def as_sent(submission: Submission, script: bytes) -> Submission:
    """Return a submission with its texts, and its script, cut and cleaned as the hook sends them."""
    texts = {name: getattr(submission, name) for name in _TEXTS}
    cut = {name: clean(text.encode(errors="surrogateescape"), TEXT_BYTES) for name, text in texts.items()}
    return msgspec.structs.replace(submission, script=clean(ends(script), 2 * SCRIPT_BYTES + 1), **cut)
