"""Faults on the hook's way to an answer: the socket, the answers, and the hook's own files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cluster.breakages import (
    bind_only,
    closed_folder,
    full_backlog,
    grants,
    healthy,
    never_accepted,
    no_hook_folder,
    no_settings,
    nothing,
    path_is,
    script_broken,
    script_removed,
    service_answers,
    settings_begin,
    socket_mode,
    touch_script,
)
from tests.cluster.fault import Break, Fault, always, reasons, why_no_permissions, why_same_user
from tests.cluster.process_breakages import (
    RELOADS,
    reconfigure_and_touch,
    socket_removed,
    switched_off,
    toggle_switch,
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


def row(name: str, made: str, broken: Break, *words: str, needs: Callable[[], str | None] = always) -> Fault:
    """Return the row of a fault that leaves jobs unchanged and that one of these words in slurmctld's log names."""
    return Fault(name, made, broken, reasons=reasons(*words), needs=needs)


_SOCKETS = (
    row("no socket", "nothing lies at service.socket", path_is(nothing), "connect_failed"),
    row("a socket that nobody may use", "the running service's socket has mode 0",
        socket_mode(0), "connect_failed", needs=why_no_permissions),
    row("a socket of another user alone", "the running service's socket has mode 0600, and is not slurmctld's user's",
        socket_mode(0o600), "connect_failed", needs=why_same_user),
    row("a socket in a closed folder", "slurmctld's user may not enter the socket's folder",
        closed_folder, "connect_failed", needs=why_no_permissions),
    row("a folder instead of a socket", "a folder lies at service.socket", path_is(Path.mkdir), "connect_failed"),
    row("a plain file instead of a socket", "an empty file lies at service.socket",
        path_is(Path.touch), "connect_failed"),
    row("a dangling link", "service.socket is a link to nowhere",
        path_is(lambda path: path.symlink_to("/nowhere/s")), "connect_failed"),
    row("refused", "the socket of a process that has gone", path_is(bind_only), "connect_failed"),
    row("socket removed while running", "the running service's socket is unlinked", socket_removed, "connect_failed"),
    row("full backlog", "a listener that never accepts, its queue full",
        full_backlog, "connect_failed", "send_failed", "deadline"),
    row("never accepted", "a listener that never accepts", never_accepted, "deadline"),
    row("accepted, then silent", "an impostor that reads and says nothing", service_answers(fall_silent), "deadline"),
    row("one byte every 10 ms", "an impostor whose reply drips", service_answers(drip), "deadline"),
    row("half a reply, then silent", "an impostor that stops in mid-reply",
        service_answers(half_then_silent), "deadline"),
    row("half a reply, then closed", "an impostor that hangs up in mid-reply",
        service_answers(half_then_close), "closed"),
    row("closed without a word", "an impostor that reads and hangs up", service_answers(close), "closed"),
    row("10 MB reply", "an impostor whose reply has no end", service_answers(ten_megabytes), "reply_too_long"),
)  # fmt: skip
_REPLIES = (
    row("bad JSON", "the reply is no JSON", service_answers(reply_with("not json {id}")), "bad_json"),
    row("not an object", "the reply is a JSON list", service_answers(reply_with('["{id}"]')), "wrong_version"),
    row("wrong id", "the reply names another request", service_answers(reply_with('{"v":1,"id":"0000"}')), "wrong_id"),
    row("wrong version", "the reply is of protocol 2",
        service_answers(reply_with('{"v":2,"id":"{id}"}')), "wrong_version"),
    row("NaN", "memory granted: NaN", grants('{"mem_per_node_mib":NaN}'), "bad_json", "not_an_integer"),
    row("infinite", "memory granted: 1e999", grants('{"mem_per_node_mib":1e999}'), "bad_json", "not_an_integer"),
    row("negative", "memory granted: -1 MiB", grants('{"mem_per_node_mib":-1}'), "below_one"),
    row("zero", "CPUs granted: 0", grants('{"cpus_per_task":0}'), "below_one"),
    row("huge", "CPUs granted: 1e300", grants('{"cpus_per_task":1e300}'), "above_request"),
    row("a fraction", "CPUs granted: 1.5", grants('{"cpus_per_task":1.5}'), "not_an_integer"),
    row("more than asked", "memory granted: 1 MiB above the request",
        grants('{"cpus_per_task":1,"mem_per_node_mib":16001}'), "above_request"),
    row("never asked", "a GPU granted to a job that asked for none", grants('{"gpus_per_node":1}'), "not_asked"),
    row("memory of the other kind", "memory per CPU granted to a job that asked per node",
        grants('{"mem_per_cpu_mib":10}'), "wrong_kind"),
    row("unknown grant", "nodes granted, which is no grant of ours", grants('{"nodes":1}'), "unknown_grant"),
    row("unknown member", "the reply has a member of no protocol",
        service_answers(reply_with('{"v":1,"id":"{id}","shell":"true"}')), "unknown_member"),
)  # fmt: skip
_HOOKS_FILES = (
    Fault("kill switch on", "hook.kill_switch exists", switched_off),
    Fault("kill switch flickers under load", "hook.kill_switch is made and removed 20 times",
        healthy, "either", during=toggle_switch, is_long=True),
    Fault("job_submit.lua reloaded under load", "its time stamp is renewed three times",
        healthy, "either", during=touch_script),
    Fault("a storm of reloads",
        "scontrol reconfigure and a new time stamp, five times, and SIGHUP to slurmctld between",
        healthy, "either", during=reconfigure_and_touch, is_long=True, most_hung_up=RELOADS),
    Fault("job_submit.lua broken while running", "the script does not compile any more",
        script_broken, "cut", fresh_state=False),
    Fault("job_submit.lua removed while running", "the script is gone", script_removed, "cut", fresh_state=False),
    row("no modules of the hook", "the hook's folder is gone when the script is loaded",
        no_hook_folder, "every job passes unchanged"),
    row("no site file", "rightsizer_site.lua is gone", no_settings, "every job passes unchanged"),
    row("a site file that fails", "rightsizer_site.lua raises an error",
        settings_begin("error('broken')"), "every job passes unchanged"),
    row("no LuaSocket", "Lua finds no library in C", settings_begin('package.cpath = ""'), "no_socket_library"),
    row("no JSON library", "Lua finds neither cjson nor dkjson",
        settings_begin('package.cpath = ""; package.path = package.path:match("^[^;]*")'), "no_json_library"),
)  # fmt: skip
SOCKET_FAULTS = (*_SOCKETS, *_REPLIES, *_HOOKS_FILES)
