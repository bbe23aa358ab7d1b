"""The import contracts (pyproject.toml) hold wherever the tests pass, not only where somebody runs `make check`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_import_contract_is_kept() -> None:
    command = (str(Path(sys.executable).with_name("lint-imports")), "--no-cache")
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert found.returncode == 0, found.stdout + found.stderr
    assert " 0 broken" in found.stdout
