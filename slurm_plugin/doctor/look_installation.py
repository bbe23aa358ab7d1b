"""Look at the service's surroundings: slurmctld's settings and hook, systemd's units, and file permissions."""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

from accounting.decisions.decision import decode_decision
from accounting.errors import SlurmError
from accounting.labels.quality import release_of
from accounting.units import whole
from slurm_plugin.config.file import config_path
from slurm_plugin.config.hook import FILTER_SCRIPT, HOOK_SCRIPT, hook_settings, lua_folder
from slurm_plugin.config.settings import Config
from slurm_plugin.doctor.look_disk import state_folders, store_file
from slurm_plugin.doctor.look_unreadable import unreadable
from slurm_plugin.doctor.seen import AskedSeen, HookSeen, LimitsSeen, PathSeen, SlurmSeen, UnitSeen
from slurm_plugin.policy.facts import SiteFacts, gives_all_memory
from slurm_plugin.slurm.command import UNIX_TIMES, run
from slurm_plugin.slurm.facts import gather
from slurm_plugin.slurm.hostlist import expand_nodes
from slurm_plugin.slurm.node_words import words_of

SITE_FILE = "rightsizer_site.lua"
MODULES = "rightsizer"
# The name by which a site's own job_submit.lua calls us.
OUR_CALL = "rightsizer.hook"
# The call must be inside this function, so that our modules may be missing.
GUARD = "pcall"
# The module that is called, and how modules name each other.
HOOK_MODULE = "hook.lua"
_NEEDS = re.compile(rb'require\("rightsizer\.(\w+)"\)')
UNITS = ("ingest.timer", "ingest-watch.service", "train.timer", "ingest.service", "train.service")
# When a unit became inactive or failed, in microseconds of the monotonic clock: the format of calendar times varies.
ENDED = "InactiveEnterTimestampMonotonic"
SHOWS_CLOUD_SINCE = (23, 2)
# How many bytes are read from the end of slurmctld's log, and of a journal file.
LOG_TAIL_BYTES, JOURNAL_TAIL_BYTES = 2**20, 2**16
FAILS, ANSWERS = "rightsizer: the service fails", "rightsizer: the service answers again"
# SlurmUser as `scontrol show config` shows it: a name and its number.
_USER = re.compile(r"([^()]+)\((\d+)\)")
_SETTING = re.compile(r"^(\S+)\s*=\s*(.*?)\s*$", re.MULTILINE)
# Printed after the settings: each controller, in the order in which they take over.
_CONTROLLER = re.compile(r"^Slurmctld\(\w+\) at (\S+) is (UP|DOWN)$", re.MULTILINE)
_SINCE = re.compile(r"^Data since\s.*\((\d+)\)", re.MULTILINE)
_SUBMITTED = re.compile(r"^Jobs submitted:\s*(\d+)", re.MULTILINE)
# LogTimeFormat's iso8601 and rfc5424, with or without milliseconds; the other formats lack the year or add a thread.
_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?(?:[+-]\d\d:\d\d)?)\]")
# A password in a URL: text between the second colon and the @, or a parameter of the database driver.
_PASSWORD = re.compile(r"(?i)://[^/\s:@]*:[^@\s]+@|[?&](?:password|passwd|sslpassword)=[^&\s]")


def look_at_slurm(config: Config) -> SlurmSeen:
    """Return slurmctld's settings, its hook, and whether it asks; SlurmError if slurmctld does not answer."""
    told = run("scontrol", "show", "config", variables=UNIX_TIMES)
    settings = {name.lower(): value for name, value in _SETTING.findall(told)}
    conf = settings.get("slurm_conf", "")
    return SlurmSeen(
        settings=settings,
        apart=_apart(settings.get("statesavelocation", ""), config),
        hidden=hidden_nodes() if may_hide_nodes(settings) else (),
        unlent=look_at_lent(config) if config.lent_partitions else {},
        hook=look_at_hook(Path(conf).parent, config, _slurm_user(settings)) if conf else None,
        asked=look_at_questions(config, settings.get("slurmctldlogfile", "")),
        in_control=in_control_elsewhere(told, socket.gethostname()),
    )


def in_control_elsewhere(told: str, host: str) -> str:
    """Return the controller that is in control if this `host` is another controller; else, or if not known, ''.

    `told` is what `scontrol show config` prints. The first controller that is up is in control: a backup gives
    control back, and a primary ends when a backup is told to take over.
    """
    controllers = _CONTROLLER.findall(told)
    up = next((name for name, state in controllers if state == "UP"), "")
    here = [name for name, _ in controllers if name.partition(".")[0] == host.partition(".")[0]]
    return up if here and up not in here else ""


