"""Reads what scontrol and sprio print about nodes, partitions, reservations, settings and priorities. Pure.

None of it holds text of a user, only numbers and the words of administrators. What an administrator gives as a reason
or comment may look like other words of Slurm's, but comes after them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from accounting.tres import parse_tres, split_tres
from accounting.units import parse_duration_s, parse_memory_mib, whole
from slurm_plugin.policy.facts import MemoryTerms, gives_whole_sockets
from slurm_plugin.slurm.hostlist import expand_nodes
from slurm_plugin.slurm.limits import (
    RELATIVE,
    config_words,
    counts_memory,
    parameters_in,
    partition_terms,
    select_names,
)
from slurm_plugin.slurm.node_words import core_cpus, gpus_of, socket_cpus, words_of
from slurm_plugin.slurm.nodes import ASLEEP, AWAY, NOT_THERE, capacity_of, held_of, states_of
from slurm_plugin.slurm.release import parse_release
from slurm_plugin.slurm.snapshot import (
    AGAIN_S,
    FORGETS_S,
    LATE_TO_FORGET_S,
    MINUTES,
    MOST_REMEMBERED_S,
    RUN_MINUTES,
    WALL,
    AssociationState,
    NodeState,
    PartitionState,
    QosState,
    ReservedNodes,
    SchedulerTerms,
)

_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?\Z", re.ASCII)
_WEIGHT = "PriorityWeight"
_COUNTED = re.compile(r"jobs|cpu|node|billing|gres/gpu(:.+)?")
# A node that is powered down is not away: Slurm wakes it for a job.
_AWAY = AWAY | {"REBOOT_ISSUED", "UNKNOWN"}
_NOTHING = ("(null)", "N/A", "")
_NO_TERMS = MemoryTerms()
# What sprio is asked for. Its normalized priority is below 1, except that a priority that was set directly is printed
# as it is; for such a job that may go to several partitions, 22.05 prints the lowest possible SiteFactor.
SPRIO_FORMAT = "%i|%S|%f|%y"
_NO_SITE_FACTOR = -(2**31)
# What sacctmgr is asked for.
QOS_FORMAT = (
    "Name,Preempt,PreemptMode,PreemptExemptTime,Flags,UsageFactor,GrpTRES,GrpTRESRunMins,GrpJobs,"
    "MaxTRESPU,MaxTRESRunMinsPU,MaxJobsPU,MaxTRESPA,MaxTRESRunMinsPA,MaxJobsPA,GrpTRESMins,GrpWall"
)
ASSOCIATIONS_FORMAT = (
    "Account,User,Partition,ParentName,GrpTRES,GrpTRESRunMins,GrpJobs,MaxJobs,GrpTRESMins,GrpWall"
)
_ASSOCIATION_FIELDS = len(ASSOCIATIONS_FORMAT.split(","))
_QOS_FIELDS = len(QOS_FORMAT.split(","))


class Factors(msgspec.Struct, frozen=True, gc=False):
    """A waiting job's SiteFactor and fair-share factor (0 to 1); `fixed` if its priority was set directly."""

    site: int
    fair_share: float
    fixed: bool


def parse_node_states(text: str) -> tuple[NodeState, ...]:
    """Read `scontrol --oneliner show node`; nodes that do not exist yet are left out."""
    found = []
    for words in _records(text, "NodeName"):
        states = states_of(words)
        if states & NOT_THERE:
            continue
        has = capacity_of(words)
        found.append(
            NodeState(
                name=words["NodeName"],
                cpus=int(has.cpus),
                mem_mib=has.mem_mib,
                gpus=int(has.gpus),
                features=_listed(words.get("AvailableFeatures", "")),
                gpu_types=tuple((name, count) for name, count in gpus_of(words).items() if name),
                partitions=_listed(words.get("Partitions", "")),
                away=bool(states & _AWAY),
                asleep=bool(states & ASLEEP),
                cpus_per_core=core_cpus(words),
                cpus_per_socket=socket_cpus(words),
                held=held_of(words),
            )
        )
    return tuple(found)


