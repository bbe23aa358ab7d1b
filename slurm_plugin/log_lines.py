"""What the services log: one line for each event, on stderr, from where systemd's journal takes it.

    2026-11-22T14:50:38.535Z level=info event=model-in-use message="model 20261122T144935.628Z-29bf0f in use"

`event` is made of the words of the message as they stand in the program, so that it is the same whatever they are
filled with; a test lists those that docs/operating.md names. Whatever users or other programs said is in quotes, with
line ends and control characters escaped: nobody can write a line of his own.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time

_FILLED_IN = re.compile(r"%[-#0 +]*[\d*]*(?:\.[\d*]+)?[a-zA-Z%]")
_NO_WORD = re.compile(r"[^a-z0-9]+")
MOST_WORDS = 8
# What a user sends may be 64 KiB long, and an error may repeat it.
MOST_CHARS = 1000
# Of so many it is known what was said of them.
MOST_REMEMBERED = 4096


def log_to_stderr(*, warnings_alone: bool = False) -> None:
    """Let every line of this process that is no debugging go to stderr, or only what is worth a warning."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    logging.basicConfig(level=logging.WARNING if warnings_alone else logging.INFO, handlers=[handler])


def event_of(template: object, arguments: object = ()) -> str:
    """Return the name of an event by its message's template; that of its first argument where that is all it has."""
    words = _NO_WORD.sub(" ", _FILLED_IN.sub(" ", str(template)).lower().replace("'", "")).split()
    if not words and isinstance(arguments, tuple) and arguments:
        return event_of(arguments[0])
    return "-".join(words[:MOST_WORDS])


class Lines(logging.Formatter):
    """One line a record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; a traceback is one of its values."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = (
            f"{moment}.{int(record.msecs):03d}Z level={record.levelname.lower()} "
            f"event={event_of(record.msg, record.args)} message={json.dumps(record.getMessage()[:MOST_CHARS])}"
        )
        if record.exc_info:
            line += f" trace={json.dumps(self.formatException(record.exc_info))}"
        return line


class SaidOnce:
    """Whether a failure that comes again and again is worth a line: it is new, is another one, or has come back."""

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self._said = ""

    def is_new(self, failure: str) -> bool:
        """Whether this is not what was said last; from now on it is."""
        was, self._said = self._said, failure
        return failure != was

    def over(self) -> None:
        """All went well: the next failure is new, whatever it is."""
        self._said = ""


class SaidOnceOfEach:
    """The same of many, such as jobs: what became of each of them is said, and a failure not twice in a row."""

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self._said: dict[int, str] = {}

    def is_new(self, of: int, failure: str) -> bool:
        """Whether to say what became of it; '' is a success, which always is. The last MOST_REMEMBERED are known."""
        was = self._said.pop(of, "")
        if failure:
            self._said[of] = failure
        if len(self._said) > MOST_REMEMBERED:
            del self._said[next(iter(self._said))]
        return not failure or failure != was