def look_at_lent(config: Config) -> dict[str, str]:
    """Return why no job can be let in, by lent partition, for those that are closed; SlurmError as `look_at_slurm`."""
    from slurm_plugin.advisor.lent import why_not_lent
    from slurm_plugin.slurm.backends import open_queue

    snapshot = open_queue(config.advisor.queue).read()
    found = {one.name: why_not_lent(one.name, snapshot) for one in config.lent_partitions}
    return {name: why for name, why in found.items() if why}


def may_hide_nodes(settings: Mapping[str, str]) -> bool:
    """Whether Slurm hides cloud nodes that are powered down: before 23.02 it does, unless PrivateData has cloud."""
    release = release_of(settings.get("slurm_version", ""))
    told = "cloud" in settings.get("privatedata", "").split(",")
    saves_power = settings.get("suspendprogram", "(null)") != "(null)"
    return saves_power and not told and release is not None and release < SHOWS_CLOUD_SINCE


def hidden_nodes() -> tuple[str, ...]:
    """Return the nodes of partitions that `scontrol show node` does not show; SlurmError as `look_at_slurm`."""
    partitions, nodes = (
        [words_of(line) for line in run("scontrol", "--all", "--oneliner", "show", kind).splitlines()]
        for kind in ("partition", "node")
    )
    named = {name for words in partitions for name in expand_nodes(words.get("Nodes", ""))}
    return tuple(sorted(named - {words.get("NodeName") for words in nodes}))


def _apart(shared: str, config: Config) -> tuple[str, ...]:
    """Return which of kill switch, brakes' and models' folder is not on the file system of `shared`; all if unknown."""
    paths = (config.hook.kill_switch, config.brakes.directory, config.models.directory)
    there = _device(Path(shared)) if shared else None
    return tuple(path for path in paths if there is None or _device(Path(path)) != there)


def _device(path: Path) -> int | None:
    """Return the file system of a path, or of its nearest parent that exists; None if it is hidden."""
    for place in (path, *path.parents):
        try:
            return place.stat().st_dev
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None


def _compare_site(found: bytes | None, wanted: str) -> Literal["current", "differs", "empty", "absent"]:
    if found is None:
        return "absent"
    if not found.strip():
        return "empty"
    return "current" if found == wanted.encode() else "differs"


def _slurm_user(settings: Mapping[str, str]) -> str:
    """Return SlurmUser if this process can tell what that user may read, as it is that user or root; else ''."""
    named = _USER.fullmatch(settings.get("slurmuser", ""))
    return named[1] if named and os.geteuid() in {0, int(named[2])} else ""


def look_at_hook(folder: Path, config: Config, reader: str = "") -> HookSeen:
    """Compare the files next to slurm.conf with the installed ones, and with what the configuration says.

    `reader` is the user for whom slurmctld reads them; '' for the user of this process.
    """
    ours = lua_folder()
    site = _read(folder / SITE_FILE)
    names = sorted(file.name for file in (ours / MODULES).glob("*.lua"))
    theirs = {name: content for name in names if (content := _read(folder / MODULES / name)) is not None}
    needed = _needed(theirs)
    parts = {
        folder / HOOK_SCRIPT: [folder / HOOK_SCRIPT],
        folder / SITE_FILE: [folder / SITE_FILE],
        folder / MODULES: [folder / MODULES / name for name in names],
    }
    shut = unreadable([file for files in parts.values() for file in files], reader)
    clients = _path("filter", folder / FILTER_SCRIPT)
    return HookSeen(
        folder=str(folder),
        installed=str(ours),
        script=_whose(_read(folder / HOOK_SCRIPT), _read(ours / HOOK_SCRIPT)),
        is_there=bool(theirs),
        missing=tuple(name for name in names if name not in theirs and name in needed),
        differing=tuple(
            name
            for name in names
            if (name in theirs or name not in needed) and theirs.get(name) != _read(ours / MODULES / name)
        ),
        site=_compare_site(site, hook_settings(config)),
        closed=tuple(str(path) for path, files in parts.items() if not shut.isdisjoint(files)),
        reader=reader,
        closed_filter=clients.path if clients and not clients.others_read else "",
        script_changed_s=_changed_s(folder / HOOK_SCRIPT),
        modules_changed_s=max((_changed_s(folder / MODULES / name) for name in theirs), default=0.0),
    )


def _needed(modules: Mapping[str, bytes]) -> set[str]:
    """Return the modules that a hook made of `modules` needs; a hook of an older release may have fewer than ours."""
    needed, found = set[str](), {HOOK_MODULE}
    while found:
        needed |= found
        named = {name.decode() for module in found for name in _NEEDS.findall(modules.get(module, b""))}
        found = {f"{name}.lua" for name in named} - needed
    return needed