def parse_partition_states(
    text: str, parameters: str | None = None, memory: MemoryTerms = _NO_TERMS
) -> tuple[PartitionState, ...]:
    """Read `scontrol --oneliner show partition`.

    Jobs start in a partition that is UP or DRAIN; the latter accepts no new ones. `parameters` are the cluster's
    SelectTypeParameters, `memory` its memory terms.
    """
    return tuple(
        PartitionState(
            name=words["PartitionName"],
            tier=int(_number(words.get("PriorityTier", "1"))),
            up=words.get("State", "UP") in ("UP", "DRAIN"),
            longest_s=_span_s(words.get("MaxTime", "")),
            whole_sockets=gives_whole_sockets(parameters_in(words.get("SelectTypeParameters"), parameters)),
            preempt_mode=_mode(words.get("PreemptMode", "")),
            accounts=_named(words.get("AllowAccounts", "")),
            denied_accounts=_named(words.get("DenyAccounts", "")),
            all_qos=_named(words.get("AllowQos", "").lower()),
            denied_qos=_named(words.get("DenyQos", "").lower()),
            groups=_named(words.get("AllowGroups", "")),
            most_nodes=math.inf if (nodes := whole(words.get("MaxNodes"))) is None else nodes,
            most_cpus_per_node=whole(words.get("MaxCPUsPerNode")),
            most_cpus_per_socket=whole(words.get("MaxCPUsPerSocket")),
            over_limit_s=_minutes_s(words.get("OverTimeLimit", "")),
            qos="" if (qos := words.get("QoS", "")) in _NOTHING else qos,
            default_s=_default_s(words.get("DefaultTime", "")),
            memory=partition_terms(
                words, parameters_in(words.get("SelectTypeParameters"), parameters), memory
            ),
        )
        for words in _records(text, "PartitionName")
    )


def parse_closed_partitions(text: str) -> frozenset[str]:
    """Read `scontrol --oneliner show partition`: which take no new jobs, though some start those that wait there."""
    return frozenset(
        words["PartitionName"]
        for words in _records(text, "PartitionName")
        if words.get("State") in ("DRAIN", "INACTIVE")
    )


def parse_association_states(text: str) -> tuple[AssociationState, ...]:
    """Read sacctmgr's ASSOCIATIONS_FORMAT; a user's MaxJobs includes what the accounts above the user set."""
    rows = (line.split("|") for line in text.splitlines())
    return tuple(
        AssociationState(
            account=account,
            user=user,
            partition=partition,
            parent=parent,
            together=_at_a_time(tres, run_minutes, jobs),
            most_jobs=whole(most_jobs),
            has_budget=bool(minutes or wall),
        )
        for account, user, partition, parent, tres, run_minutes, jobs, most_jobs, minutes, wall in (
            row for row in rows if len(row) == _ASSOCIATION_FIELDS
        )
    )


def parse_budgets(text: str) -> dict[str, dict[str, int]]:
    """Read `scontrol --oneliner show assoc_mgr`: how many minutes are left of budgets, by the owner of each."""
    found = {}
    for words in map(words_of, text.splitlines()):
        minutes = {
            f"{name}{MINUTES}": left
            for name, told in split_tres(words.get("GrpTRESMins", "")).items()
            if (_COUNTED.fullmatch(name) or name == "mem") and (left := _left(told)) is not None
        }
        wall = _left(words.get("GrpWall", ""))
        if wall is not None:
            minutes[WALL] = wall
        if minutes:
            found[_whose(words)] = minutes
    return found


def _left(told: str) -> int | None:
    """Return what is left of `limit(used)`; None: there is no limit."""
    most, _, used = told.removesuffix(")").partition("(")
    return None if whole(most) is None else int(most) - int(_number(used))


def _whose(words: Mapping[str, str]) -> str:
    if "QOS" in words:
        return f"qos {words['QOS'].partition('(')[0]}"
    user = words.get("UserName", "").partition("(")[0]
    return AssociationState(
        account=words.get("Account", ""), user=user, partition=words.get("Partition", "")
    ).name


def parents_of(associations: Iterable[AssociationState]) -> dict[str, str]:
    """Return the account above each account."""
    return {one.account: one.parent for one in associations if one.parent and not one.user}


def _at_a_time(tres: str, run_minutes: str, jobs: str) -> dict[str, int]:
    """Return how much of each countable resource jobs may have at a time, memory in MiB; no limit, no entry."""
    found = {"jobs": whole(jobs), **_tres_amounts(tres)}
    found |= {f"{name}{RUN_MINUTES}": most for name, most in _tres_amounts(run_minutes).items()}
    return {name: most for name, most in found.items() if most is not None}


