"""Where the kill switches are, and how one is thrown. It looks at none of them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from accounting.owned_files import make_folder, open_owned
from slurm_plugin.config.settings import Config


def switches(config: Config) -> list[Path]:
    """Return the files that stop everything; the clients' one only where clients ask at all."""
    return [
        Path(config.hook.kill_switch),
        *([Path(config.client.kill_switch)] if config.client.socket else []),
    ]


def throw(switch: Path) -> None:
    """Make a kill switch; one that is there stays. OSError where that fails.

    It counts only where the hook and the users' own commands can open it, so everybody may, whatever the umask.
    """
    make_folder(switch.parent, 0o755)
    with contextlib.suppress(FileExistsError):
        handle = open_owned(switch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.fchmod(handle, 0o644)
        finally:
            os.close(handle)
