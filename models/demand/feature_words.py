"""Plain words for every feature of a growth model, for explanations of predictions. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec


class Words(msgspec.Struct, frozen=True):
    """A feature in words; `is_log` if the feature is the logarithm of what the words say."""

    phrase: str
    is_log: bool = False

    def value(self, feature: float) -> float | None:
        """Return a feature's value as the words mean it; None if it is not known (NaN)."""
        if math.isnan(feature):
            return None
        return math.exp(feature) if self.is_log else feature


# Amounts are in the unit of the dimension; jobs are the comparable jobs of the family.
WORDS: Mapping[str, Words] = {
    "jobs_seen": Words("how many earlier jobs are known"),
    "streak": Words("jobs since the last that needed more than all before it"),
    "log_max": Words("the most that one of them needed", is_log=True),
    "log_mean": Words("what they needed on average", is_log=True),
    "log_last": Words("what the last of them needed", is_log=True),
    "log_spread": Words("the factor by which they differ", is_log=True),
    "log_rise": Words("the factor by which they exceed their median", is_log=True),
    "last_over_max": Words("the last one, as a share of the highest", is_log=True),
    "asked_over_max": Words("what is asked for, as a multiple of the highest", is_log=True),
    "log_asked": Words("what is asked for", is_log=True),
    "num_tasks": Words("how many tasks"),
    "log_asked_cpus": Words("how many CPUs are asked for", is_log=True),
    "asked_gpus": Words("how many GPUs are asked for"),
    "log_limit": Words("the time limit (s)", is_log=True),
    "user_use_of_asked": Words("the share of their requests that this user's jobs used", is_log=True),
}