def _tres_amounts(tres: str) -> dict[str, int | None]:
    parts = split_tres(tres)
    mem_mib = parse_memory_mib(parts.get("mem", ""))
    found = {name: whole(value) for name, value in parts.items() if _COUNTED.fullmatch(name)}
    return {**found, "mem": None if mem_mib is None else int(mem_mib)}


def parse_reservations(text: str) -> tuple[ReservedNodes, ...]:
    """Read `scontrol --oneliner show reservation`, times as unix seconds; one that holds no nodes is left out."""
    found = (_reservation(words) for words in _records(text, "ReservationName"))
    return tuple(one for one in found if one.nodes)


def _reservation(words: dict[str, str]) -> ReservedNodes:
    tres = parse_tres(words.get("TRES", ""))
    return ReservedNodes(
        name=words["ReservationName"],
        nodes=expand_nodes(words.get("Nodes", "")),
        start_s=_number(words.get("StartTime", "0")),
        end_s=_number(words.get("EndTime", "0")),
        cpus=tres.cpus or 0,
        gpus=tres.gpus or 0,
        users=_listed(words.get("Users", "")),
        accounts=_listed(words.get("Accounts", "")),
    )


def parse_licences(text: str) -> dict[str, int]:
    """Read `scontrol --oneliner show licenses`: how many of each jobs may have at a time, without reserved ones.

    For licences that a server elsewhere hands out, those that others use do not count as free either.
    """
    counts = {
        words["LicenseName"]: [int(_number(words.get(name, "0"))) for name in ("Used", "Free", "Reserved")]
        for words in _records(text, "LicenseName")
    }
    return {name: used + free - reserved for name, (used, free, reserved) in counts.items()}


def parse_terms(text: str) -> SchedulerTerms:
    """Read `scontrol show config`."""
    words = config_words(text)
    select = select_names(words.get("SelectTypeParameters"))
    flags = _listed(words.get("PriorityFlags", "").upper())
    enforced = _listed(words.get("AccountingStorageEnforce", "").lower())
    return SchedulerTerms(
        priority_type=words.get("PriorityType", ""),
        scheduler_type=words.get("SchedulerType", ""),
        parameters=_listed(words.get("SchedulerParameters", "")),
        site_factor_plugin=_site_factor_plugin(words.get("PrioritySiteFactorPlugin", "")),
        weights={
            key.removeprefix(_WEIGHT): weight
            for key, value in words.items()
            if key.startswith(_WEIGHT) and (weight := whole(value)) is not None
        },
        most_age_s=parse_duration_s(words.get("PriorityMaxAge", "")) or 0.0,
        memory_counts=counts_memory(words.get("SelectTypeParameters")),
        counts_threads="CR_CPU" in select,
        one_task_per_core="CR_ONE_TASK_PER_CORE" in select,
        favors_small=words.get("PriorityFavorSmall", "").lower() == "yes",
        size_by_time="SMALL_RELATIVE_TO_TIME" in flags,
        tres_weights=_tres_weights(words.get("PriorityWeightTRES", "")),
        tres_by_amount="NO_NORMAL_TRES" in flags,
        preempt_type=words.get("PreemptType", ""),
        preempt_mode=_mode(words.get("PreemptMode", "")),
        preempt_exempt_s=parse_duration_s(words.get("PreemptExemptTime", "")) or 0.0,
        over_limit_s=_minutes_s(words.get("OverTimeLimit", "").removesuffix(" min")) or 0.0,
        limits_hold=not {"limits", "safe"}.isdisjoint(enforced),
        safe="safe" in enforced,
        counts_from_s=_number(words.get("BOOT_TIME", "")),
        counts_each_s=parse_duration_s(words.get("PriorityCalcPeriod", "")) or 0.0,
        again_s=_again_s(_listed(words.get("AuthInfo", ""))),
        forgets_s=_forgets_s(words.get("MinJobAge", "")),
        # Earlier releases accept MaxTRESRunMinsPU and PA, but do not enforce them.
        counts_for_each=parse_release(words.get("SLURM_VERSION", "0.0")) >= (24, 5),
    )


def _again_s(auth_info: Iterable[str]) -> float:
    """Return how long slurmctld makes a requeued job wait (seconds): until its credential has expired."""
    told = (one.partition("=") for one in auth_info)
    found = [_number(value) for name, _, value in told if name == "cred_expire"]
    return found[0] if found and found[0] > 0 else AGAIN_S


