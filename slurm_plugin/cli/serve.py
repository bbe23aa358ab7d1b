"""`rightsizer serve`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import click

from slurm_plugin.cli.output import config_option
from slurm_plugin.config.file import load_config
from slurm_plugin.log_lines import log_to_stderr


@click.command("serve")
@config_option
@click.option(
    "--clients", is_flag=True, help="Answer the srun and salloc of users instead, on client.socket."
)
def serve(config_file: str | None, clients: bool) -> None:
    """Answer the Lua hook on a Unix socket, until stopped.

    A newly trained model is used as soon as it is current, without a restart. On SIGHUP the configuration is read
    again; if the new one is invalid it is refused, and the old one stays in use.

    \b
    Example:
      rightsizer serve --config /etc/rightsizer/rightsizer.toml
    """
    with hangups_kept():
        from slurm_plugin.service.clients import serve_clients
        from slurm_plugin.service.server import serve as serve_until_stopped

        log_to_stderr()
        config = load_config(config_file)
        serve_all = serve_clients if clients else serve_until_stopped
        asyncio.run(serve_all(config, lambda: load_config(config_file)))


@contextmanager
def hangups_kept() -> Iterator[None]:
    """Block SIGHUP until service/reloading.py takes it over: it would end a process that is still importing."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
