"""Where the kill switches are. It looks at none of them."""

from __future__ import annotations

from pathlib import Path

from slurm_plugin.config import Config


def switches(config: Config) -> list[Path]:
    """Return the files that stop everything; the clients' one only where clients ask at all."""
    return [
        Path(config.hook.kill_switch),
        *([Path(config.client.kill_switch)] if config.client.socket else []),
    ]
