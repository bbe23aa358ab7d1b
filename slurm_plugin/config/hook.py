"""Render the site files of slurmctld's Lua hook and of the clients' filter, and find where our Lua is installed."""

from __future__ import annotations

import sys
from pathlib import Path

from accounting.errors import ConfigError
from slurm_plugin.config.settings import Config

HOOK_SCRIPT = "job_submit.lua"
FILTER_SCRIPT = "cli_filter.lua"
# With this line the hook also sends the job's working directory.
INPUTS_ON = "  inputs = true,\n"


def hook_settings(config: Config) -> str:
    """Render rightsizer_site.lua, which the hook reads from the folder of slurmctld's job_submit.lua."""
    return (
        "-- Written from rightsizer.toml (`rightsizer config hook`); times in milliseconds.\n"
        "return {\n"
        f"  socket = {lua_string(config.service.socket)},\n"
        f"  deadline_ms = {config.hook.deadline_ms},\n"
        f"  kill_switch = {lua_string(config.hook.kill_switch)},\n"
        f"{INPUTS_ON if config.inputs.roots else ''}"
        "}\n"
    )


def client_settings(config: Config) -> str:
    """Render rightsizer_clients.lua, which every user's srun reads; ConfigError if `client.socket` is empty."""
    if not config.client.socket:
        raise ConfigError(
            'client.socket is "", so clients have no service to ask; set it, for example to '
            "/run/rightsizer-clients/clients.sock"
        )
    return (
        "-- Written from rightsizer.toml (`rightsizer config clients`); times in milliseconds. All users read this.\n"
        "return {\n"
        f"  socket = {lua_string(config.client.socket)},\n"
        f"  deadline_ms = {config.client.deadline_ms},\n"
        f"  kill_switch = {lua_string(config.client.kill_switch)},\n"
        f"  salloc = {str(config.client.salloc).lower()},\n"
        "}\n"
    )


def lua_string(text: str) -> str:
    """Quote `text` for Lua 5.1 and later; other characters than printable ASCII become escapes of UTF-8 bytes."""
    plain = {byte: chr(byte) for byte in range(32, 127) if chr(byte) not in '"\\'}
    return '"' + "".join(plain.get(byte, f"\\{byte:03d}") for byte in text.encode("utf-8")) + '"'


def lua_folder() -> Path:
    """Return the folder with job_submit.lua: next to the packages in a checkout, else where pip installed it.

    Raises ConfigError if it is in neither.
    """
    candidates = (
        Path(__file__).resolve().parents[2] / "lua",
        Path(sys.prefix) / "share" / "slurm-rightsizer" / "lua",
    )
    for folder in candidates:
        if (folder / HOOK_SCRIPT).is_file():
            return folder
    looked = " or ".join(str(folder) for folder in candidates)
    raise ConfigError(f"no {HOOK_SCRIPT} in {looked}; install slurm-rightsizer again")
