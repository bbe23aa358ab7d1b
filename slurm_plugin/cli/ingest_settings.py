"""What reading accounting is told: by `rightsizer ingest`, and by `audit`, which asks Slurm the same again."""

from __future__ import annotations

import socket
from pathlib import Path

from accounting.ingest import IngestSettings
from accounting.key_file import read_key
from accounting.pseudonyms import Pseudonyms
from models.families import GENERIC_NAMES
from models.job_names import without_machine_parts
from slurm_plugin.cli.feeding import feed_of
from slurm_plugin.config import Config
from slurm_plugin.secret_urls import slurmdbd_url
from slurm_plugin.slurm.local_cluster import local_cluster
from slurm_plugin.slurm.metering import read_metering


def settings_of(config: Config, key_file: Path | None = None) -> IngestSettings:
    """Return what ingest is told; a key on the command line comes before the configured one.

    ConfigError where the key cannot be used.
    """
    configured = config.accounting.pseudonym_key
    key = key_file or (Path(configured) if configured else None)
    return IngestSettings(
        sacct=config.accounting.sacct,
        overlap_s=config.accounting.overlap_s,
        first_days=config.accounting.first_days,
        gpu_spool=Path(config.accounting.gpu_spool),
        journal=Path(config.service.journal),
        slurmdbd_url=slurmdbd_url(config),
        cluster=local_cluster(config),
        host=socket.gethostname(),
        metering=read_metering(config.accounting.sacct),
        pseudonyms=None if key is None else pseudonyms_of(key),
        hand_on=feed_of(Path(config.models.directory)),
        advisor=Path(config.advisor.directory),
        recovery=Path(config.recovery.directory),
    )


def pseudonyms_of(key_file: Path) -> Pseudonyms:
    """Return the pseudonyms of a site's key; ConfigError where the key cannot be used."""
    return Pseudonyms(read_key(key_file), GENERIC_NAMES, without_machine_parts)
