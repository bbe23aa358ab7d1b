"""What there is to see of an installation, before anybody judges it. Values alone; times are unix seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from models.judging.drift import FeatureDrift, WeekCalibration
from slurm_plugin.brakes.pulled import Stopped
from slurm_plugin.brakes.tallies import Counts

Answer = Literal[
    "answers",
    "does not exist",
    "is not a socket",
    "has no listener",
    "has a full queue",
    "does not admit this user",
]


class Complaint(msgspec.Struct, frozen=True):
    """Why something could not be seen, and what to do about it."""

    what: str
    fix: str


class SwitchSeen(msgspec.Struct, frozen=True):
    """A kill switch; `thrown` is None where it may not be looked at. The hook does not look at the clients' own."""

    path: str
    thrown: bool | None
    clients_alone: bool = False


class SocketSeen(msgspec.Struct, frozen=True):
    """A socket, and what came of connecting to it; `command`, of the systemd `unit`, is what answers there.

    `older` is whether that began before what is installed now was installed.
    """

    path: str
    answer: Answer
    command: str
    unit: str
    older: bool = False


class ModelSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The current model, which loads as the service loads it. `apart`: users by growth model (training/weights.py).

    `closed` are those of the folders of models and of their feed that whoever asks may not write.
    """

    version: str
    created_s: int
    apart: Mapping[str, tuple[str, ...]]
    closed: tuple[str, ...] = ()


class Gate(msgspec.Struct, frozen=True):
    """What the promotion gate said of a model, as it stands in its card."""

    passed: bool
    reasons: tuple[str, ...]


class GrowthPart(msgspec.Struct, frozen=True):
    """Of a growth model's health, its calibration by week."""

    dimension: str
    weeks: tuple[WeekCalibration, ...]


class CardPart(msgspec.Struct, frozen=True, kw_only=True):
    """Of a model's card (models/judging/card.py), what is looked at here: it is read without what trains."""

    last_end_s: int
    verdict: Gate | None
    growth: tuple[GrowthPart, ...]
    drift: dict[str, tuple[FeatureDrift, ...]]


class TrainingSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The newest training: its version, and its card. `made_current_by` is "" where it is not the current model.

    `is_another_current` is whether then another one is.
    """

    version: str
    card: CardPart
    made_current_by: str
    is_another_current: bool


class StoreSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The store: until when accounting was read, when its newest job ended, how far journal files were read, in bytes.

    None is before the first. Its oldest job should have ended no more than `keep_days` ago; 0 is for ever. Labels of
    what ended before `outdated_until_s` may be an earlier release's. Of `latest_ran` attempts that ended in the week
    before the newest did, and ran long enough for it, `latest_without_memory` show no memory. `cluster` is whose
    they are, '' for all; `closed` are those of its files that whoever asks may not write.
    """

    read_until_s: int | None
    newest_end_s: int | None
    journal_offsets: Mapping[str, int]
    oldest_end_s: int | None = None
    keep_days: int = 0
    outdated_until_s: int | None = None
    latest_ran: int = 0
    latest_without_memory: int = 0
    cluster: str = ""
    closed: tuple[str, ...] = ()


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


class ChainSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The newest files of the journal: linked lines, what is broken where, and whether the newest line has the key."""

    lines: int = 0
    broken: tuple[str, ...] = ()
    has_key: bool = False
    linked_by_key: bool = True


class RecoverySeen(msgspec.Struct, frozen=True, kw_only=True):
    """Recovery: its folder, whether any job is cut at all, and when its last round was (unix s; None: never).

    `begun_s` is since when each job is to be given back what it asked for, and has not got it yet.
    """

    folder: str
    enforced: bool
    period_s: int
    last_round_s: float | None = None
    begun_s: tuple[float, ...] = ()


class BrakesSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What is stopped, and what was counted of all jobs since everything was last let go; `lost` says why not.

    `closed` is the folder where it, or while it is not there its own folder, may not be read and written; else "".
    """

    stopped: Stopped
    counts: Counts = Counts()
    lost: str = ""
    closed: str = ""


class HookSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The hook beside slurm.conf, in `folder`, compared with what is `installed`; times are those of changes (unix).

    `script` says whose job_submit.lua it is: ours, the site's own that calls us, one that does so without a pcall
    (unguarded) or not at all (foreign), or none.
    `is_there` is whether it has any modules. `missing` are those that these, or job_submit.lua, cannot do without;
    `differing` are others than the installed ones, or not there. `site` is rightsizer_site.lua, as the configuration
    would have it.
    `closed` are those paths of it that are there, and may not be read by whoever asks.
    """

    folder: str
    installed: str
    script: Literal["ours", "own", "unguarded", "foreign", "absent"]
    is_there: bool = True
    missing: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    site: Literal["current", "differs", "absent"]
    closed: tuple[str, ...] = ()
    script_changed_s: float = 0.0
    modules_changed_s: float = 0.0


class AskedSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Whether slurmctld asks: the last decision, and how many jobs it was given since when; None where not known.

    `breaker` is the line of its log that says that it has left the service alone; "" where there is none since.
    `breaker_s` is when it was written, None where that is in no form that is known. `closed` is a file of the journal
    that whoever asks may not read, "" where there is none.
    """

    last_decision_s: float | None
    submitted: int | None
    since_s: int | None
    breaker: str
    breaker_s: float | None = None
    closed: str = ""


class SlurmSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What slurmctld says of its `settings`, by lower-case name; `hook` is None where it names no slurm.conf.

    `apart` are those of the paths that stop or brake us which lie on another filesystem than slurmctld's own state, so
    that a backup controller's host has others. `hidden` are nodes that it shows to nobody while they are powered down.
    `unlent` has by lent partition why nobody can be let into it.
    """

    settings: Mapping[str, str]
    apart: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    unlent: Mapping[str, str] = {}
    hook: HookSeen | None
    asked: AskedSeen


class LimitsSeen(msgspec.Struct, frozen=True):
    """Whether the service cuts nothing without Slurm's limits, and why some of them cannot be read now.

    In the partitions `without_default` a job that asks for no memory gets all that its nodes have.
    """

    needed: bool
    complaints: tuple[str, ...]
    without_default: tuple[str, ...]


class UnitSeen(msgspec.Struct, frozen=True):
    """A unit of ours, its ActiveState in systemd's words, and when it ended last (unix seconds; None: not known)."""

    name: str
    state: str
    ended_s: float | None = None


class PathSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What others than its user and group may do with a path that they can reach."""

    path: str
    kind: str
    others_read: bool
    others_write: bool


class DiskSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A file system with those of our folders that lie there: what is free, and what was written to them in a week.

    `store_bytes` is the store's file, which grows otherwise. Without a fixed number of inodes None are free.
    """

    folders: tuple[str, ...]
    free_bytes: int
    free_inodes: int | None
    week_bytes: int
    week_inodes: int
    store_bytes: int = 0


class OwnerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of ours, its owner who is not root, and what of root's lies in it that is closed to him."""

    folder: str
    owner: str
    blocked: tuple[str, ...]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen at `now_s`; `hidden` is why sacct shows whoever asks not all jobs (slurm/hidden_jobs.py)."""

    now_s: float
    configuration: str | Complaint
    switches: tuple[SwitchSeen, ...]
    sockets: tuple[SocketSeen, ...]
    slurm: SlurmSeen | Complaint
    limits: LimitsSeen
    units: tuple[UnitSeen, ...] | Complaint
    paths: tuple[PathSeen, ...]
    model: ModelSeen | Complaint
    training: TrainingSeen | Complaint
    store: StoreSeen | Complaint
    journal: JournalSeen | Complaint
    advisor: AdvisorSeen | Complaint
    chains: ChainSeen | Complaint
    recovery: RecoverySeen | Complaint
    brakes: BrakesSeen | Complaint
    disks: tuple[DiskSeen, ...] | Complaint
    owners: tuple[OwnerSeen, ...] | Complaint
    hidden: str = ""


def is_hook_stopped(seen: Seen) -> bool:
    """Whether a kill switch keeps the hook from asking."""
    return any(one.thrown and not one.clients_alone for one in seen.switches)


def unread_bytes(journal: JournalSeen, store: StoreSeen) -> int:
    """Return how much of the journal is not ingested yet, in bytes."""
    return _unread(journal.sizes, store)


def unread_cycles(advisor: AdvisorSeen, store: StoreSeen) -> int:
    """Return how much of the advisor's journal is not ingested yet, in bytes."""
    return _unread(advisor.sizes, store)


def _unread(sizes: Mapping[str, int], store: StoreSeen) -> int:
    return sum(max(0, size - store.journal_offsets.get(name, 0)) for name, size in sizes.items())
