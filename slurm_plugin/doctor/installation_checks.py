"""Checks of the service's surroundings: slurm.conf, controllers, limits, timers. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from accounting.labels.quality import knows_peak
from accounting.units import whole
from slurm_plugin.doctor.finding import Judged, unseen
from slurm_plugin.doctor.hook_checks import loads_hook
from slurm_plugin.doctor.seen import Complaint, Seen, SlurmSeen, UnitSeen
from slurm_plugin.slurm.limits import counts_memory, limits_virtual
from slurm_plugin.slurm.metering import sampled_every_s

FRAGMENT = "compare with etc/slurm.conf.fragment, which explains each setting, and restart slurmctld"
# In `scontrol show config`: SlurmctldHost[0], SlurmctldHost[1], …; without a number if there is only one host.
_CONTROLLER = re.compile(r"slurmctldhost(\[\d+\])?")
READS = ("rightsizer-ingest.timer", "rightsizer-ingest-watch.service")
TRAINS = "rightsizer-train.timer"
INGESTS = "rightsizer-ingest.service"
# Which one is right depends on release and cgroups (docs/accounting.md); `report quality` shows what was measured.
MEASURING = ("jobacct_gather/cgroup", "jobacct_gather/linux")
# Exit codes of job scripts whose srun was killed for memory. A script that is killed itself has 0:125, which no
# setting matches.
_WANTING = (1, 9, 137)
_CODES = re.compile(r"(\d+)(?:-(\d+))?")


def slurm_conf(seen: Seen) -> Judged:
    """Whether slurm.conf has the settings that we need."""
    if isinstance(seen.slurm, Complaint):
        return unseen(seen.slurm)
    lacking = [
        *_learning_lacks(seen.slurm),
        *_sharing_lacks(seen, seen.slurm.settings),
        *_planning_lacks(seen, seen.slurm),
        *_recovery_lacks(seen, seen.slurm.settings),
    ]
    return (
        ("warning", "; ".join(lacking), FRAGMENT)
        if lacking
        else ("ok", "has all the settings that rightsizer needs", "")
    )


def _learning_lacks(slurm: SlurmSeen) -> list[str]:
    """Return which settings keep us from being asked about jobs, or from learning what they used."""
    settings, lacking = slurm.settings, []
    if not loads_hook(slurm):
        lacking.append("JobSubmitPlugins lacks lua: the service is not asked about any submission")
    if settings.get("jobacctgathertype", "") not in MEASURING:
        lacking.append(
            f"JobAcctGatherType is neither {' nor '.join(MEASURING)}: what jobs use is not measured"
        )
    if settings.get("accountingstoragetype", "") != "accounting_storage/slurmdbd":
        lacking.append(
            "AccountingStorageType is not accounting_storage/slurmdbd: there is nothing to learn from"
        )
    if _samples_nothing(settings):
        lacking.append("JobAcctGatherFrequency samples no tasks: the memory that jobs use is not measured")
    if "nosteps" in settings.get("accountingstorageenforce", "").split(","):
        lacking.append(
            "AccountingStorageEnforce has nosteps or nojobs: what jobs used is recorded in their "
            "steps, which are not stored"
        )
    if not _counts_gpus(settings):
        lacking.append(
            "AccountingStorageTRES lacks gres/gpu: accounting does not record GPUs, or only the types "
            "that it names, so no job is given fewer GPUs"
        )
    return lacking


def _samples_nothing(settings: Mapping[str, str]) -> bool:
    """Whether no task is sampled, and Slurm does not record the kernel's own peak, which needs no sampling."""
    gather = " ".join(
        settings.get(name, "") for name in ("jobacctgathertype", "cgroupplugin", "jobacctgatherparams")
    )
    is_sampled = sampled_every_s(settings.get("jobacctgatherfrequency", "")) > 0
    return not is_sampled and not knows_peak(settings.get("slurm_version", ""), gather)


def _sharing_lacks(seen: Seen, settings: Mapping[str, str]) -> list[str]:
    """Return which settings keep other jobs from using what a cut frees."""
    if "linear" in settings.get("selecttype", ""):
        return ["SelectType is select/linear: jobs get whole nodes, so nothing is cut"]
    if not counts_memory(settings.get("selecttypeparameters")):
        return [
            (
                "SelectTypeParameters does not name memory: Slurm does not allocate memory, so requests for it "
                "are kept"
            )
        ]
    if limits_virtual(settings.get("vsizefactor")):
        return [
            (
                "VSizeFactor limits address space by the requested memory, and the use of address space is "
                "not measured: memory requests are kept"
            )
        ]
    without = seen.limits.without_default
    if not without:
        return []
    named = ", ".join(without[:3]) + " and others" * (len(without) > 3)
    held = "jobs that request no memory hold all memory of their nodes, and no cut can change that"
    return [f"neither DefMemPerCPU nor DefMemPerNode is set for {named}: {held}"]


