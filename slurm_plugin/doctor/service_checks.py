"""Checks of the configuration, of the kill switches, and of the services that answer submissions. Pure."""

from __future__ import annotations

from slurm_plugin.doctor.finding import Judged, State
from slurm_plugin.doctor.seen import Answer, Complaint, Seen, SocketSeen, is_hook_stopped

# The worst state comes last.
BAD: tuple[State, ...] = ("ok", "unknown", "warning", "problem")


def configuration(seen: Seen) -> Judged:
    """Whether what the configuration names exists and can be used; that the file loads is known by now."""
    if isinstance(seen.configuration, Complaint):
        return "problem", seen.configuration.what, seen.configuration.fix
    return "ok", seen.configuration, ""


def kill_switch(seen: Seen) -> Judged:
    """Whether a kill switch is set: then every job is left unchanged, or only srun and salloc do not ask."""
    thrown = [switch.path for switch in seen.switches if switch.thrown]
    hidden = [switch.path for switch in seen.switches if switch.thrown is None]
    if thrown:
        left = (
            "every job is left unchanged" if is_hook_stopped(seen) else "no srun or salloc asks the service"
        )
        return "warning", f"{left}: {', '.join(thrown)} exists", "run `rightsizer enable`"
    if hidden:
        return "unknown", f"cannot tell whether {', '.join(hidden)} exists", "run this as the service's user"
    return "ok", "not set", ""


def service(seen: Seen) -> Judged:
    """Whether the services answer on their sockets and run the installed version; the worst of them counts."""
    return max((_socket(one) for one in seen.sockets), key=lambda judged: BAD.index(judged[0]))


def _socket(one: SocketSeen) -> Judged:
    if one.older:
        what = (
            f"{one.path} answers, but it was started before the installed version: it still runs the older "
            "version"
        )
        return (
            "warning",
            what,
            f"systemctl restart {one.unit}, and every other service of rightsizer (docs/upgrading.md)",
        )
    start = f"start `{one.command}` (systemctl restart {one.unit}), and see its log"
    fixes: dict[Answer, tuple[State, str]] = {
        "answers": ("ok", ""),
        "does not admit this user": ("unknown", "run this as the service's user"),
        "is not a socket": ("problem", f"move {one.path} away and {start}"),
    }
    state, fix = fixes.get(one.answer, ("problem", start))
    return state, f"{one.path} {one.answer}", fix
