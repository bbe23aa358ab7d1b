"""Neither what slurmctld loads nor the program uses a shell or runs text as code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("accounting", "models", "slurm_plugin")
# `os.spawn*` and `exec*` take lists and use no shell; nothing here uses them either.
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"}
CODE = {
    "eval",
    "exec",
    "pickle.load",
    "pickle.loads",
    "marshal.loads",
    "joblib.load",
    "torch.load",
    "numpy.load",
}
# `loadfile` reads the site's own settings, from the folder of the script that slurmctld runs.
LUA_FORBIDDEN = re.compile(
    r"\bos\.(execute|exit|remove|rename|tmpname)\b|\bio\.popen\b|(?<![.:\w])(loadstring|dofile|load)\s*\("
)
LUA_LOADFILE = re.compile(r"\bloadfile\s*\(")


def sources(suffix: str, *folders: str) -> list[Path]:
    found = [file for folder in folders for file in (ROOT / folder).rglob(f"*{suffix}")]
    assert found
    return found


def calls(file: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def starts_a_shell(name: str, call: ast.Call) -> bool:
    return name in SHELLS or any(
        word.arg == "shell" and not (isinstance(word.value, ast.Constant) and word.value.value is False)
        for word in call.keywords
    )


def test_no_text_is_handed_to_a_shell_or_run_as_code() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{call.lineno}: {name}"
        for file in sources(".py", *PACKAGES)
        for name, call in calls(file)
        if starts_a_shell(name, call) or name in CODE
    ]
    assert found == []


def test_every_command_is_a_list_of_words() -> None:
    """A single string would be taken for a program's name, and with a shell for a command line."""
    texts = [
        f"{file.relative_to(ROOT)}:{call.lineno}"
        for file in sources(".py", *PACKAGES)
        for name, call in calls(file)
        if name in ("subprocess.run", "subprocess.Popen", "subprocess.check_output")
        and isinstance(call.args[0], (ast.Constant, ast.JoinedStr, ast.BinOp))
    ]
    assert texts == []


def test_lua_that_slurmctld_and_clients_load_starts_no_process() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in sources(".lua", "lua")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if LUA_FORBIDDEN.search(line.partition("--")[0])
    ]
    assert found == []
    loading = [file.name for file in sources(".lua", "lua") if LUA_LOADFILE.search(file.read_text())]
    assert loading == ["settings.lua"]


def test_this_check_recognises_a_shell() -> None:
    seen = {
        'subprocess.run("ls " + name, shell=True)': True,
        "subprocess.run(words, shell=wanted)": True,
        "os.system(text)": True,
        "subprocess.run(words, shell=False)": False,
        "subprocess.run(words)": False,
    }
    for text, expected in seen.items():
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert starts_a_shell(ast.unparse(call.func), call) is expected, text
    assert LUA_FORBIDDEN.search('   io.popen("id")')
    assert not LUA_FORBIDDEN.search("   payload(x)")
