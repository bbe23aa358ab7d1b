"""The real Lua hook, run by a Lua interpreter inside this process instead of slurmctld's.

Python replaces the three C libraries that slurmctld would load (LuaSocket's clock and Unix sockets, cjson). The code
of lua/ itself runs unchanged, as on a cluster.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accounting.errors import RightsizerError, install_with
from slurm_plugin.config.hook import HOOK_SCRIPT, lua_folder

JobFields = dict[str, Any]

_PRELOAD = """
function(py)
   package.preload["socket"] = function() return { gettime = py.now, sleep = py.sleep } end
   package.preload["socket.unix"] = function()
      return { stream = function()
         local stream = py.stream()
         return {
            settimeout = function(_, seconds) stream.settimeout(seconds) end,
            connect = function(_, path) return stream.connect(path) end,
            send = function(_, line, from) return stream.send(line:sub(from or 1)) end,
            receive = function(_, count) return stream.receive(count) end,
            close = function() stream.close() end,
         }
      end }
   end
   package.preload["cjson"] = function()
      return { new = function()
         return { encode = py.encode, decode = py.decode, decode_invalid_numbers = function() end }
      end }
   end
   slurm = { SUCCESS = 0, log_info = py.log, log_error = py.log, log_user = py.tell }
end
"""


class Stream:
    """A Unix socket with LuaSocket's return values: a value, or nil and a word that names the error."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def settimeout(self, seconds: float) -> None:
        """Bound the next call, in seconds."""
        self._socket.settimeout(seconds)

    def connect(self, path: str) -> Any:  # noqa: ANN401 - what Lua takes: true, or nil and a word
        """Connect to the service."""
        try:
            self._socket.connect(path.encode("latin-1"))
        except OSError as error:
            return None, str(error)
        return True

    def send(self, line: str) -> Any:  # noqa: ANN401 - what Lua takes: a number, or nil, a word and a number
        """Send a whole line and return how many bytes that was."""
        try:
            self._socket.sendall(line.encode("latin-1"))
        except OSError:
            return None, "closed", 0
        return len(line)

    def receive(self, count: int) -> Any:  # noqa: ANN401 - what Lua takes: text, or nil, a word and what there is
        """Return `count` bytes, or what arrived before the timeout."""
        try:
            received = self._socket.recv(int(count))
        except OSError:
            return None, "timeout", ""
        text = received.decode("latin-1")
        return text if len(text) == count else (None, "timeout", text) if text else (None, "closed", "")

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class LuaHook:
    """The hook of lua/, loaded once; `submit` is slurm_job_submit on one job description."""

    def __init__(self, site_folder: Path) -> None:
        """Load the hook with the rightsizer_site.lua of `site_folder`; RightsizerError if there is no Lua."""
        try:
            from lupa import lua51
        except ImportError:
            raise RightsizerError(
                f"there is no Lua interpreter for the recorded demo; {install_with('demo')}"
            ) from None
        # Latin-1 preserves every byte in both directions, as C strings do.
        self._lua = lua51.LuaRuntime(unpack_returned_tuples=True, encoding="latin-1")
        self._messages: list[str] = []
        self._streams: list[Stream] = []
        lent = {
            "now": time.time,
            "sleep": time.sleep,
            "stream": self._new_stream,
            "encode": lambda table: json.dumps(_plain(table)),
            "decode": lambda line: self._lua.table_from(json.loads(line), recursive=True),
            "log": lambda *_words: None,
            "tell": lambda _format, text: self._messages.append(text),
        }
        self._lua.eval(_PRELOAD)(self._lua.table_from(lent))
        package = self._lua.globals().package
        package.path = f"{_as_bytes(site_folder)}/?.lua;{package.path}"
        self._lua.globals().dofile(_as_bytes(lua_folder() / HOOK_SCRIPT))

    def close(self) -> None:
        """Close the connection that the hook keeps open."""
        for stream in self._streams:
            stream.close()

    def _new_stream(self) -> Stream:
        self._streams.append(Stream())
        return self._streams[-1]

    def submit(self, fields: Mapping[str, object]) -> tuple[JobFields, str]:
        """Return the job description as the hook leaves it, and the message to its user."""
        self._messages.clear()
        description = self._lua.table_from(fields)
        self._lua.globals().slurm_job_submit(description, self._lua.table(), 0)
        return dict(description.items()), " ".join(self._messages)


def _as_bytes(path: Path) -> str:
    """Return a path in which each character stands for one byte, as this Lua takes and gives texts."""
    return os.fsencode(path).decode("latin-1")


def _plain(table: Any) -> object:  # noqa: ANN401 - a table of Lua's
    pairs = dict(table.items())
    return list(pairs.values()) if pairs and all(isinstance(key, int) for key in pairs) else pairs
