"""`rightsizer serve`."""

from __future__ import annotations

import asyncio
import logging
import sys

import click

from slurm_plugin.cli.output import config_option
from slurm_plugin.config import load_config


@click.command("serve")
@config_option
@click.option(
    "--clients", is_flag=True, help="Answer the users' own srun and salloc instead, on client.socket."
)
def serve(config_file: str | None, clients: bool) -> None:
    """Answer the Lua hook on a Unix socket, until stopped; a newly trained model is taken up by itself.

    \b
    Example:
      rightsizer serve --config /etc/rightsizer/rightsizer.toml
    """
    from slurm_plugin.service.clients import serve_clients
    from slurm_plugin.service.server import serve as serve_until_stopped

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    config = load_config(config_file)
    asyncio.run(serve_clients(config) if clients else serve_until_stopped(config))
