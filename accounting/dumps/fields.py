"""Parses a block's columns as what they should hold; a text that does not fit gives its line a reason."""

from __future__ import annotations

from collections.abc import Callable
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from accounting import columns
from accounting.dumps.clock_changes import Moments
from accounting.dumps.rows import Rows
from accounting.states import is_known, state_of_number
from accounting.units import whole

_NO_TIME = ("", "Unknown", "None", "N/A", "NULL", "\\N")
# slurmdbd's NO_VAL and INFINITE, with 32 and 64 bits: not requested, no limit, or not measured.
_NO_NUMBER = (
    *_NO_TIME, "UNLIMITED", "Partition_Limit", "INVALID",
    *(str(2**bits - least) for bits in (32, 64) for least in (1, 2)),
)  # fmt: skip
_LIST = (
    r"^(?:[a-zA-Z0-9][a-zA-Z0-9_:/.-]*=(?:[0-9]{1,18}(?:\.[0-9]{1,9})?[KMGTPE]?"
    r"|(?:[0-9]{1,9}-)?[0-9]{1,9}(?::[0-9]{2}){1,2}(?:\.[0-9]{1,9})?|NONE|1844674407370955161[0-9])(?:,|$))*$"
)
# Slurm counts nothing near this; a larger number would not survive a multiplication.
_MOST = 2**53
# A file that went through another program may hold 5.0: pandas turns whole numbers into floats if some are missing.
_WHOLE_AS_DECIMAL = r"^([0-9]{1,15})\.0$"


class Fields:
    """The columns of a block, by what they hold; each method returns an array as long as the block."""

    def __init__(self, rows: Rows, zone: ZoneInfo) -> None:
        self._rows, self._zone = rows, zone
        self._size = len(rows.lines)

    def has(self, *things: str) -> bool:
        """Whether the dump has all of these columns."""
        return self._rows.heading.has(*things)

    @property
    def slurmdbd(self) -> bool:
        """Whether the dump is slurmdbd's own job table."""
        return self._rows.heading.slurmdbd

    def words(self, thing: str) -> pa.Array:
        """Return texts unchanged, '' if the dump has none."""
        text = self._rows.text(thing)
        return (
            pa.array([""] * self._size, pa.string())
            if text is None
            else pc.if_else(pc.equal(text, "\\N"), "", text)
        )

    def name(self, thing: str) -> pa.Array:
        """Return names, or the numbers that slurmdbd uses for them."""
        text = self.words(thing)
        return _as_whole(text) if self.slurmdbd else text

    def number(self, thing: str) -> pa.Array:
        """Return whole numbers; null if missing, or one of the numbers that Slurm uses for none."""
        if not self.has(thing):
            return pa.nulls(self._size, pa.int64())
        text = _as_whole(self.words(thing))
        value = pc.if_else(pc.is_in(text, pa.array(_NO_NUMBER)), None, columns.whole(text))
        value = pc.if_else(pc.less(value, _MOST), value, None)
        self._refuse(thing, value, text, _NO_NUMBER, "a whole number")
        return value

    def time(self, thing: str) -> pa.Array:
        """Return unix seconds; null if not recorded."""
        return self._read(
            thing, pa.int64(), lambda text: columns.time_s(_as_whole(text), self._zone), "a time", _NO_TIME
        )

    def times(self, thing: str) -> Moments:
        """Return unix seconds, and again with the later moment for local times that occur twice."""
        first_s, text = self.time(thing), self._rows.text(thing)
        if text is None:
            return first_s, first_s
        return first_s, columns.second_time_s(_as_whole(text), first_s, self._zone)

    def duration(self, thing: str) -> pa.Array:
        """Return seconds of clock time."""
        return self._read(thing, pa.float64(), columns.duration_s, "a duration")

    def memory(self, thing: str, bare_unit: str) -> pa.Array:
        """Return MiB."""
        return self._read(
            thing, pa.float64(), lambda text: columns.memory_mib(text, bare_unit), "an amount of memory"
        )

    def resources(self, thing: str) -> pa.Array:
        """Return lists of resources as texts; '' if there is none, or it is invalid."""
        text = self.words(thing)
        fits = pc.match_substring_regex(text, _LIST)
        self._refuse(thing, pc.if_else(fits, text, None), text, (), "a list of resources")
        return pc.if_else(fits, text, "")

    def state(self) -> pa.Array:
        """Return states in sacct's words, including the whole of `CANCELLED by 1000`."""
        text = self.words("state")
        if self._rows.heading.slurmdbd:
            text = over_distinct(text, _state_word)
        self._rows.mark(over_distinct(text, lambda one: None if is_known(one) else one).is_valid(), _NO_STATE)
        return text

    def _read(
        self,
        thing: str,
        kind: pa.DataType,
        parse: Callable[[pa.Array], pa.Array],
        what: str,
        blank: tuple[str, ...] = _NO_NUMBER,
    ) -> pa.Array:
        text = self._rows.text(thing)
        if text is None:
            return pa.nulls(self._size, kind)
        value = pc.if_else(pc.is_in(text, pa.array(blank)), pa.scalar(None, kind), parse(text))
        self._refuse(thing, value, text, blank, what)
        return value

    def _refuse(self, thing: str, value: pa.Array, text: pa.Array, blank: tuple[str, ...], what: str) -> None:
        wrong = pc.and_(pc.is_null(value), pc.invert(pc.is_in(text, pa.array(blank, pa.string()))))
        if pc.any(wrong).as_py():
            heading = self._rows.heading
            self._rows.mark(wrong, f"{heading.names[heading.place[thing]]} is not {what}")


_NO_STATE = "State is not a state of Slurm"


def _as_whole(text: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(text, _WHOLE_AS_DECIMAL, r"\1")


def over_distinct(text: pa.Array, read: Callable[[str], str | None]) -> pa.Array:
    """Apply a function to a column, calling it once for each distinct text."""
    encoded = text.dictionary_encode()
    return pa.array([read(one) for one in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


def _state_word(text: str) -> str:
    number = whole(text)
    return text if number is None else state_of_number(number) or text
