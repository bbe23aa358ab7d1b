"""Text as the hook puts it on the wire (lua/rightsizer/text.lua, frame.lua), to see what the service sees. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Callable

import msgspec

from slurm_plugin.policy.submission import Submission

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
    last = limit
    if len(value) > limit:
        while last > limit - 3 and last > 0 and value[last] & 0xC0 == 0x80:
            last -= 1
    return value[:last].decode("utf-8", errors=_HANDLER)


def as_sent(submission: Submission, script: bytes) -> Submission:
    """Return a submission with its texts, and its script, cut and cleaned as the hook sends them."""
    texts = {name: getattr(submission, name) for name in _TEXTS}
    cut = {name: clean(text.encode(errors="surrogateescape"), TEXT_BYTES) for name, text in texts.items()}
    return msgspec.structs.replace(submission, script=clean(script, SCRIPT_BYTES), **cut)
