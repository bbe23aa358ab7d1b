"""What users wrote (names of jobs, comments), as a terminal, a spreadsheet and a program may be given it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

# With these a spreadsheet's formula begins, in some languages in full width.
_FORMULA = tuple("=+-@＝＋－＠")


def visible(text: str, keep: str = "") -> str:
    r"""Return a text with all that a terminal would obey or hide written out (`\x1b`), but for characters to keep."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode()


def visible_json(document: str) -> str:
    r"""Return indented JSON in which the same is written as JSON does (`\u001b`): a program reads what it was."""
    if document.isprintable():
        return document
    # Beyond the indentation, only strings hold what is not printable.
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in document)


def encodable(value: object) -> object:
    r"""Return rows in which bytes of a file's name that are no UTF-8 are written out (`\udcff`)."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {name: encodable(one) for name, one in value.items()}
    return [encodable(one) for one in value] if isinstance(value, (list, tuple)) else value


def csv_value(value: object) -> object:
    """Return a value as CSV holds it: texts visible, and with ' before what a spreadsheet would take for a formula."""
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(_FORMULA) and len(text) > 1 and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
