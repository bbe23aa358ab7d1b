"""The settings with which `rightsizer ingest` reads accounting, and `audit`, which reads the same again."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa

from accounting.frames import Records
from accounting.ingest.ingesting import source_of
from accounting.ingest.run import IngestSettings
from accounting.key_file import read_key
from accounting.presence import check_listable
from accounting.pseudonyms import Pseudonyms
from accounting.slurm.sacct_records import Metering
from accounting.slurm.windows import Fetched, Source
from models.past.families import GENERIC_NAMES
from models.past.job_names import without_machine_parts
from slurm_plugin.cli.ingest.feeding import feed_of
from slurm_plugin.config.secret_urls import slurmdbd_url
from slurm_plugin.config.settings import Config
from slurm_plugin.slurm.local_cluster import local_cluster
from slurm_plugin.slurm.metering import UnknownMeter, most_likely, read_metering


def settings_of(config: Config, key_file: Path | None = None) -> IngestSettings:
    """Return the settings of ingest; a key file from the command line overrides the configured one.

    Raises ConfigError if the key cannot be used.
    """
    configured = config.accounting.pseudonym_key
    key = key_file or (Path(configured) if configured else None)
    return IngestSettings(
        sacct=config.accounting.sacct,
        overlap_s=config.accounting.overlap_s,
        first_days=config.accounting.first_days,
        late_days=config.accounting.late_days,
        gpu_spool=Path(config.accounting.gpu_spool),
        journal=Path(config.service.journal),
        slurmdbd_url=slurmdbd_url(config),
        cluster=local_cluster(config),
        host=socket.gethostname(),
        metering=_metering(config),
        pseudonyms=None if key is None else pseudonyms_of(key),
        hand_on=feed_of(Path(config.models.directory)),
        advisor=Path(config.advisor.directory),
        recovery=Path(config.recovery.directory),
    )


def settings_anew(config: Config, before: IngestSettings) -> IngestSettings:
    """Return a running ingest's settings with what Slurm says now; what it does not answer stays as before."""
    return msgspec.structs.replace(
        before,
        cluster=local_cluster(config) or before.cluster,
        metering=most_likely(_metering(config), before.metering),
    )


def _metering(config: Config) -> Metering:
    return read_metering(config.accounting.sacct, config.accounting.cluster.lower())


def doubt(settings: IngestSettings) -> str:
    """Return a warning if it is not known which Slurm release and plugin measure jobs, else ''."""
    meter = settings.metering
    if not isinstance(meter, UnknownMeter):
        return ""
    return (
        f"cannot tell which Slurm release and plugin measure jobs: {meter.why}. Until that is known, "
        "memory that is only a bound may be labelled `sampled`. A later run that knows it labels the "
        f"jobs of the last {settings.overlap_s} s (accounting.overlap_s) anew; for older jobs give "
        "--since"
    )


def closed_folders(settings: IngestSettings) -> list[str]:
    """Return a warning for each folder that may not be listed: a search there finds no files, and no error."""
    holds = {
        "decisions": settings.journal,
        "the advisor's plans": settings.advisor,
        "recoveries": settings.recovery,
        "the use of GPUs": settings.gpu_spool,
    }
    return [
        f"{what} were not read: {folder}: {problem}; run this as a user who may list that folder"
        for what, folder in holds.items()
        if folder is not None and (problem := listing_problem(folder))
    ]


def listing_problem(folder: Path) -> str:
    """Return why an existing folder cannot be listed; '' if it can, or if it does not exist."""
    try:
        check_listable(folder)
    except NotADirectoryError:
        return ""
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def source_for(settings: IngestSettings, now_s: int) -> Source:
    """Return the source that the settings name; SlurmError if sacct cannot be asked.

    If it is not known how jobs are measured, the source's attempts will be read again by a later run.
    """
    source = source_of(settings, now_s)
    return not_remembered(source) if isinstance(settings.metering, UnknownMeter) else source


def not_remembered(source: Source) -> Source:
    """Return a source whose attempts have no digest, so that the store does not skip them when they come again."""

    def fetch(begin_s: int, end_s: int) -> Fetched:
        fetched = source(begin_s, end_s)
        return msgspec.structs.replace(
            fetched, records=lambda known: map(without_digests, fetched.records(known))
        )

    return fetch


def without_digests(records: Records) -> Records:
    """Return records without digests, so that they are not skipped when they come again."""
    jobs = records.jobs
    column = jobs.schema.get_field_index("digest")
    return replace(
        records, jobs=jobs.set_column(column, jobs.schema.field(column), pa.nulls(len(jobs), pa.int64()))
    )


def pseudonyms_of(key_file: Path) -> Pseudonyms:
    """Return the pseudonyms made with a site's key; ConfigError if the key cannot be used."""
    return Pseudonyms(read_key(key_file), GENERIC_NAMES, without_machine_parts)
