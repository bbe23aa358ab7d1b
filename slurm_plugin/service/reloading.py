"""SIGHUP rereads the configuration. A wrong one is refused and logged, and the old one stays in use."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping

from accounting.errors import RightsizerError
from slurm_plugin.config.settings import Config
from slurm_plugin.slurm.groups import members_of_rules

log = logging.getLogger(__name__)

# What a running service holds open, by section and key: a change takes effect at the next start.
FIXED = (
    ("service", "socket"),
    ("service", "socket_mode"),
    ("service", "users"),
    ("service", "journal"),
    ("service", "journal_key"),
    ("client", "socket"),
    ("models", "directory"),
    ("brakes", "directory"),
    ("brakes", "most_excess"),
)

Groups = Mapping[str, frozenset[str]]
Apply = Callable[[Config, Groups], None]


class Hangups:
    """Receives SIGHUP from its creation on, and one that was blocked before, so that none ends a starting service."""

    def __init__(self, load: Callable[[], Config]) -> None:
        self._load = load
        self._heard = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._heard.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})

    async def follow(self, in_use: Config, apply: Apply) -> None:
        """Read and `apply` the configuration at each SIGHUP; never returns."""
        while True:
            await self._heard.wait()
            self._heard.clear()
            try:
                # In a thread: the directory of groups may be slow.
                config, groups = await asyncio.to_thread(self._read)
            except RightsizerError as error:
                log.error("the new configuration is refused, the old one stays in use: %s", error)  # noqa: TRY400
                continue
            for key in changed(in_use, config):
                log.warning("%s has changed, which counts from the next start of the service on", key)
            apply(config, groups)
            log.info("the configuration was read anew, mode %s", config.mode)

    def _read(self) -> tuple[Config, Groups]:
        config = self._load()
        return config, members_of_rules(config)


def changed(in_use: Config, config: Config) -> list[str]:
    """List the keys that differ and take effect only at a start."""
    return [
        f"{section}.{key}"
        for section, key in FIXED
        if getattr(getattr(in_use, section), key) != getattr(getattr(config, section), key)
    ]
