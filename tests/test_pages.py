"""What readers see of the documentation: complete tables, working links, and examples that do what the text says."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from slurm_plugin.doctor.checks import CHECKS
from slurm_plugin.policy.submission import NOT_BATCH, OPTED_OUT
from slurm_plugin.service.decide import BRAKED, BY_CLIENT, SITE_NOT_KNOWN
from tests.builders import executable
from tests.conftest import PATIENCE_S
from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
DELIMITER = re.compile(r"\|( *:?-+:? *\|)+")


def tables(page: Path) -> Iterator[list[str]]:
    """Yield the lines of each table; without a heading row it would be shown as plain text."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for is_table, found in groupby(lines, key=lambda line: line.startswith("|")):
        if is_table:
            yield list(found)


def cells(row: str) -> int:
    """Count a row's cells; a | that is not a border is written \\|, also in code."""
    return len(re.findall(r"(?<!\\)\|", row)) - 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_table_has_a_heading_and_rows_with_as_many_cells(page: Path) -> None:
    for table in tables(page):
        assert DELIMITER.fullmatch(table[1] if table[1:] else ""), table[0]
        assert [row for row in table if cells(row) != cells(table[0])] == []


def anchors(page: Path) -> set[str]:
    """Return a page's anchors, as on GitHub."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_pages_has_a_target(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text(encoding="utf-8"))
    targets = [((page.parent / file).resolve() if file else page, anchor) for file, anchor in links]
    assert [file for file, _ in targets if not file.exists()] == []
    assert [anchor for file, anchor in targets if anchor and anchor not in anchors(file)] == []


def test_everything_that_architecture_md_names_exists_there() -> None:
    missing = []
    for table in tables(ROOT / "ARCHITECTURE.md"):
        for row in table[2:]:
            *_, names, places = (re.findall("`([^`]+)`", cell) for cell in row.strip("|").split("|"))
            files = [file for place in places for file in standing(place)]
            text = "\n".join(file.read_text(encoding="utf-8") for file in files)
            # For a method, the table names its class.
            plain = [name for name in names if files and "." not in name]
            missing += [name for name in plain if not re.search(rf"\b{name}\b", text)]
            missing += [place for place in places if not standing(place)]
    assert missing == []


def standing(place: str) -> list[Path]:
    """Return the files that a path means: a full path, a folder, or the end of a path."""
    if place.endswith("/"):
        return [*(ROOT / place).rglob("*.py")]
    rooms = ("accounting", "models", "slurm_plugin", "lua")
    return [file for room in rooms for file in (ROOT / room).rglob(Path(place).name) if file.match(place)]


def test_every_check_of_the_doctor_is_in_the_guide() -> None:
    (table,) = (rows for rows in tables(ROOT / "docs" / "operating.md") if rows[0].startswith("| check |"))
    assert {name.strip() for row in table[2:] for name in row.split("|")[1].split(",")} == set(CHECKS)


def test_the_reasons_in_tokens_are_in_the_users_guide() -> None:
    (table,) = (rows for rows in tables(ROOT / "docs" / "user.md") if rows[0].startswith("| `why` |"))
    named = {
        name.removesuffix("NAME") for row in table[2:] for name in re.findall("`([a-z-]+:?(?:NAME)?)`", row)
    }
    service = (
        ROOT / "slurm_plugin" / "service" / "decide.py",
        ROOT / "slurm_plugin" / "policy" / "submission.py",
    )
    texts = {
        node.value
        for file in service
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
    }
    assert named <= texts
    assert named >= {BY_CLIENT, SITE_NOT_KNOWN, BRAKED, OPTED_OUT, NOT_BATCH}


@pytest.mark.parametrize("page", ["recovery.md", "gpus-and-energy.md"])
def test_processes_started_by_slurm_scripts_outlive_the_script(page: str, tmp_path: Path) -> None:
    """When a Prolog or an Epilog ends, Slurm kills its process group, and a child may not have left that yet."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("    ") and "setsid" in line)
    calls, runs = tmp_path / "calls", 40
    ours = executable(tmp_path / "rightsizer", f"#!/bin/sh\necho called >>{calls}\n")
    line = line.replace("/opt/rightsizer/bin/rightsizer", str(ours)).replace("/var/log/slurm", str(tmp_path))
    script = executable(tmp_path / "script", f"#!/bin/sh\n{line}\n")
    for _ in range(runs):
        started = subprocess.Popen([script], start_new_session=True, env={"PATH": os.environ["PATH"]})
        started.wait(PATIENCE_S)
        try:
            os.killpg(started.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait_until(
        lambda: calls.exists() and len(calls.read_text("ascii").splitlines()) >= runs, "some calls were lost"
    )