def _forgets_s(min_job_age: str) -> float:
    """Return after how long slurmctld has forgotten a job that has ended, from `300 sec`; with 0 it forgets none."""
    seconds = whole(min_job_age.removesuffix(" sec"))
    if seconds is None:
        return FORGETS_S
    return min(MOST_REMEMBERED_S, seconds + LATE_TO_FORGET_S) if seconds else MOST_REMEMBERED_S


def _tres_weights(text: str) -> dict[str, float]:
    pairs = (pair.partition("=") for pair in _listed(text))
    return {name.lower(): float(weight) for name, _, weight in pairs if _NUMBER.match(weight)}


def parse_qos_states(text: str) -> dict[str, QosState]:
    """Read sacctmgr's QOS_FORMAT; it shows `cluster` for a QOS without a mode.

    Amounts in percent of the cluster (Flags=Relative) are left out: as numbers they would be far too low.
    """
    found = {}
    for row in (line.split("|") for line in text.splitlines()):
        if len(row) != _QOS_FIELDS:
            continue
        name, preempts, mode, exempt, flags, usage_factor, *limits = row
        # Of all its jobs, of each user's, of each account's: TRES, TRES times minutes, and numbers of jobs.
        together, of_user, of_account = limits[:3], limits[3:6], limits[6:9]
        if RELATIVE in _listed(flags):
            together, of_user, of_account = (["", "", jobs] for *_, jobs in (together, of_user, of_account))
        found[name] = QosState(
            preempts=frozenset(_listed(preempts)),
            preempt_mode=_mode(mode),
            exempt_s=parse_duration_s(exempt),
            together=_at_a_time(*together),
            of_user=_at_a_time(*of_user),
            of_account=_at_a_time(*of_account),
            has_budget=any(limits[9:]),
            over_partition="OverPartQOS" in _listed(flags),
            usage_factor=float(usage_factor) if _NUMBER.match(usage_factor) else 1.0,
            usage_factor_asked="UsageFactorSafe" in _listed(flags),
        )
    return found


def _mode(text: str) -> str:
    return "" if text.upper() in ("OFF", "CLUSTER", "DISABLED", *_NOTHING) else text.upper()


def parse_cluster_name(text: str) -> str:
    """Read the cluster's name in `scontrol show config`; '' if it is not there."""
    return config_words(text).get("ClusterName", "")


def parse_factors(text: str) -> dict[int, Factors]:
    """Read sprio's SPRIO_FORMAT; a job that may go to several partitions has a line for each, with the same factors.

    Other lines are ignored.
    """
    found: dict[int, Factors] = {}
    for line in text.splitlines():
        job, *told = (word.strip() for word in line.split("|"))
        if job.isdecimal() and len(told) == 3 and all(map(_NUMBER.match, told)):
            site, fair_share, normalized = map(float, told)
            fixed = site == _NO_SITE_FACTOR or normalized >= 1
            found[int(job)] = Factors(0 if fixed else int(site), fair_share, fixed)
    return found


def _number(text: str) -> float:
    """Return a number as Slurm writes it; 0 for `Unknown` and the like."""
    return float(text) if _NUMBER.match(text) else 0.0


def _minutes_s(text: str) -> float | None:
    """Return a number of minutes in seconds; infinite for `UNLIMITED`, None if there is none."""
    if text == "UNLIMITED":
        return math.inf
    minutes = whole(text)
    return None if minutes is None else 60.0 * minutes


def _span_s(text: str) -> float:
    """Return a span of time in seconds; infinite for `UNLIMITED`, and if there is none."""
    seconds = parse_duration_s(text)
    return math.inf if seconds is None else seconds


def _default_s(text: str) -> float | None:
    """Return a partition's DefaultTime in seconds; None if it has none."""
    return None if text in ("NONE", *_NOTHING) else _span_s(text)


def _site_factor_plugin(name: str) -> str:
    """Return the plugin's name; '' for `site_factor/none` and `(null)`, which 22.05 prints for none."""
    return "" if name in _NOTHING or name.endswith("/none") else name


def _records(text: str, key: str) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        words = words_of(line)
        if key in words:
            yield words


def _named(value: str) -> tuple[str, ...]:
    """Return the names that a partition lists; none if it accepts, or denies, all alike."""
    return () if value.upper() in ("ALL", "NONE") else _listed(value)


def _listed(value: str) -> tuple[str, ...]:
    return () if value in _NOTHING else tuple(value.split(","))
