"""Look at an installation without changing it; what cannot be seen becomes a complaint, never an exception."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from accounting.damage import UNREADABLE
from accounting.errors import ModelError, RightsizerError
from accounting.presence import check_listable, is_there
from slurm_plugin.config.secret_urls import store_url
from slurm_plugin.config.settings import Config
from slurm_plugin.doctor.look_advisor import look_at_advisor
from slurm_plugin.doctor.look_audit import look_at_chains, look_at_recovery
from slurm_plugin.doctor.look_brakes import look_at_brakes
from slurm_plugin.doctor.look_disk import closed_files, closed_folders, look_at_disks, look_at_owners
from slurm_plugin.doctor.look_installation import look_at_limits, look_at_paths, look_at_slurm, look_at_units
from slurm_plugin.doctor.look_sockets import look_at_sockets
from slurm_plugin.doctor.seen import (
    CardPart,
    Complaint,
    JournalSeen,
    ModelSeen,
    Seen,
    StoreSeen,
    SwitchSeen,
    TrainingSeen,
)
from slurm_plugin.slurm.hidden_jobs import hidden_jobs
from slurm_plugin.switches import switches

Found = TypeVar("Found")


def look(
    config: Config, configuration: str | Complaint, now_s: float, config_file: str | None = None
) -> Seen:
    """Return what there is to see at `now_s` (unix seconds); `configuration` says where `config` comes from.

    `config_file` is the file that was named, None for the usual one.
    """
    slurm, accounting = _or_complaint(lambda: look_at_slurm(config)), config.accounting
    told = "" if isinstance(slurm, Complaint) else slurm.settings.get("clustername", "")
    # As in local_cluster.py: slurmdbd, and so the store, has clusters' names in lower case only.
    cluster = (accounting.cluster or told).lower()
    return Seen(
        now_s=now_s,
        configuration=configuration,
        switches=tuple(
            SwitchSeen(str(path), _exists(path), clients_alone=path != Path(config.hook.kill_switch))
            for path in switches(config)
        ),
        sockets=look_at_sockets(config),
        slurm=slurm,
        limits=look_at_limits(config),
        units=_or_complaint(look_at_units),
        paths=look_at_paths(config, config_file),
        model=_or_complaint(lambda: _model(config)),
        training=_or_complaint(lambda: _training(Path(config.models.directory))),
        store=_or_complaint(lambda: _store(config, cluster, now_s)),
        journal=_or_complaint(lambda: _journal(Path(config.service.journal))),
        advisor=_or_complaint(lambda: look_at_advisor(config.advisor)),
        chains=_or_complaint(lambda: look_at_chains(config)),
        recovery=_or_complaint(lambda: look_at_recovery(config, now_s)),
        brakes=_or_complaint(lambda: look_at_brakes(config.brakes)),
        disks=_or_complaint(lambda: look_at_disks(config, now_s)),
        owners=_or_complaint(lambda: look_at_owners(config)),
        hidden="" if accounting.slurmdbd_url or accounting.slurmdbd_url_file else hidden_jobs(),
    )


def complaint_of(error: RightsizerError) -> Complaint:
    """Split the message of an expected failure into its two halves: what is wrong, and what to do."""
    what, _, fix = str(error).rpartition("; ")
    return Complaint(what, fix) if what else Complaint(fix, "")


def _or_complaint(find: Callable[[], Found]) -> Found | Complaint:
    try:
        return find()
    except RightsizerError as error:
        return complaint_of(error)
    except OSError as error:
        return Complaint(
            f"cannot read {error.filename}: {error.strerror}",
            "run this as the service's user, or correct the permissions",
        )


def _exists(path: Path) -> bool | None:
    try:
        return is_there(path)
    except OSError:
        return None


def _model(config: Config) -> ModelSeen:
    from models.versions.artefact import read_manifest
    from models.versions.registry import current_folder, load_version
    from slurm_plugin.service.decide import chain_settings_of

    directory = Path(config.models.directory)
    check_listable(directory)
    folder = current_folder(directory)
    load_version(directory, folder.name, chain_settings_of(config))
    manifest = read_manifest(folder)
    apart: dict[str, tuple[str, ...]] = {name: known.apart for name, known in manifest.growth.items()}
    return ModelSeen(
        version=manifest.version,
        created_s=manifest.created_s,
        apart=apart,
        closed=closed_folders(directory),
    )


def _training(directory: Path) -> TrainingSeen:
    from models.versions.artefact import CARD_JSON, read_card
    from models.versions.registry import known_succession, versions

    check_listable(directory)
    there = versions(directory)
    if not there:
        raise ModelError(f"there is no model in {directory}; run `rightsizer train` first")
    content = read_card(directory / there[-1], CARD_JSON)
    try:
        card = msgspec.json.decode(content, type=CardPart)
    except UNREADABLE as error:
        raise ModelError(
            f"the card of model {there[-1]} was written by another version: {error}; run `rightsizer train`"
        ) from None
    held = known_succession(directory).held
    is_current = bool(held) and held[-1].version == there[-1]
    by = held[-1].by if is_current else None
    made_current_by = f"{by.who} ({by.why})" if by else "a change of the link" if is_current else ""
    return TrainingSeen(
        version=there[-1],
        card=card,
        made_current_by=made_current_by,
        is_another_current=bool(held) and not is_current,
    )


def _store(config: Config, cluster: str, now_s: float) -> StoreSeen:
    """Return what the store has of a cluster ('' for any), and how far it has read the journals on this host."""
    from accounting.ingest.ingesting import SACCT
    from accounting.ingest.label_marks import OUTDATED, outdated_until_s
    from accounting.journal.advice import CYCLES
    from accounting.journal.files import PATTERN
    from accounting.journal.marks import offsets_of
    from accounting.slurm.sacct_groups import LABELS
    from accounting.store.database import open_store
    from accounting.store.records import (
        earliest_end_s,
        latest_end_s,
        latest_measured,
        latest_named,
        read_marks,
        windows_read,
    )

    engine = open_store(store_url(config))
    journals = (*Path(config.service.journal).glob(PATTERN), *Path(config.advisor.directory).glob(CYCLES))
    try:
        with engine.connect() as connection:
            read_s, labelled_s, outdated_s = (
                windows.get(cluster, windows.get("")) if cluster else max(windows.values(), default=None)
                for windows in (windows_read(connection, source) for source in (SACCT, LABELS, OUTDATED))
            )
            newest_s = latest_end_s(connection, int(now_s), cluster)
            latest = latest_measured(connection, newest_s or 0, cluster)
            named = latest_named(connection, newest_s or 0, cluster)
            return StoreSeen(
                read_until_s=read_s,
                newest_end_s=newest_s,
                journal_offsets=offsets_of(journals, read_marks(connection)),
                oldest_end_s=earliest_end_s(connection),
                keep_days=config.store.keep_days,
                outdated_until_s=outdated_until_s(read_s, labelled_s, outdated_s),
                latest_ran=latest.attempts,
                latest_without_memory=latest.without_memory,
                latest_named=named.named,
                latest_unnamed=named.unnamed,
                cluster=cluster,
                closed=closed_files(config),
            )
    finally:
        engine.dispose()


def _journal(folder: Path) -> JournalSeen:
    from accounting.journal.files import PATTERN

    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return JournalSeen(folder=str(folder), is_there=False, is_ours=False, sizes={})
    is_ours = os.access(folder, os.R_OK | os.W_OK | os.X_OK)
    files = list(folder.glob(PATTERN)) if is_ours else []
    return JournalSeen(
        folder=str(folder),
        is_there=True,
        is_ours=is_ours and all(os.access(file, os.R_OK) for file in files),
        sizes={file.name: file.stat().st_size for file in files},
    )
