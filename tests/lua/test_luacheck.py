"""luacheck has no complaint: Lua finds an undefined name or a global by mistake only when it gets there."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_luacheck_has_no_complaint() -> None:
    if shutil.which("luacheck") is None:
        pytest.skip("luacheck is not installed (Debian: lua-check)")
    command = ("luacheck", "--quiet", "--no-color", "lua", "tests/lua")
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
