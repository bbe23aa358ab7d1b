"""Run random jobs and random replies through the real Lua hook, as many as asked for.

    python -m tests.lua.fuzz_run --cases 100000
    python -m tests.lua.fuzz_run --cases 100000 --socket /run/slurm-rightsizer/service.sock

Each case is one job description and one reply, made up or from the service at the socket. It exits with 1 at the
first fault, and names the seed and the round that reproduce it.
"""

import argparse
import random
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LUA_FOLDER = HERE.parents[1] / "lua"
INTERPRETERS = ("lua5.1", "lua5.2", "lua5.3", "lua5.4")


def fuzz(lua: str, cases: int, seed: int, socket: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `cases` cases under one interpreter; return its output, which says how the jobs ended, or what is wrong."""
    command = [lua, "fuzz.lua", ".", str(LUA_FOLDER), str(seed), str(cases)]
    return subprocess.run(
        [*command, socket] if socket else command,
        cwd=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def main() -> int:
    """Read the options, run every interpreter that is installed, and print the output of each."""
    parser = argparse.ArgumentParser(description="Fuzz the Lua hook.")
    parser.add_argument("--cases", type=int, default=100_000, help="jobs and replies for each interpreter")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31), help="a seed printed earlier")
    parser.add_argument("--lua", action="append", help="an interpreter; else all of 5.1 to 5.4 that are here")
    parser.add_argument("--socket", help="ask the service at this path; else the replies are random")
    options = parser.parse_args()
    interpreters = options.lua or [name for name in INTERPRETERS if shutil.which(name)]
    if not interpreters:
        print("no Lua here: install lua5.1, lua-socket and lua-cjson", file=sys.stderr)
        return 1
    failed = False
    for lua in interpreters:
        done = fuzz(lua, options.cases, options.seed, options.socket and str(Path(options.socket).resolve()))
        print(f"{lua}: {options.cases} cases, {'failed' if done.returncode else 'passed'}\n{done.stdout}")
        failed = failed or done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
