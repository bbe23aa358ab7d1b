"""Everything that docs/security.md names as a defence against a threat, or as its test, exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "security.md"
NAMED = re.compile(r"`([\w./-]+\.(?:py|lua|tar\.gz)|test_\w+)`")


def test_every_module_and_test_that_the_guide_names_exists() -> None:
    files = [
        file.relative_to(ROOT).as_posix()
        for folder in ("accounting", "models", "slurm_plugin", "lua", "tests", "bench")
        for file in (ROOT / folder).rglob("*.*")
    ]
    tests = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = set(NAMED.findall(GUIDE.read_text(encoding="utf-8")))
    assert len(named) > 40
    lost = {
        name
        for name in named
        if name not in tests and not any(file == name or file.endswith(f"/{name}") for file in files)
    }
    assert lost == set()
