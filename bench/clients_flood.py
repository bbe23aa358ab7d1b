"""What a user who floods the clients' socket costs slurmctld, and what the filter costs an srun.

Run it with `python -m bench.clients_flood`. The same flood at the hook's own socket is the floor: that would be the
cost if clients asked the process for which slurmctld waits.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from slurm_plugin.config.file import CONFIG_VARIABLE, render_config
from slurm_plugin.config.hook import client_settings, lua_folder
from slurm_plugin.config.settings import Config
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service.protocol import VERSION, Request, encode_request

REQUESTS = 300
PAUSE_S = 0.005
FLOOD_S = 4.0
STARTS = 25
FLOOD = """
import socket, sys, time
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(sys.argv[1])
        except OSError:
            pass
"""
# The work of a whole client: nothing is loaded yet, as in a new srun.
FILTER = """
local socket = require("socket")
slurm = { json_cli_options = function() return '{"cpus-per-task":"8","argv":["./fit"]}' end }
dofile(arg[1])
local options = setmetatable({}, { __index = { type = "srun", ["cpus-per-task"] = "8" } })
local begin_s = socket.gettime()
slurm_cli_pre_submit(options, 0)
print((socket.gettime() - begin_s) * 1000)
assert(rawget(options, "comment"), "the service did not answer")
"""


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="rightsizer-") as name, services(Path(name)) as config:
        print(f"{'the filter in a new srun':40}", *took(filter_times_ms(config, Path(name))))
        print(f"{'the hook, nobody asking':40}", *took(round_trips_ms(config)))
        for what, path in (
            ("the hook, the clients' socket flooded", config.client.socket),
            ("the hook, its own socket flooded", config.service.socket),
        ):
            flood = subprocess.Popen([sys.executable, "-c", FLOOD, path, str(FLOOD_S)])
            time.sleep(0.3)
            print(f"{what:40}", *took(round_trips_ms(config)))
            flood.wait()


def took(times_ms: list[float | None]) -> list[str]:
    """Return the percentiles of the answered requests, and the number of unanswered ones, in words."""
    answered = sorted(time_ms for time_ms in times_ms if time_ms is not None)
    figures = [f"p{share} {answered[len(answered) * share // 100]:6.2f} ms" for share in (50, 99) if answered]
    return [*figures, f"{len(times_ms) - len(answered)} of {len(times_ms)} not answered"]


@contextlib.contextmanager
def services(folder: Path) -> Iterator[Config]:
    """Run both services in a folder, without a model."""
    folder.chmod(0o755)
    plain = msgspec.to_builtins(Config())
    plain["service"] |= {"socket": f"{folder}/hook", "journal": f"{folder}/journal"}
    plain["hook"] |= {"kill_switch": f"{folder}/off"}
    plain["client"] |= {"socket": f"{folder}/clients", "kill_switch": f"{folder}/clients.off"}
    plain["models"] |= {"directory": f"{folder}/models"}
    config = msgspec.convert(plain, Config)
    file = folder / "rightsizer.toml"
    file.write_text(render_config(config), encoding="utf-8")
    command = [sys.executable, "-m", "slurm_plugin.cli", "serve", "--config", str(file)]
    environment = {name: text for name, text in os.environ.items() if name != CONFIG_VARIABLE}
    with contextlib.ExitStack() as running:
        for more in ([], ["--clients"]):
            process = subprocess.Popen([*command, *more], env=environment, stderr=subprocess.DEVNULL)
            running.callback(process.wait)
            running.callback(process.terminate)
        while not (Path(config.service.socket).is_socket() and Path(config.client.socket).is_socket()):
            time.sleep(0.05)
        time.sleep(1.0)
        yield config


def round_trips_ms(config: Config) -> list[float | None]:
    """Ask as the hook does, with one connection per request; None for a request without an answer."""
    job = Submission(user="ann", uid=1, batch=True, other=(), name="fit", cpus_per_task=8)
    line = encode_request(Request(v=VERSION, id="1", kind="submit", job=job))
    times_ms: list[float | None] = []
    for _ in range(REQUESTS):
        time.sleep(PAUSE_S)
        begin_s = time.perf_counter()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(config.hook.deadline_ms / 1000)
            try:
                client.connect(config.service.socket)
                client.sendall(line)
                answered = client.recv(65536)
            except OSError:
                answered = b""
        times_ms.append((time.perf_counter() - begin_s) * 1000 if answered else None)
    return times_ms


def filter_times_ms(config: Config, folder: Path) -> list[float | None]:
    """Simulate clients, each in its own Lua process; empty if no Lua is installed."""
    lua = shutil.which("lua5.1")
    if lua is None:
        return []
    (folder / "rightsizer").symlink_to(lua_folder() / "rightsizer")
    shutil.copy(lua_folder() / "cli_filter.lua", folder)
    (folder / "rightsizer_clients.lua").write_text(client_settings(config), encoding="utf-8")
    (folder / "client.lua").write_text(FILTER, encoding="utf-8")
    command = [lua, str(folder / "client.lua"), str(folder / "cli_filter.lua")]
    times_ms: list[float | None] = []
    for _ in range(STARTS):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        times_ms.append(float(done.stdout) if done.returncode == 0 else None)
        time.sleep(0.1)
    return times_ms


if __name__ == "__main__":
    main()
