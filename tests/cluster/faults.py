"""The faults, one row each: what breaks, how it is broken, and what may then become of a job.

Nothing is mocked but the impostors that answer in the service's place. `reasons` are the words in slurmctld's log that
prove that the fault was met, and not something else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.cluster.breakages import (
    Break,
    bind_only,
    closed_folder,
    full_backlog,
    grants,
    healthy,
    healthy_and_impatient,
    kill_service,
    model_damaged_at_start,
    model_damaged_while_running,
    model_missing,
    models_removed,
    never_accepted,
    no_hook_folder,
    no_settings,
    nothing,
    path_is,
    restart_service,
    script_broken,
    script_removed,
    service_answers,
    settings_begin,
    socket_mode,
    stopped,
    stopped_for_long,
    touch_script,
)
from tests.cluster.fault_site import FaultSite, ordinary_user
from tests.cluster.journal_breakages import (
    journal_disk_full,
    journal_full,
    journal_limited,
    journal_removed,
    journal_unwritable_at_start,
    why_no_mount,
)
from tests.lua.conftest import reply_with
from tests.lua.test_failing_service import (
    close,
    drip,
    fall_silent,
    half_then_close,
    half_then_silent,
    ten_megabytes,
)

Expected = Literal["unchanged", "cut", "either"]


def always() -> None:
    """Need nothing."""


def why_no_permissions() -> str | None:
    """Say why slurmctld may use whatever it likes; None where permissions hold it."""
    return None if ordinary_user() or os.geteuid() != 0 else "no ordinary user can run this Slurm"


def why_same_user() -> str | None:
    """Say why slurmctld is the user's who starts the service; None where it is not."""
    return None if ordinary_user() else "only root can start a slurmctld of another user"


@dataclass(frozen=True)
class Fault:
    """One row. `during` runs while submissions go on; without it some are made one after the other.

    `fresh_state` reloads the script once all is broken; without it the script in use is what is tested. `must_log` is
    the one of several reasons without which the fault was not met. `needs` says why the fault cannot be made here, or
    nothing.
    """

    name: str
    broken: Break
    expected: Expected = "unchanged"
    reasons: frozenset[str] = frozenset()
    during: Callable[[FaultSite], None] | None = None
    fresh_state: bool = True
    must_log: str = ""
    needs: Callable[[], str | None] = always


def reasons(*words: str) -> frozenset[str]:
    """Return the reasons of a row."""
    return frozenset(words)


UNREACHABLE = reasons("connect_failed")
LATE = reasons("deadline")

