"""Reads what scontrol and sprio print about nodes, partitions, reservations, settings and priorities. Pure.

None of it holds text of a user, only numbers and the words of administrators. What an administrator gives as a reason
or comment may look like other words of Slurm's, but comes after them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

import msgspec

from accounting.tres import parse_tres
from accounting.units import parse_duration_s, whole
from slurm_plugin.policy.facts import MemoryTerms, gives_whole_sockets
from slurm_plugin.slurm.hostlist import expand_nodes
from slurm_plugin.slurm.limits import (
    NUMBER,
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
    MOST_REMEMBERED_S,
    NodeState,
    PartitionState,
    ReservedNodes,
    SchedulerTerms,
)

# Which cores of a node a reservation holds, of one that does not hold whole nodes: `NodeName=n1 CoreIDs=0-3,8`.
_CORES = re.compile(r" NodeName=(\S+) CoreIDs=(\S+)")
_WEIGHT = "PriorityWeight"
# A node that is powered down is not away: Slurm wakes it for a job.
_AWAY = AWAY | {"REBOOT_ISSUED", "UNKNOWN"}
_NOTHING = ("(null)", "N/A", "")
_NO_TERMS = MemoryTerms()
# What sprio is asked for. Its normalized priority is below 1, except that a priority that was set directly is printed
# as it is; for such a job that may go to several partitions, 22.05 prints the lowest possible SiteFactor.
SPRIO_FORMAT = "%i|%S|%f|%y"
_NO_SITE_FACTOR = -(2**31)


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
                features=listed(words.get("AvailableFeatures", "")),
                gpu_types=tuple((name, count) for name, count in gpus_of(words).items() if name),
                partitions=listed(words.get("Partitions", "")),
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
            tier=int(number(words.get("PriorityTier", "1"))),
            up=words.get("State", "UP") in ("UP", "DRAIN"),
            longest_s=_span_s(words.get("MaxTime", "")),
            whole_sockets=gives_whole_sockets(parameters_in(words.get("SelectTypeParameters"), parameters)),
            preempt_mode=preempt_mode_of(words.get("PreemptMode", "")),
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


def parse_reservations(text: str) -> tuple[ReservedNodes, ...]:
    """Read `scontrol --oneliner show reservation`, times as unix seconds; one that holds no nodes is left out."""
    found = map(_reservation, (line for line in text.splitlines() if line.startswith("ReservationName=")))
    return tuple(one for one in found if one.nodes)


def _reservation(line: str) -> ReservedNodes:
    words = words_of(line)
    tres = parse_tres(words.get("TRES", ""))
    return ReservedNodes(
        name=words["ReservationName"],
        nodes=expand_nodes(words.get("Nodes", "")),
        start_s=number(words.get("StartTime", "0")),
        end_s=number(words.get("EndTime", "0")),
        cpus=tres.cpus or 0,
        gpus=tres.gpus or 0,
        cores=tuple((node, len(expand_nodes(f"[{ids}]"))) for node, ids in _CORES.findall(line)),
        users=listed(words.get("Users", "")),
        accounts=listed(words.get("Accounts", "")),
    )


def parse_licences(text: str) -> dict[str, int]:
    """Read `scontrol --oneliner show licenses`: how many of each jobs may have at a time, without reserved ones.

    For licences that a server elsewhere hands out, those that others use do not count as free either.
    """
    counts = {
        words["LicenseName"]: [int(number(words.get(name, "0"))) for name in ("Used", "Free", "Reserved")]
        for words in _records(text, "LicenseName")
    }
    return {name: used + free - reserved for name, (used, free, reserved) in counts.items()}


def parse_terms(text: str) -> SchedulerTerms:
    """Read `scontrol show config`."""
    words = config_words(text)
    select = select_names(words.get("SelectTypeParameters"))
    flags = listed(words.get("PriorityFlags", "").upper())
    enforced = listed(words.get("AccountingStorageEnforce", "").lower())
    return SchedulerTerms(
        priority_type=words.get("PriorityType", ""),
        scheduler_type=words.get("SchedulerType", ""),
        parameters=listed(words.get("SchedulerParameters", "")),
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
        preempt_mode=preempt_mode_of(words.get("PreemptMode", "")),
        preempt_exempt_s=parse_duration_s(words.get("PreemptExemptTime", "")) or 0.0,
        over_limit_s=_minutes_s(words.get("OverTimeLimit", "").removesuffix(" min")) or 0.0,
        limits_hold=not {"limits", "safe"}.isdisjoint(enforced),
        safe="safe" in enforced,
        counts_from_s=number(words.get("BOOT_TIME", "")),
        counts_each_s=parse_duration_s(words.get("PriorityCalcPeriod", "")) or 0.0,
        again_s=_again_s(listed(words.get("AuthInfo", ""))),
        forgets_s=_forgets_s(words.get("MinJobAge", "")),
        # Earlier releases accept MaxTRESRunMinsPU and PA, but do not enforce them.
        counts_for_each=parse_release(words.get("SLURM_VERSION", "0.0")) >= (24, 5),
    )


def _again_s(auth_info: Iterable[str]) -> float:
    """Return how long slurmctld makes a requeued job wait (seconds): until its credential has expired."""
    told = (one.partition("=") for one in auth_info)
    found = [number(value) for name, _, value in told if name == "cred_expire"]
    return found[0] if found and found[0] > 0 else AGAIN_S


def _forgets_s(min_job_age: str) -> float:
    """Return after how long slurmctld has forgotten a job that has ended, from `300 sec`; with 0 it forgets none."""
    seconds = whole(min_job_age.removesuffix(" sec"))
    if seconds is None:
        return FORGETS_S
    return min(MOST_REMEMBERED_S, seconds + LATE_TO_FORGET_S) if seconds else MOST_REMEMBERED_S


def _tres_weights(text: str) -> dict[str, float]:
    pairs = (pair.partition("=") for pair in listed(text))
    return {name.lower(): float(weight) for name, _, weight in pairs if NUMBER.match(weight)}


def preempt_mode_of(text: str) -> str:
    """Return a PreemptMode in capitals; '' if there is none."""
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
        if job.isdecimal() and len(told) == 3 and all(map(NUMBER.match, told)):
            site, fair_share, normalized = map(float, told)
            fixed = site == _NO_SITE_FACTOR or normalized >= 1
            found[int(job)] = Factors(0 if fixed else int(site), fair_share, fixed)
    return found


def number(text: str) -> float:
    """Return a number as Slurm writes it; 0 for `Unknown` and the like."""
    return float(text) if NUMBER.match(text) else 0.0


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
    return () if value.upper() in ("ALL", "NONE") else listed(value)


def listed(value: str) -> tuple[str, ...]:
    """Return the parts of a list with commas; none of `(null)` and `N/A`."""
    return () if value in _NOTHING else tuple(value.split(","))
