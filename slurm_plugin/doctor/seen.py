"""What there is to see of an installation, before anybody judges it. Values alone; times are unix seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from models.drift import FeatureDrift, WeekCalibration

Answer = Literal["answers", "is not there", "is no socket", "is dead", "is full", "is not ours to ask"]


class Complaint(msgspec.Struct, frozen=True):
    """Why something could not be seen, and what to do about it."""

    what: str
    fix: str


class SwitchSeen(msgspec.Struct, frozen=True):
    """A kill switch; `thrown` is None where it may not be looked at."""

    path: str
    thrown: bool | None


class SocketSeen(msgspec.Struct, frozen=True):
    """A socket, and what came of connecting to it; `command`, of the systemd `unit`, is what answers there."""

    path: str
    answer: Answer
    command: str
    unit: str


class ModelSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The current model, which loads as the service loads it. `apart`: users by growth model (weights.py)."""

    version: str
    created_s: int
    apart: Mapping[str, tuple[str, ...]]


class Gate(msgspec.Struct, frozen=True):
    """What the promotion gate said of a model, as it stands in its card."""

    passed: bool
    reasons: tuple[str, ...]


class GrowthPart(msgspec.Struct, frozen=True):
    """Of a growth model's health, its calibration by week."""

    dimension: str
    weeks: tuple[WeekCalibration, ...]


class CardPart(msgspec.Struct, frozen=True, kw_only=True):
    """Of a model's card (models/card.py), what is looked at here: it is read without what trains."""

    last_end_s: int
    verdict: Gate | None
    growth: tuple[GrowthPart, ...]
    drift: dict[str, tuple[FeatureDrift, ...]]


class TrainingSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The newest training: its version, and its card. `made_current_by` is "" where it is not the current model."""

    version: str
    card: CardPart
    made_current_by: str


class StoreSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The store: until when accounting was read, when its newest job ended, how far journal files were read, in bytes.

    None is before the first.
    """

    read_until_s: int | None
    newest_end_s: int | None
    journal_offsets: Mapping[str, int]


class JournalSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The journal's folder: whether it is there and may be read and written, and its files' sizes in bytes."""

    folder: str
    is_there: bool
    is_ours: bool
    sizes: Mapping[str, int]


class AdvisorSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The advisor's folder: how many of its SiteFactors are in force, whether its lease is over, its last cycle (unix).

    `sizes` are those of its journal's files, in bytes.
    """

    folder: str
    period_s: int
    is_there: bool = False
    is_ours: bool = False
    factors: int = 0
    lease_is_over: bool = True
    last_cycle_s: float | None = None
    sizes: Mapping[str, int] = {}


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen at `now_s`."""

    now_s: float
    configuration: str
    switches: tuple[SwitchSeen, ...]
    sockets: tuple[SocketSeen, ...]
    model: ModelSeen | Complaint
    training: TrainingSeen | Complaint
    store: StoreSeen | Complaint
    journal: JournalSeen | Complaint
    advisor: AdvisorSeen | Complaint


def unread_bytes(journal: JournalSeen, store: StoreSeen) -> int:
    """Return how much of the journal is not ingested yet, in bytes."""
    return _unread(journal.sizes, store)


def unread_cycles(advisor: AdvisorSeen, store: StoreSeen) -> int:
    """Return how much of the advisor's journal is not ingested yet, in bytes."""
    return _unread(advisor.sizes, store)


def _unread(sizes: Mapping[str, int], store: StoreSeen) -> int:
    return sum(max(0, size - store.journal_offsets.get(name, 0)) for name, size in sizes.items())
