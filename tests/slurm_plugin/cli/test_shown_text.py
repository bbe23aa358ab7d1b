"""What users wrote does not reach a terminal as commands, or a spreadsheet as a formula."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.store.database import open_store
from slurm_plugin.cli.output import cell, note, print_rows
from slurm_plugin.cli.shown_text import csv_value, visible
from tests.accounting.report.report_store import fill, measured
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run

EVIL = "a\x07\x1b]0;PWN\x07\x1b[31mb\x9b1m\u202e\n"
SHOWN = r"a\x07\x1b]0;PWN\x07\x1b[31mb\x9b1m\u202e\n"


@given(st.text())
def test_shown_text_is_printable_and_showing_it_twice_changes_nothing(said: str) -> None:
    shown = visible(said)
    assert shown.isprintable()
    assert visible(shown) == shown
    assert said != shown or said.isprintable()


def test_characters_to_be_kept_are_kept() -> None:
    assert visible("one\ntwo\x1b", keep="\n") == "one\ntwo\\x1b"


@pytest.mark.parametrize("output_format", ["table", "csv"])
def test_a_text_cell_escapes_unprintable_characters(
    output_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_rows([{"name": EVIL, "MiB": -5}], output_format)
    out = capsys.readouterr().out
    assert SHOWN in out
    assert out.replace("\n", "").isprintable()


def test_json_keeps_the_exact_text_and_is_still_printable(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": EVIL + "\x7f\U000e0001"}], "json")
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    assert json.loads(out) == [{"name": EVIL + "\x7f\U000e0001"}]


def test_a_note_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    note(f"job {EVIL} is left out")
    assert capsys.readouterr().err == f"job {SHOWN} is left out\n"


@pytest.mark.parametrize("formula", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "＝1+1"])
def test_a_cell_of_a_csv_is_never_a_formula(formula: str) -> None:
    assert csv_value(formula) == f"'{formula}"


@pytest.mark.parametrize("value", [-5, -0.25, None, "-5", "+1.5e3", "-", "a=b", ""])
def test_figures_and_other_texts_stay_as_they_are(value: object) -> None:
    assert csv_value(value) == value


def test_a_job_name_cannot_send_commands_to_the_terminal_of_an_admin(run: Run, site: Site) -> None:
    engine = open_store(site.config.store.url, create=True)
    fill(engine, [measured(n, job_name=name) for n, name in enumerate((EVIL, "=HYPERLINK(A)"), start=1)])
    engine.dispose()
    for output_format in ("table", "csv", "json"):
        shown = run("report", "families", "--format", output_format)
        assert shown.code == 0, shown.err
        assert (shown.out + shown.err).replace("\n", "").isprintable()
    names = {
        row["family"] for row in csv.DictReader(io.StringIO(run("report", "families", "--format", "csv").out))
    }
    assert "'=hyperlink(a)" in names


def test_text_of_several_words_is_broken_before_any_figure_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    figures = {f"c{place}": 12345.67 for place in range(5)}
    print_rows([{"resource": "gpus (gpu-collector + slurm)", **figures}], "table")
    assert capsys.readouterr().out.count("12,345.67") == len(figures)


@pytest.mark.parametrize(("columns", "whole"), [(80, True), (60, False)])
def test_the_name_of_a_row_is_not_broken_if_everything_fits(
    columns: int, *, whole: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    version = "20261126T205903.984Z-7fcacc"
    print_rows([{"version": version, **{f"c{place}": "some words" for place in range(9)}}], "table")
    shown = capsys.readouterr().out
    assert (version in shown) is whole
    assert all(f"c{place}" in shown for place in range(9))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.0049, "0.005"), (-0.0004, "-0.0004"), (0.005, "0.01"), (1234.5, "1,234.5"), (3.0, "3")],
)
def test_a_small_value_is_not_shown_as_0(value: float, shown: str) -> None:
    assert cell(value) == shown
