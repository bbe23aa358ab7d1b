"""What was observed of an installation, not yet judged. Only values; times are unix seconds."""

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
    """A kill switch. `thrown` is None if it may not be looked at. The hook ignores one that is for clients alone."""

    path: str
    thrown: bool | None
    clients_alone: bool = False


class SocketSeen(msgspec.Struct, frozen=True):
    """A socket, and the result of connecting to it; `command`, run by the systemd `unit`, answers there.

    `older` is true if that process was started before the present version was installed.
    """

    path: str
    answer: Answer
    command: str
    unit: str
    older: bool = False


class ModelSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The current model, which loads as the service loads it.

    `apart` has, for each growth model, the users that it did not learn from (models/training/weights.py). `closed`
    lists those of the folders of models and of their feed that this process may not write.
    """

    version: str
    created_s: int
    apart: Mapping[str, tuple[str, ...]]
    closed: tuple[str, ...] = ()


class Gate(msgspec.Struct, frozen=True):
    """The promotion gate's verdict on a model, from the model's card."""

    passed: bool
    reasons: tuple[str, ...]


class GrowthPart(msgspec.Struct, frozen=True):
    """The part of a growth model's health that is judged: its calibration by week."""

    dimension: str
    weeks: tuple[WeekCalibration, ...]


class CardPart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a model's card (models/judging/card.py) that is judged; reading it needs no training code."""

    last_end_s: int
    verdict: Gate | None
    growth: tuple[GrowthPart, ...]
    drift: dict[str, tuple[FeatureDrift, ...]]


class TrainingSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The newest training: its version and card. `made_current_by` is "" if it is not the current model.

    `is_another_current` says whether another model is current.
    """

    version: str
    card: CardPart
    made_current_by: str
    is_another_current: bool


class StoreSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The store: until when accounting was read, when its newest job ended, how far journal files were read, in bytes.

    Either time is None if there is none yet. The oldest job should have ended at most `keep_days` ago; 0 keeps
    all for ever. Attempts that ended before `outdated_until_s` may have labels of an earlier release. `latest_ran`
    counts the attempts that ended in the week up to the newest end and ran long enough to be measured;
    `latest_without_memory` of them have no memory figure. Of those with an admin comment, `latest_named` name a
    decision in it, `latest_unnamed` do not. `cluster` is the cluster looked at, '' for all. `closed` lists those of the
    store's files that this process may not read and write.
    """

    read_until_s: int | None
    newest_end_s: int | None
    journal_offsets: Mapping[str, int]
    oldest_end_s: int | None = None
    keep_days: int = 0
    outdated_until_s: int | None = None
    latest_ran: int = 0
    latest_without_memory: int = 0
    latest_named: int = 0
    latest_unnamed: int = 0
    cluster: str = ""
    closed: tuple[str, ...] = ()


class JournalSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The journal's folder: whether it exists and may be read and written, and its files' sizes in bytes."""

    folder: str
    is_there: bool
    is_ours: bool
    sizes: Mapping[str, int]


class AdvisorSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The advisor's folder: how many SiteFactors are in force, whether the lease has expired, and the last cycle.

    `sizes` has the sizes of its journal's files, in bytes.
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
    """The newest files of the journal: the number of linked lines, each broken place, and whether a key is used.

    `has_key`: a key is configured; `linked_by_key`: the newest lines are linked with it.
    """

    lines: int = 0
    broken: tuple[str, ...] = ()
    has_key: bool = False
    linked_by_key: bool = True


class RecoverySeen(msgspec.Struct, frozen=True, kw_only=True):
    """Recovery: its folder, whether any job is cut at all, and when its last round was (None: never).

    `begun_s` has, for each job whose original request is still to be restored, when that was begun.
    """

    folder: str
    enforced: bool
    period_s: int
    last_round_s: float | None = None
    begun_s: tuple[float, ...] = ()


class BrakesSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The pulled brakes, and the counts of all jobs since the brake on everything was last released.

    `lost` says why there are no counts. `closed` is the brakes' folder if it (or its parent, if it does not exist)
    may not be read and written, else "".
    """

    stopped: Stopped
    counts: Counts = Counts()
    lost: str = ""
    closed: str = ""


class HookSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The hook next to slurm.conf, in `folder`, compared with the `installed` one; times are times of change.

    `script` says whose job_submit.lua it is: ours, the site's own that calls us (own), one that does so without a
    pcall (unguarded) or not at all (foreign), or none (absent).
    `is_there` says whether any of our modules are there. `missing` lists absent modules that job_submit.lua or the
    present modules need; `differing` lists modules that differ from the installed ones, or are absent but not needed.
    `site` compares rightsizer_site.lua with what the configuration gives.
    `closed` lists those of these paths that exist but that `reader` may not read: SlurmUser or, if that cannot be told,
    '' for the user of this process. `closed_filter` is the path of cli_filter.lua if it is there and its mode, or that
    of a folder above, keeps users from reading it; else ''.
    """

    folder: str
    installed: str
    script: Literal["ours", "own", "unguarded", "foreign", "absent"]
    is_there: bool = True
    missing: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    site: Literal["current", "differs", "empty", "absent"]
    closed: tuple[str, ...] = ()
    reader: str = ""
    closed_filter: str = ""
    script_changed_s: float = 0.0
    modules_changed_s: float = 0.0


class AskedSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Whether slurmctld asks: the last decision, and how many jobs were submitted since `since_s`; None: not known.

    `breaker` is the line of slurmctld's log that says that the hook has stopped asking; "" if it never did, or asks
    again. `breaker_s` is when that line was written, None if its time has no known format. `closed` is a file of the
    journal that this process may not read, "" if there is none.
    """

    last_decision_s: float | None
    submitted: int | None
    since_s: int | None
    breaker: str
    breaker_s: float | None = None
    closed: str = ""


class SlurmSeen(msgspec.Struct, frozen=True, kw_only=True):
    """slurmctld's `settings`, by lower-case name; `hook` is None if slurmctld does not name its slurm.conf.

    `apart` lists those of the kill switch and the folders of brakes and models that lie on another file system than
    slurmctld's state, so that a backup controller's host does not share them. `hidden` lists nodes that slurmctld does
    not show while they are powered down. `unlent` says, for each lent partition into which no job can be let, why.
    `in_control` is the controller in control, if this is the host of another one; else ''.
    """

    settings: Mapping[str, str]
    apart: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    unlent: Mapping[str, str] = {}
    hook: HookSeen | None
    asked: AskedSeen
    in_control: str = ""


class LimitsSeen(msgspec.Struct, frozen=True):
    """Whether the service needs Slurm's limits before it cuts anything, and why some of them cannot be read now.

    In the partitions `without_default`, a job that asks for no memory gets all memory of its nodes.
    """

    needed: bool
    complaints: tuple[str, ...]
    without_default: tuple[str, ...]


class UnitSeen(msgspec.Struct, frozen=True):
    """A systemd unit of ours, its ActiveState, and when it last ended (unix seconds; None: not known)."""

    name: str
    state: str
    ended_s: float | None = None


class PathSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A path, and whether other users (neither its owner nor its group) can reach it and read or write it."""

    path: str
    kind: str
    others_read: bool
    others_write: bool


class DiskSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A file system and those of our folders that lie on it: what is free, and what was written there in a week.

    The size of the store's file is `store_bytes`, since the file grows differently. `free_inodes` is None if the file
    system has no fixed number of inodes.
    """

    folders: tuple[str, ...]
    free_bytes: int
    free_inodes: int | None
    week_bytes: int
    week_inodes: int
    store_bytes: int = 0


class OwnerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of ours, its owner (not root), and what in it belongs to root and is closed to that owner."""

    folder: str
    owner: str
    blocked: tuple[str, ...]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen at `now_s`; `hidden` says why sacct hides some jobs from this user (slurm/hidden_jobs.py)."""

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
    """Whether a kill switch keeps the hook itself, not only the clients, from asking."""
    return any(one.thrown and not one.clients_alone for one in seen.switches)


def unread_bytes(journal: JournalSeen | AdvisorSeen, store: StoreSeen) -> int:
    """Return how much of the journal, the service's or the advisor's, is not ingested yet, in bytes."""
    return sum(max(0, size - store.journal_offsets.get(name, 0)) for name, size in journal.sizes.items())
