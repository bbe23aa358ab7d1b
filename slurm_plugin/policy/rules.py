"""Which of the site's rules applies to a job, and what terms follow from it. Pure."""

from __future__ import annotations

import functools
import hashlib
import re
from fnmatch import fnmatchcase

import msgspec

from accounting.decisions.decision import Mode
from accounting.request import JobRequest
from models.past.job_names import normal_name
from slurm_plugin.config.settings import Config, Policy, Rule
from slurm_plugin.policy.braked import Brake, brake_on
from slurm_plugin.policy.facts import SiteFacts
from slurm_plugin.policy.limits import Limits

# The rule for a job that no other rule fits.
EVERYTHING = Rule(name="none")
_NUMBER = re.compile(r"\d+")


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What applies to one job. `rule` is the name of the rule that fits it, '' for none.

    `enrolled` is False for the part of a gradual rollout that is only observed, and for its control group. `brake`
    overrides whatever the rule says; None for most jobs.
    """

    mode: Mode
    limits: Limits
    rule: str = ""
    enrolled: bool = True
    brake: Brake | None = None


def terms_for(request: JobRequest, config: Config, facts: SiteFacts) -> Terms:
    """Return the terms for a job: those of the first rule that fits it, on top of the site's defaults."""
    rule = next((rule for rule in config.rules if fits(rule, request, facts)), EVERYTHING)
    enrolled = is_enrolled(request, rule.percent) and not is_control(request, config.brakes.control_share)
    brake = brake_on(request, facts.partition_names(request), facts.brakes)
    return Terms(
        mode=(rule.mode or config.mode) if enrolled and brake is None else "observe",
        limits=limits_under(config.policy, rule),
        rule="" if rule is EVERYTHING else rule.name,
        enrolled=enrolled,
        brake=brake,
    )


def fits(rule: Rule, request: JobRequest, facts: SiteFacts) -> bool:
    """Whether a rule fits a job: each of its lists is empty or has a pattern that matches.

    A job that names several partitions or QOS (24.11 and later), separated by commas, fits if any of them does. A job
    that names no partition counts as in the default one, if that is known.
    """
    partitions = facts.partition_names(request) or [""]
    return (
        any(_matches(rule.partition, partition) for partition in partitions)
        and _matches_in_any_case(rule.account, request.account)
        and any(_matches_in_any_case(rule.qos, qos) for qos in request.qos.split(","))
        and _matches(rule.user, request.user)
        and (not rule.job_name or _matches(_name_patterns(rule), normal_name(request.job_name)))
        and (not rule.group or any(request.user in facts.groups.get(name, ()) for name in rule.group))
    )


@functools.cache
def _name_patterns(rule: Rule) -> tuple[str, ...]:
    """Return the rule's patterns of job names in the form that `normal_name` gives a name."""
    return tuple(
        _NUMBER.sub("#", pattern.lower().rstrip("/").rsplit("/", 1)[-1]) for pattern in rule.job_name
    )


def _matches(patterns: tuple[str, ...], value: str) -> bool:
    return not patterns or any(fnmatchcase(value, pattern) for pattern in patterns)


def _matches_in_any_case(patterns: tuple[str, ...], value: str) -> bool:
    """Match an account or QOS: for Slurm, Physics and physics are the same."""
    return _matches(tuple(pattern.lower() for pattern in patterns), value.lower())


def is_enrolled(request: JobRequest, percent: int) -> bool:
    """Whether a gradual rollout includes a job: all jobs of one user and name stay on the same side for ever."""
    return percent >= 100 or _lot(request, "") % 100 < percent


def is_control(request: JobRequest, share: float) -> bool:
    """Whether a job is in the control group: this share of all families is never cut, to compare the others with."""
    return share > 0 and _lot(request, "control") < share * 2**64


def _lot(request: JobRequest, drawn_for: str) -> int:
    """Return a number below 2^64 that is the same for all jobs of a family."""
    family = f"{request.user}\0{normal_name(request.job_name)}{drawn_for and chr(0) + drawn_for}"
    return int.from_bytes(hashlib.sha256(family.encode()).digest()[:8], "big")


@functools.cache
def limits_under(policy: Policy, rule: Rule) -> Limits:
    """Return the site's bounds for a job to which a rule applies."""
    own = msgspec.structs.asdict(rule)
    changes = {name: own[name] for name in Policy.__struct_fields__ if own.get(name) is not None}
    return limits_of(msgspec.structs.replace(policy, **changes))


def limits_of(policy: Policy) -> Limits:
    """Return the site's bounds in the form that sizing uses, without those that only Slurm knows."""
    own = msgspec.structs.asdict(policy)
    return Limits(**{name: own[name] for name in Limits.__struct_fields__ if name in own})