def _whose(
    script: bytes | None, ours: bytes | None
) -> Literal["ours", "own", "unguarded", "foreign", "absent"]:
    """Return whose job_submit.lua it is, in the words of `HookSeen.script`."""
    if script is None:
        return "absent"
    if script == ours:
        return "ours"
    if OUR_CALL.encode() not in script:
        return "foreign"
    return "own" if GUARD.encode() in script else "unguarded"


def look_at_questions(config: Config, log: str) -> AskedSeen:
    """Return when the service decided last, how many jobs slurmctld counted since when, and what its log says."""
    try:
        told = run("sdiag")
    except SlurmError:
        told = ""
    since, submitted = _SINCE.search(told), _SUBMITTED.search(told)
    lines = (
        [line for line in _tail(Path(log), LOG_TAIL_BYTES) if FAILS in line or ANSWERS in line] if log else []
    )
    return AskedSeen(
        last_decision_s=last_decision_s(Path(config.service.journal)),
        submitted=int(submitted[1]) if submitted else None,
        since_s=int(since[1]) if since else None,
        breaker=(breaker := lines[-1] if lines and FAILS in lines[-1] else ""),
        breaker_s=logged_s(breaker),
        closed=closed_file(Path(config.service.journal)),
    )


def logged_s(line: str) -> float | None:
    """Return when slurmctld wrote a line of its log (unix seconds); None if that is not a valid ISO 8601 time."""
    stamp = _STAMP.match(line)
    try:
        return datetime.fromisoformat(stamp[1]).timestamp() if stamp else None
    except (ValueError, OverflowError):
        return None


def closed_file(journal: Path) -> str:
    """Return a file of the journal of the hook's service that this process may not read; '' if there is none."""
    files = sorted(journal.glob("decisions-[0-9]*.jsonl"), reverse=True)
    return next((str(file) for file in files if not os.access(file, os.R_OK)), "")


def last_decision_s(journal: Path) -> float | None:
    """Return when the hook's service decided last (unix seconds); None if no decision can be seen."""
    # The pattern excludes the clients' files, which have a host in their names.
    for file in sorted(journal.glob("decisions-[0-9]*.jsonl"), reverse=True):
        decided = [
            found for line in _tail(file, JOURNAL_TAIL_BYTES) if (found := decode_decision(line.encode()))
        ]
        if decided:
            return decided[-1].time_s
    return None


def look_at_limits(config: Config) -> LimitsSeen:
    """Ask Slurm for its limits as the service does."""
    found = gather(SiteFacts())
    return LimitsSeen(
        needed=config.service.limits_needed,
        complaints=found.complaints,
        without_default=tuple(
            name for name, partition in found.facts.partitions.items() if gives_all_memory(partition)
        ),
    )


def look_at_units() -> tuple[UnitSeen, ...]:
    """Return the state of our units from systemd; SlurmError if systemd cannot be asked."""
    names = [f"rightsizer-{name}" for name in UNITS]
    said = run("systemctl", "show", f"--property=Id,ActiveState,{ENDED}", "--", *names)
    booted_s, found = time.time() - time.monotonic(), []
    for block in said.split("\n\n"):
        values = dict(_SETTING.findall(block))
        if "Id" in values:
            ended_us = whole(values.get(ENDED, ""))
            ended_s = booted_s + ended_us / 1e6 if ended_us else None
            found.append(UnitSeen(name=values["Id"], state=values.get("ActiveState", ""), ended_s=ended_s))
    return tuple(found)


def look_at_paths(config: Config, config_file: str | None) -> tuple[PathSeen, ...]:
    """Return what other users may do with each of our paths; leaves out what does not exist or cannot be looked at."""
    return tuple(seen for kind, path in _paths(config, config_file) if (seen := _path(kind, path)))


def _paths(config: Config, config_file: str | None) -> Iterator[tuple[str, Path]]:
    file = config_path(config_file)
    if file is not None:
        yield "password" if _holds_password(config) else "configuration", file
    yield "program", Path(sys.prefix)
    yield "socket", Path(config.service.socket)
    store = store_file(config)
    for path in (*state_folders(config), *([store] if store else [])):
        yield "data", path


def _holds_password(config: Config) -> bool:
    return any(_PASSWORD.search(url) for url in (config.store.url, config.accounting.slurmdbd_url))


def _path(kind: str, path: Path) -> PathSeen | None:
    try:
        mode = path.stat().st_mode
        is_reachable = all(folder.stat().st_mode & stat.S_IXOTH for folder in path.resolve().parents)
    except OSError:
        return None
    return PathSeen(
        path=str(path),
        kind=kind,
        others_read=is_reachable and bool(mode & stat.S_IROTH),
        others_write=is_reachable and bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX,
    )


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _changed_s(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _tail(file: Path, most_bytes: int) -> list[str]:
    """Return the last lines of a file, of which the first may be incomplete; none if the file cannot be read."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - most_bytes))
            return opened.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []
