"""Which of the site's rules a job falls under, and what then holds for it. Pure."""

from __future__ import annotations

import functools
import hashlib
from fnmatch import fnmatchcase

import msgspec

from accounting.decisions import Mode
from accounting.request import JobRequest
from models.families import normal_name
from slurm_plugin.config import Config, Policy, Rule
from slurm_plugin.policy.facts import SiteFacts
from slurm_plugin.policy.sizing import Limits


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one job. `rule` is the name of the rule it fell under, '' for none.

    `enrolled` is False for the part of a gradual rollout that is only observed.
    """

    mode: Mode
    limits: Limits
    rule: str = ""
    enrolled: bool = True


def terms_for(request: JobRequest, config: Config, facts: SiteFacts) -> Terms:
    """Return what holds for a job: the first rule that fits it, over the site's defaults."""
    rule = next((rule for rule in config.rules if fits(rule, request, facts)), None)
    if rule is None:
        return Terms(mode=config.mode, limits=limits_of(config.policy))
    enrolled = is_enrolled(request, rule.percent)
    return Terms(
        mode=(rule.mode or config.mode) if enrolled else "observe",
        limits=limits_of(msgspec.structs.replace(config.policy, **_changes(rule))),
        rule=rule.name,
        enrolled=enrolled,
    )


def fits(rule: Rule, request: JobRequest, facts: SiteFacts) -> bool:
    """Whether a rule is for a job: each of its lists is empty or has a pattern that matches.

    A job that names several partitions, separated by commas, fits where any of them does.
    """
    partitions = request.partition.split(",")
    return (
        any(_matches(rule.partition, partition) for partition in partitions)
        and _matches(rule.account, request.account)
        and _matches(rule.qos, request.qos)
        and _matches(rule.user, request.user)
        and (not rule.group or any(request.user in facts.groups.get(name, ()) for name in rule.group))
    )


def _matches(patterns: tuple[str, ...], value: str) -> bool:
    return not patterns or any(fnmatchcase(value, pattern) for pattern in patterns)


def is_enrolled(request: JobRequest, percent: int) -> bool:
    """Whether a gradual rollout takes a job: all jobs of one user and name are on the same side for ever."""
    family = f"{request.user}\0{normal_name(request.job_name)}"
    return int.from_bytes(hashlib.sha256(family.encode()).digest()[:8], "big") % 100 < percent


def _changes(rule: Rule) -> dict[str, object]:
    own = msgspec.structs.asdict(rule)
    return {name: own[name] for name in Policy.__struct_fields__ if own.get(name) is not None}


@functools.cache
def limits_of(policy: Policy) -> Limits:
    """Return the site's bounds as the sizing rules take them; what only Slurm knows is not among them."""
    own = msgspec.structs.asdict(policy)
    return Limits(**{name: own[name] for name in Limits.__struct_fields__ if name in own})
