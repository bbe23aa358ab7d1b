"""Predictions and bounds for tests of sizing."""

from __future__ import annotations

from typing import Any

from models.demand.chain import Estimate
from models.demand.prediction import Prediction
from slurm_plugin.policy.limits import Limits


def prediction(**uppers: float | None) -> Prediction:
    estimates: dict[str, Any] = {
        name: None if upper is None else Estimate(upper / 2, upper, 9) for name, upper in uppers.items()
    }
    return Prediction(model="m", basis="9 earlier jobs", jobs_seen=9, gpu_source="nvml", **estimates)


def limits(**changes: Any) -> Limits:
    plain: dict[str, Any] = {
        "memory_floor_mib": 128,
        "memory_step_mib": 32,
        "min_saving": 0.1,
        "def_mem_per_cpu_mib": 0,
    }
    return Limits(**{**plain, **changes})
