"""The services' log: one line for each event, whose name is the same whatever values the message contains."""

from __future__ import annotations

import ast
import json
import logging
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.log_lines import MOST_CHARS, Lines, SaidOnce, event_of

ROOT = Path(__file__).parents[2]
LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=(\w+) event=([a-z0-9-]+) message=(\".*?\")( trace=(\".*\"))?\Z"
)


def line_of(template: str, *arguments: object, failed: bool = False) -> str:
    record = logging.LogRecord(
        "x", logging.WARNING, "x", 1, template, arguments, sys.exc_info() if failed else None
    )
    return Lines().format(record)


def test_a_line_has_its_event_and_its_message() -> None:
    found = LINE.match(line_of("model %s in use", "v7"))
    assert found
    assert (found[1], found[2], json.loads(found[3])) == ("warning", "model-in-use", "model v7 in use")


@given(st.text())
def test_no_text_can_forge_a_line_or_a_field(said: str) -> None:
    line = line_of("a request was not understood: %s", said)
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    _, _, message = line.partition(" message=")
    assert json.loads(message) == f"a request was not understood: {said}"
    assert line.partition(" message=")[0].endswith("event=a-request-was-not-understood")


def test_a_long_message_is_cut() -> None:
    assert len(line_of("a request was not understood: %s", "x" * 65536)) < MOST_CHARS + 200


def test_a_traceback_is_a_value_on_the_same_line() -> None:
    try:
        int("one\ntwo")
    except ValueError:
        line = line_of("a request failed", failed=True)
    found = LINE.match(line)
    assert found
    assert "ValueError: invalid literal" in json.loads(found[5])


@pytest.mark.parametrize(
    ("template", "arguments", "event"),
    [
        ("%d results in a row were late for %.0f s", (3, 30.0), "results-in-a-row-were-late-for-s"),
        ("a client's request failed", (), "a-clients-request-failed"),
        ("%s: %s", ("the queue is left alone", "no"), "the-queue-is-left-alone"),
    ],
)  # fmt: skip
def test_an_event_is_named_by_the_constant_words_of_its_message(
    template: str, arguments: tuple[object, ...], event: str
) -> None:
    assert event_of(template, arguments) == event


def test_a_failure_is_logged_when_it_is_new_or_different_or_has_come_back() -> None:
    failures = SaidOnce()
    assert [failures.is_new(said) for said in ("away", "away", "full", "full", "away")] == [
        True,
        False,
        True,
        False,
        True,
    ]
    failures.over()
    assert failures.is_new("away")


def test_every_event_in_the_guide_is_one_of_the_program() -> None:
    templates = [
        node.args[0].value
        for file in (ROOT / "slurm_plugin").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and re.fullmatch(r"log\.\w+", ast.unparse(node.func))
        if node.args and isinstance(node.args[0], ast.Constant)
    ]
    events = {event_of(template) for template in templates}
    guide = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `([a-z0-9-]+)` \|", guide.partition("## Logs")[2], re.MULTILINE))
    assert len(named) > 8
    assert named <= events
