"""Checks of the hook: whether slurmctld can read, has loaded and runs the installed one, and asks. Pure."""

from __future__ import annotations

from accounting.units import counted
from slurm_plugin.config.hook import HOOK_SCRIPT
from slurm_plugin.doctor.finding import Judged, span, unseen
from slurm_plugin.doctor.seen import Complaint, HookSeen, Seen, SlurmSeen, is_hook_stopped

# This many submissions without a decision are no accident. Of a few, all may have missed the deadline.
UNASKED = 20
# Upper bounds, in seconds: for copying the hook, and for the time from counting a submission to journalling it.
COPYING_S, COUNTING_S = 60.0, 60.0
# How many jobs make a share meaningful, and which share without a decision is no accident.
LEAST_COMMENTS, MUCH_UNNAMED = 50, 0.25


def loads_hook(slurm: SlurmSeen) -> bool:
    """Whether slurmctld loads a job_submit.lua at all."""
    return "lua" in slurm.settings.get("jobsubmitplugins", "").replace("job_submit/", "").split(",")


def hook(seen: Seen) -> Judged:
    """Whether the hook next to slurm.conf is the installed one, and was loaded since it was copied there.

    Also whether all users can read the clients' filter, if it is there.
    """
    if isinstance(seen.slurm, Complaint):
        return unseen(seen.slurm)
    found = seen.slurm.hook
    judged = _hook(seen.slurm, found)
    return _filter(found.closed_filter) if judged[0] == "ok" and found and found.closed_filter else judged


def _hook(slurm: SlurmSeen, found: HookSeen | None) -> Judged:
    if not loads_hook(slurm):
        shut = _closed(found) if found is not None and found.reader else None
        if shut is not None:
            state, what, fix = shut
            return state, f"once slurm.conf names lua in JobSubmitPlugins: {what}", fix
        return "ok", "not loaded: slurm.conf does not name lua in JobSubmitPlugins", ""
    if found is None:
        return "unknown", "slurmctld does not say where its slurm.conf is", ""
    return _closed(found) or _script(found) or _parts(found) or _loaded(found, boot_s(slurm))


def _filter(path: str) -> Judged:
    what = (
        f"not every user may read {path}: with CliFilterPlugins=cli_filter/lua, no srun, salloc or sbatch "
        "works for those who may not"
    )
    return "warning", what, f"chmod a+r {path}, and a+x all folders above"


def _closed(found: HookSeen) -> Judged | None:
    """Judge files that may not be read, such as those that root created under a narrow umask; None if all may be."""
    if not found.closed:
        return None
    paths = " ".join(found.closed)
    script = f"{found.folder}/{HOOK_SCRIPT}"
    # Seen on 22.05, which rejects all jobs after `scontrol reconfigure`, and on 26.05, which ends.
    stops = "it rejects all jobs, or ends, at its next start or `scontrol reconfigure`"
    risk = stops if script in found.closed else "jobs are not changed"
    what, fix = f"cannot read {', '.join(found.closed)}", f"chmod -R a+rX {paths}"
    if found.reader:
        fix += (
            f"; {found.reader} must also be able to enter all folders above, and those to which a link leads"
        )
        return "problem", f"{found.reader}, and so slurmctld, {what}: {risk}", fix
    return (
        "problem",
        f"{what}: if slurmctld cannot read them either, {risk}",
        f"{fix}, or run this as SlurmUser",
    )


def _script(found: HookSeen) -> Judged | None:
    """Judge whose job_submit.lua it is, and whether modules are missing; None if the next checks are to decide."""
    parts = "rightsizer/" if found.script == "own" else "job_submit.lua and rightsizer/"
    copy = f"copy {parts} from {found.installed} to {found.folder}"
    if found.script == "absent":
        return (
            "problem",
            f"{found.folder}/job_submit.lua does not exist: slurmctld would fail at its next start",
            copy,
        )
    if found.script == "foreign":
        fix = "call rightsizer as the comment at the top of our job_submit.lua shows, or copy ours there"
        return "warning", f"{found.folder}/job_submit.lua does not call rightsizer.hook", fix
    if found.script == "unguarded":
        risk = "if a module is missing, Slurm 26.05 rejects all jobs"
        what = f"{found.folder}/job_submit.lua calls rightsizer without pcall: {risk}"
        return "warning", what, "call rightsizer as the comment at the top of our job_submit.lua shows"
    if found.script == "own" and not found.is_there:
        return (
            "ok",
            f"{found.folder}/job_submit.lua is the site's own; it calls rightsizer from another folder",
            "",
        )
    if found.missing:
        return (
            "problem",
            f"{found.folder}/rightsizer/ lacks {', '.join(found.missing)}: jobs are not changed",
            copy,
        )
    return None