FAULTS = (
    Fault("no socket", path_is(nothing), reasons=UNREACHABLE),
    Fault("a socket that nobody may use", socket_mode(0), reasons=UNREACHABLE, needs=why_no_permissions),
    Fault("a socket of another user alone", socket_mode(0o600), reasons=UNREACHABLE, needs=why_same_user),
    Fault("a socket in a closed folder", closed_folder, reasons=UNREACHABLE, needs=why_no_permissions),
    Fault("a folder instead of a socket", path_is(Path.mkdir), reasons=UNREACHABLE),
    Fault("a plain file instead of a socket", path_is(Path.touch), reasons=UNREACHABLE),
    Fault("a dangling link", path_is(lambda path: path.symlink_to("/nowhere/s")), reasons=UNREACHABLE),
    Fault("refused", path_is(bind_only), reasons=UNREACHABLE),
    Fault("full backlog", full_backlog, reasons=reasons("connect_failed", "send_failed", "deadline")),
    Fault("never accepted", never_accepted, reasons=LATE),
    Fault("accepted, then silent", service_answers(fall_silent), reasons=LATE),
    Fault("one byte every 10 ms", service_answers(drip), reasons=LATE),
    Fault("half a reply, then silent", service_answers(half_then_silent), reasons=LATE),
    Fault("half a reply, then closed", service_answers(half_then_close), reasons=reasons("closed")),
    Fault("closed without a word", service_answers(close), reasons=reasons("closed")),
    Fault("10 MB reply", service_answers(ten_megabytes), reasons=reasons("reply_too_long")),
    Fault("bad JSON", service_answers(reply_with("not json {id}")), reasons=reasons("bad_json")),
    Fault("not an object", service_answers(reply_with('["{id}"]')), reasons=reasons("wrong_version")),
    Fault("wrong id", service_answers(reply_with('{"v":1,"id":"0000"}')), reasons=reasons("wrong_id")),
    Fault(
        "wrong version", service_answers(reply_with('{"v":2,"id":"{id}"}')), reasons=reasons("wrong_version")
    ),
    Fault("NaN", grants('{"mem_per_node_mib":NaN}'), reasons=reasons("bad_json", "not_an_integer")),
    Fault("infinite", grants('{"mem_per_node_mib":1e999}'), reasons=reasons("bad_json", "not_an_integer")),
    Fault("negative", grants('{"mem_per_node_mib":-1}'), reasons=reasons("below_one")),
    Fault("zero", grants('{"cpus_per_task":0}'), reasons=reasons("below_one")),
    Fault("huge", grants('{"cpus_per_task":1e300}'), reasons=reasons("above_request")),
    Fault("a fraction", grants('{"cpus_per_task":1.5}'), reasons=reasons("not_an_integer")),
    Fault(
        "more than asked",
        grants('{"cpus_per_task":1,"mem_per_node_mib":16001}'),
        reasons=reasons("above_request"),
    ),
    Fault("never asked", grants('{"gpus_per_node":1}'), reasons=reasons("not_asked")),
    Fault("memory of the other kind", grants('{"mem_per_cpu_mib":10}'), reasons=reasons("wrong_kind")),
    Fault("unknown grant", grants('{"nodes":1}'), reasons=reasons("unknown_grant")),
    Fault(
        "unknown member",
        service_answers(reply_with('{"v":1,"id":"{id}","shell":"true"}')),
        reasons=reasons("unknown_member"),
    ),
    Fault("SIGSTOP", stopped, reasons=LATE),
    Fault(
        "SIGKILL in mid-call",
        stopped_for_long,
        reasons=reasons("closed", "connect_failed"),
        must_log="closed",
        during=kill_service,
    ),
    Fault("service restarted under load", healthy_and_impatient, "either", during=restart_service),
    Fault("model missing", model_missing),
    Fault("model damaged while running", model_damaged_while_running, "cut"),
    Fault("model damaged at start", model_damaged_at_start),
    Fault("models removed while running", models_removed, "cut"),
    Fault("job_submit.lua reloaded under load", healthy, "either", during=touch_script),
    Fault("job_submit.lua broken while running", script_broken, "cut", fresh_state=False),
    Fault("job_submit.lua removed while running", script_removed, "cut", fresh_state=False),
    Fault("no modules of the hook", no_hook_folder, reasons=reasons("every job passes unchanged")),
    Fault("no site file", no_settings, reasons=reasons("every job passes unchanged")),
    Fault(
        "a site file that fails",
        settings_begin("error('broken')"),
        reasons=reasons("every job passes unchanged"),
    ),
    Fault("no LuaSocket", settings_begin('package.cpath = ""'), reasons=reasons("no_socket_library")),
    Fault(
        "no JSON library",
        settings_begin('package.cpath = ""; package.path = package.path:match("^[^;]*")'),
        reasons=reasons("no_json_library"),
    ),
    Fault("journal on a full disk", journal_full, "cut"),
    Fault("journal limited while running", journal_limited, "cut"),
    Fault("journal's disk full while running", journal_disk_full, "cut", needs=why_no_mount),
    Fault("journal cannot be opened at start", journal_unwritable_at_start, reasons=UNREACHABLE),
    Fault("journal folder removed while running", journal_removed, "cut"),
)
