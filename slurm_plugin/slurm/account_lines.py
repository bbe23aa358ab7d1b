"""Reads what sacctmgr and scontrol print about accounts, users and QOS: limits, and what is left of budgets. Pure.

None of it holds text of a user, only numbers and the words of administrators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from accounting.tres import split_tres
from accounting.units import parse_duration_s, parse_memory_mib, whole
from slurm_plugin.slurm.cluster_lines import listed, number, preempt_mode_of
from slurm_plugin.slurm.limits import NUMBER, RELATIVE, limit_factor_of
from slurm_plugin.slurm.node_words import words_of
from slurm_plugin.slurm.snapshot import MINUTES, RUN_MINUTES, WALL, AssociationState, QosState

_COUNTED = re.compile(r"jobs|cpu|node|billing|gres/gpu(:.+)?")
# What sacctmgr is asked for.
QOS_FORMAT = (
    "Name,Preempt,PreemptMode,PreemptExemptTime,Flags,UsageFactor,LimitFactor,GrpTRES,GrpTRESRunMins,GrpJobs,"
    "MaxTRESPU,MaxTRESRunMinsPU,MaxJobsPU,MaxTRESPA,MaxTRESRunMinsPA,MaxJobsPA,GrpTRESMins,GrpWall"
)
ASSOCIATIONS_FORMAT = (
    "Account,User,Partition,ParentName,GrpTRES,GrpTRESRunMins,GrpJobs,MaxJobs,GrpTRESMins,GrpWall"
)
_ASSOCIATION_FIELDS = len(ASSOCIATIONS_FORMAT.split(","))
_QOS_FIELDS = len(QOS_FORMAT.split(","))


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
    return None if whole(most) is None else int(most) - int(number(used))


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


def parse_qos_states(text: str) -> dict[str, QosState]:
    """Read sacctmgr's QOS_FORMAT; it shows `cluster` for a QOS without a mode.

    Amounts in percent of the cluster (Flags=Relative) are left out: as numbers they would be far too low.
    """
    found = {}
    for row in (line.split("|") for line in text.splitlines()):
        if len(row) != _QOS_FIELDS:
            continue
        name, preempts, mode, exempt, flags, usage_factor, limit_factor, *limits = row
        # Of all its jobs, of each user's, of each account's: TRES, TRES times minutes, and numbers of jobs.
        together, of_user, of_account = limits[:3], limits[3:6], limits[6:9]
        if RELATIVE in listed(flags):
            together, of_user, of_account = (["", "", jobs] for *_, jobs in (together, of_user, of_account))
        found[name] = QosState(
            preempts=frozenset(listed(preempts)),
            preempt_mode=preempt_mode_of(mode),
            exempt_s=parse_duration_s(exempt),
            together=_at_a_time(*together),
            of_user=_at_a_time(*of_user),
            of_account=_at_a_time(*of_account),
            has_budget=any(limits[9:]),
            over_partition="OverPartQOS" in listed(flags),
            usage_factor=float(usage_factor) if NUMBER.match(usage_factor) else 1.0,
            usage_factor_asked="UsageFactorSafe" in listed(flags),
            account_factor=limit_factor_of(limit_factor),
        )
    return found
