"""Faults of the work apart from submissions: the store and ingest, recovery, the advisor."""

from __future__ import annotations

from tests.cluster.fault import Fault
from tests.cluster.journal_breakages import why_no_mount
from tests.cluster.resource_breakages import why_no_memory_group
from tests.cluster.upkeep_breakages import (
    advise_killed,
    damaged_journal,
    ingest_killed,
    kill_recover,
    kill_slurmctld_below_recover,
    postgresql_restarted,
    read_only_store,
    recovering,
    slurmdbd_away_from_ingest,
    store_disk_full,
    store_locked,
    store_out_of_inodes,
    why_no_postgresql,
)

UPKEEP_FAULTS = (
    Fault(
        "store's disk full",
        "ingest on a full tmpfs, then on one with room: its store is whole",
        store_disk_full,
        "cut",
        needs=why_no_mount,
        is_long=True,
    ),
    Fault(
        "store's disk out of inodes",
        "ingest where no write-ahead log can be made, then again: its store is whole",
        store_out_of_inodes,
        "cut",
        needs=why_no_mount,
        is_long=True,
    ),
    Fault(
        "read-only store",
        "ingest on a tmpfs remounted read-only, then again: its store is whole",
        read_only_store,
        "cut",
        needs=why_no_mount,
        is_long=True,
    ),
    Fault(
        "store locked",
        "another process holds SQLite's lock: ingest waits, its store is whole",
        store_locked,
        "cut",
        is_long=True,
    ),
    Fault(
        "PostgreSQL restarted",
        "SIGINT, started, SIGQUIT, started, under ingest --watch: its store is whole",
        postgresql_restarted,
        "cut",
        needs=why_no_postgresql,
        is_long=True,
    ),
    Fault(
        "ingest killed",
        "ingest --watch killed at four random moments: its store is whole",
        ingest_killed,
        "cut",
        is_long=True,
    ),
    Fault(
        "slurmdbd killed under ingest",
        "SIGKILL, then started again, under ingest --watch: its store is whole",
        slurmdbd_away_from_ingest,
        "cut",
        is_long=True,
    ),
    Fault(
        "damaged journal",
        "garbage and half a line between decisions: ingest takes all others",
        damaged_journal,
        "cut",
        is_long=True,
    ),
    Fault(
        "recover killed",
        "recover --watch killed at four random moments: jobs killed for memory come back once, as asked",
        recovering(kill_recover),
        "cut",
        needs=why_no_memory_group,
        is_long=True,
    ),
    Fault(
        "slurmctld killed under recover",
        "SIGKILL as jobs killed for memory are brought back, then started: they come back once, as asked",
        recovering(kill_slurmctld_below_recover),
        "cut",
        needs=why_no_memory_group,
        is_long=True,
    ),
    Fault(
        "advise killed",
        "advise --watch killed at five random moments: --undo leaves no SiteFactor, no job is lost",
        advise_killed,
        "cut",
        is_long=True,
    ),
)