def _parts(found: HookSeen) -> Judged | None:
    """Judge whether modules and settings are the current ones; None if they are."""
    # A shell empties the file before `rightsizer config hook` can refuse a wrong configuration.
    lacks = {"absent": "does not exist", "empty": "is empty"}.get(found.site)
    if lacks:
        fix = f"rightsizer config check && rightsizer config hook > {found.folder}/rightsizer_site.lua"
        return "problem", f"{found.folder}/rightsizer_site.lua {lacks}: jobs are not changed", fix
    stale = [f"rightsizer/{name}" for name in found.differing]
    if found.site == "differs":
        stale.append("rightsizer_site.lua")
    if not stale:
        return None
    # A script of the site's own is kept, but it cannot be told from ours of an older release.
    what = f"{found.installed}/" if found.script == "ours" else f"{found.installed}/rightsizer"
    older = "" if found.script == "ours" else " (job_submit.lua too, if it is an older version of ours)"
    fix = (
        f"copy {what} to {found.folder}/{older}, write the output of `rightsizer config hook` to "
        "rightsizer_site.lua there, and touch job_submit.lua"
    )
    return (
        "warning",
        f"these files in {found.folder} differ from what is installed and configured: {', '.join(stale)}",
        fix,
    )


def _loaded(found: HookSeen, booted_s: float | None) -> Judged:
    """Judge whether slurmctld runs the files in the folder: it reloads modules only if job_submit.lua is newer."""
    if booted_s is not None and found.modules_changed_s > loaded_s(found, booted_s) + COPYING_S:
        fix = f"touch {found.folder}/job_submit.lua"
        return (
            "warning",
            (
                "modules are newer than job_submit.lua and than the start of slurmctld, which may still run "
                "older modules"
            ),
            fix,
        )
    return "ok", f"{found.folder} has the installed version", ""


def loaded_s(found: HookSeen | None, booted_s: float | None) -> float:
    """Return when slurmctld loaded the hook at the earliest: its start, or the last change of job_submit.lua."""
    return max(found.script_changed_s if found else 0.0, booted_s or 0.0)


def boot_s(slurm: SlurmSeen) -> float | None:
    """Return when slurmctld started, in unix seconds; None if it does not say."""
    told = slurm.settings.get("boot_time", "")
    return float(told) if told.isdecimal() else None


def asked(seen: Seen) -> Judged:
    """Whether slurmctld asks the service about submitted jobs."""
    if isinstance(seen.slurm, Complaint):
        return unseen(seen.slurm)
    found = seen.slurm.asked
    if not loads_hook(seen.slurm) or is_hook_stopped(seen):
        return "ok", "the hook does not ask: it is not loaded, or a kill switch is set", ""
    if seen.slurm.in_control:
        return "ok", f"slurmctld is in control on {seen.slurm.in_control}, and asks the service there", ""
    # The hook counts failures in its Lua state, so a reloaded hook asks again.
    if found.breaker and not _is_before(found.breaker_s, loaded_s(seen.slurm.hook, boot_s(seen.slurm))):
        fix = "see the service's log; check whether hook.deadline_ms is too short for this machine"
        return "problem", f"the hook has stopped asking the service: {found.breaker}", fix
    last_s, since_s = found.last_decision_s, found.since_s
    if last_s is None and found.closed:
        what = f"cannot tell when the hook asked last: you may not read {found.closed}"
        return "unknown", what, "run this as the service's user"
    if (
        found.submitted is None
        or since_s is None
        or found.submitted < UNASKED
        or seen.now_s - since_s < COUNTING_S
    ):
        said = "never" if last_s is None else f"{span(seen.now_s - last_s)} ago"
        return "ok", f"the hook asked last: {said}", ""
    if last_s is None or last_s < since_s:
        fix = (
            "search slurmctld's log for `rightsizer:`, and compare the socket in rightsizer_site.lua with "
            "service.socket"
        )
        what = f"the hook asked about none of {found.submitted} submissions in {span(seen.now_s - since_s)}"
        return "problem", what, fix
    return "ok", f"the hook asked {span(seen.now_s - last_s)} ago", ""


def tokens(seen: Seen) -> Judged:
    """Whether it is known of jobs that have ended what we decided: else nobody knows that they were cut."""
    if isinstance(seen.store, Complaint):
        return unseen(seen.store)
    unnamed, jobs = seen.store.latest_unnamed, seen.store.latest_named + seen.store.latest_unnamed
    if jobs < LEAST_COMMENTS:
        return (
            "ok",
            f"only {counted(jobs, 'job')} of the newest week with an admin comment, too few to judge this",
            "",
        )
    what = f"{unnamed / jobs:.0%} of the newest {jobs:,} jobs with an admin comment have lost their token"
    if unnamed < MUCH_UNNAMED * jobs or is_hook_stopped(seen):
        return "ok", what, ""
    fix = "find the tool that replaces it (docs/admin.md): the brakes do not see that such jobs were cut"
    return "warning", what, fix


def _is_before(moment_s: float | None, later_s: float) -> bool:
    """Whether a moment is known and was before another."""
    return moment_s is not None and moment_s < later_s
