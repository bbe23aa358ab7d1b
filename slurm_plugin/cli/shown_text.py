"""Make texts that users wrote (job names, comments) safe for terminals, spreadsheets and programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

# The characters with which a spreadsheet's formula begins; the full-width forms count in some languages.
_FORMULA = tuple("=+-@＝＋－＠")


def visible(text: str, keep: str = "") -> str:
    r"""Escape characters that a terminal would obey or hide (`\x1b`), except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode()


def visible_json(document: str) -> str:
    r"""Escape the same characters in indented JSON, as JSON does (`\u001b`): programs read the original text."""
    if document.isprintable():
        return document
    # Apart from line breaks between values, only strings contain unprintable characters.
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in document)


def encodable(value: object) -> object:
    r"""Escape surrogates (`\udcff`), which stand for bytes of a file name that are not UTF-8."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {name: encodable(one) for name, one in value.items()}
    return [encodable(one) for one in value] if isinstance(value, (list, tuple)) else value


def csv_value(value: object) -> object:
    """Return a value for CSV: a text is made visible, with a leading ' if a spreadsheet would take it for a formula."""
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
