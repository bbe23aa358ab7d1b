"""The site's policy as what judges call to size a request: over the store, and job by job over a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from slurm_plugin.config import Config

if TYPE_CHECKING:
    from accounting.request import JobRequest
    from models.demand.prediction import Predictor
    from models.evaluate import Sizing
    from models.online import Granted


def policy_sizing(config: Config) -> Callable[[Predictor], Sizing]:
    """Return what the site's policy would grant on a predictor's word."""
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
    """Return what turns a predictor's word on a request into a grant by the site's policy, and the reason."""
    from accounting.request import granted
    from slurm_plugin.policy.rules import limits_of
    from slurm_plugin.policy.sizing import size

    limits = limits_of(config.policy)

    def grant(predictor: Predictor, request: JobRequest) -> tuple[JobRequest, str]:
        sized = size(request, predictor.predict(request), limits)
        reasons = (f"{part.dimension}: {part.reason}" for part in sized.reasons if part.asked is not None)
        return granted(request, sized.grant), "; ".join(reasons)

    return grant