def _planning_lacks(seen: Seen, slurm: SlurmSeen) -> list[str]:
    """Return which settings keep the advisor from reordering the queue, lending, or seeing all nodes."""
    lacking = [f"no job is let into the partition {name}: {why}" for name, why in slurm.unlent.items()]
    if _advises(seen) and slurm.settings.get("prioritytype", "") != "priority/multifactor":
        lacking.append("PriorityType is not priority/multifactor: SiteFactors have no effect")
    if hidden := slurm.hidden:
        lacking.append(
            f"PrivateData lacks cloud: this Slurm release hides cloud nodes that are powered down ({hidden[0]} "
            f"and so on: {len(hidden)} now), so `rightsizer advise` and `explain` plan without them"
        )
    return lacking


def _counts_gpus(settings: Mapping[str, str]) -> bool:
    kinds, counted = (settings.get(name, "").split(",") for name in ("grestypes", "accountingstoragetres"))
    return "gpu" not in kinds or "gres/gpu" in counted


def _recovery_lacks(seen: Seen, settings: Mapping[str, str]) -> list[str]:
    """Return which settings keep jobs that failed because we cut them from being requeued; none if no job is cut."""
    if isinstance(seen.recovery, Complaint) or not seen.recovery.enforced:
        return []
    lacking = []
    if settings.get("jobrequeue") == "0":
        lacking.append("JobRequeue is 0: jobs that fail because they were cut are not requeued")
    lacking += [
        (
            f"RequeueExitHold has {code}: when srun is killed for memory in a job that was cut, Slurm holds "
            "the job with the cut request, and recovery does not requeue it"
        )
        for code in [code for code in _WANTING if _has_code(settings.get("requeueexithold", ""), code)][:1]
    ]
    known_s = whole(settings.get("minjobage", "").removesuffix(" sec"))
    # With 0, slurmctld never forgets a job. With an EpilogSlurmctld, slurmctld may call recovery itself.
    is_called = any(one.startswith("epilogslurmctld") and path != "(null)" for one, path in settings.items())
    if known_s and known_s <= seen.recovery.period_s and not is_called:
        lacking.append(
            f"MinJobAge is {known_s} s: slurmctld forgets failed jobs before the next recovery round "
            f"(recovery.period_s is {seen.recovery.period_s})"
        )
    return lacking


def _has_code(listed: str, code: int) -> bool:
    """Whether a list of exit codes, such as `1,130-140`, contains `code`."""
    return any(int(low) <= code <= int(high or low) for low, high in _CODES.findall(listed))


def _advises(seen: Seen) -> bool:
    return not isinstance(seen.advisor, Complaint) and seen.advisor.is_there


def controllers(seen: Seen) -> Judged:
    """Whether a backup controller's host, if there is one, shares kill switch, brakes and models with this host."""
    if isinstance(seen.slurm, Complaint):
        return unseen(seen.slurm)
    hosts = [value for name, value in seen.slurm.settings.items() if _CONTROLLER.fullmatch(name)]
    if len(hosts) < 2:
        return "ok", "slurmctld runs on one host", ""
    named = ", ".join(hosts)
    if not seen.slurm.apart:
        return "ok", f"{named} share the kill switch, the brakes and the models", ""
    what = (
        f"slurmctld may run on each of {named}, but these paths are not on a shared file system: "
        f"{', '.join(seen.slurm.apart)}"
    )
    fix = (
        "move them to a file system that all these hosts share, or run `rightsizer disable` on each host "
        "(docs/admin.md)"
    )
    return "warning", what, fix


def limits(seen: Seen) -> Judged:
    """Whether all of Slurm's limits can be read; the service cuts nothing until it has read them once."""
    if not seen.limits.needed:
        return "ok", "not needed: service.limits_needed is false", ""
    if not seen.limits.complaints:
        return "ok", "all of them can be read", ""
    what = f"a service that starts now cuts nothing (site-not-known): {'; '.join(seen.limits.complaints)}"
    return (
        "warning",
        what,
        "check that slurmctld and slurmdbd run, and that the service's user may query them",
    )


def timers(seen: Seen) -> Judged:
    """Whether systemd runs ingest and train, and no run has failed."""
    if isinstance(seen.units, Complaint):
        return "unknown", "systemd does not run here", "check that something else runs ingest and train"
    states = {unit.name: unit.state for unit in seen.units}
    failed = [
        unit.name for unit in seen.units if unit.state == "failed" and not _is_made_up_for(unit, states, seen)
    ]
    if failed:
        fix = f"see `journalctl -u {failed[0]}`; after fixing the cause, run `systemctl start {failed[0]}`"
        return "problem", f"{', '.join(failed)} failed", fix
    asleep = []
    if not any(states.get(name) == "active" for name in READS):
        asleep.append(READS[0])
    if states.get(TRAINS) != "active":
        asleep.append(TRAINS)
    if asleep:
        return "warning", f"not active: {', '.join(asleep)}", f"systemctl enable --now {' '.join(asleep)}"
    return "ok", "ingest and train are scheduled", ""


def _is_made_up_for(unit: UnitSeen, states: Mapping[str, str], seen: Seen) -> bool:
    """Whether accounting was read, by `ingest --watch` or by hand, since an ingest failed that no timer repeats."""
    if unit.name != INGESTS or states.get(READS[0]) == "active" or isinstance(seen.store, Complaint):
        return False
    read_until_s = seen.store.read_until_s
    return unit.ended_s is not None and read_until_s is not None and read_until_s > unit.ended_s
