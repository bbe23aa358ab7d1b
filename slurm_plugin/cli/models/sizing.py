"""The site's policy as functions that size a request, for evaluating it on the store or job by job on a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from accounting.request import JobRequest
    from models.demand.prediction import Predictor
    from models.judging.online import Granted
    from models.judging.outcomes import Sizing
    from slurm_plugin.policy.limits import Limits


def policy_sizing(config: Config) -> Callable[[Predictor], Sizing]:
    """Return a function from a predictor to a sizing by the site's policy."""
    from accounting.request import granted
    from slurm_plugin.policy.rules import limits_of
    from slurm_plugin.policy.sizing import size

    limits = limits_of(config.policy)

    def of(predictor: Predictor) -> Sizing:
        def sizing(request: JobRequest) -> JobRequest:
            return granted(request, size(request, predictor.predict(request), limits).grant)

        return sizing

    return of


def online_grant(config: Config) -> Granted:
    """Return a function that sizes a request with a predictor and the site's policy, and gives the reasons."""
    from slurm_plugin.policy.rules import limits_of

    limits = limits_of(config.policy)
    return lambda predictor, request: _cut(request, predictor, limits)


def enforced_grant(config: Config) -> Granted:
    """Return the same with the site's rules, as if the mode were `enforce` unless a rule says otherwise.

    It does not consider what only Slurm knows (a QOS's minimum, MaxMemPerCPU), nor the script. Raises ConfigError if
    a rule names a group that does not exist.
    """
    from slurm_plugin.policy.facts import SiteFacts
    from slurm_plugin.policy.rules import terms_for
    from slurm_plugin.slurm.groups import members_of_rules

    enforcing = msgspec.structs.replace(config, mode="enforce")
    facts = SiteFacts(groups=members_of_rules(config))

    def grant(predictor: Predictor, request: JobRequest) -> tuple[JobRequest, str]:
        terms = terms_for(request, enforcing, facts)
        if terms.mode != "enforce":
            return request, f"rule {terms.rule}: {terms.mode}"
        return _cut(request, predictor, terms.limits)

    return grant


def _cut(request: JobRequest, predictor: Predictor, limits: Limits) -> tuple[JobRequest, str]:
    from accounting.request import granted
    from slurm_plugin.policy.sizing import size

    sized = size(request, predictor.predict(request), limits)
    reasons = (f"{part.dimension}: {part.reason}" for part in sized.reasons if part.asked is not None)
    return granted(request, sized.grant), "; ".join(reasons)
