"""Hints for documents that do not fit their schema: the nearest key, or the possible values. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin

import msgspec

_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_VALUE = re.compile(r"Invalid enum value")
_ONE_TABLE = re.compile(r"Expected `array`, got `object`")
_PLACE = re.compile(r" - at `\$([^`]*)`")
_STEP = re.compile(r"\.(\w+)|\[[^\]]*\]")


def nearest(key: str, known: Iterable[str]) -> str:
    """Return "did you mean …?" with the nearest known key, '' if none is near."""
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    return f"did you mean `{near[0]}`?" if near else ""


def hint(error: msgspec.ValidationError, schema: type[msgspec.Struct]) -> str:
    """Return what to write instead, from where msgspec's message says the error is; '' if that gives no hint."""
    text = str(error)
    place = _PLACE.search(text)
    meant = _type_at(schema, place[1] if place else "")
    unknown = _UNKNOWN.search(text)
    if unknown and isinstance(meant, type) and issubclass(meant, msgspec.Struct):
        known = [field.encode_name for field in msgspec.structs.fields(meant)]
        return nearest(unknown[1], known) or f"valid keys are {', '.join(known)}"
    if place and _ONE_TABLE.search(text):
        return f"this table can be repeated: write [[{place[1].removeprefix('.')}]], in double brackets"
    values = _values(meant) if _VALUE.search(text) else ()
    return f"the value must be one of {', '.join(values)}" if values else ""


def _type_at(schema: Any, place: str) -> Any:  # noqa: ANN401 - any type may stand in a schema
    """Return the type at a place such as `.load.kinds[...]`; None if there is no such place."""
    meant = schema
    for step in _STEP.finditer(place):
        meant = _member(meant, step[1])
    return meant


def _member(outer: Any, name: str | None) -> Any:  # noqa: ANN401 - the same
    """Return the type of a struct's field, or, without a name, of a list's items."""
    if name is None:
        return next(iter(get_args(outer)), None)
    if not (isinstance(outer, type) and issubclass(outer, msgspec.Struct)):
        return None
    return next((field.type for field in msgspec.structs.fields(outer) if field.encode_name == name), None)


def _values(meant: Any) -> tuple[str, ...]:  # noqa: ANN401 - the same
    """Return the values of a Literal, or of the Literals in a union."""
    if get_origin(meant) is Literal:
        return tuple(str(value) for value in get_args(meant))
    return tuple(value for part in get_args(meant) for value in _values(part))
