"""The description of a sandbox, kept in its folder; the presence of this file marks a folder as a sandbox."""

from __future__ import annotations

from typing import Literal

import msgspec

from accounting.errors import SandboxError
from slurm_plugin.sandbox.enforcement import Enforcement
from slurm_plugin.sandbox.files import write_file
from slurm_plugin.sandbox.layout import Layout
from slurm_plugin.sandbox.slurm_conf import Ports


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What `up` made; `slurm_prefix` is absolute, `user_id` is the user who started the processes.

    `slurm_user` is SlurmUser if that is another user, else ''.
    """

    format: Literal[1] = 1
    nodes: tuple[str, ...]
    ports: Ports
    release: str
    slurm_prefix: str | None
    hook: bool
    serve: bool
    user_id: int
    enforcement: Enforcement
    slurm_user: str = ""
    clients: bool = False


def write_manifest(manifest: Manifest, layout: Layout) -> None:
    """Replace the folder's manifest."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2).decode()
    write_file(layout.manifest, text + "\n", 0o644)


def read_manifest(layout: Layout) -> Manifest:
    """Read the folder's manifest; SandboxError if it is missing or damaged."""
    try:
        return msgspec.json.decode(layout.manifest.read_bytes(), type=Manifest)
    except OSError as error:
        raise SandboxError(
            f"{layout.root} is not a sandbox ({error.strerror}); "
            f"make one with `rightsizer sandbox up --dir {layout.root}`"
        ) from None
    except msgspec.DecodeError as error:
        raise SandboxError(
            f"{layout.manifest} is damaged ({error}); stop the sandbox's processes by hand, and remove "
            f"{layout.root}"
        ) from None
