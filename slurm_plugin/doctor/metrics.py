"""The doctor's findings, and the figures behind them, as Prometheus metrics. Pure: it writes nothing.

A figure that is not known has no sample. A check that could not be made is NaN, which is neither ok nor a problem.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import get_args

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from slurm_plugin.doctor.finding import Finding, State
from slurm_plugin.doctor.model_checks import counted_drift, largest_drift, last_week
from slurm_plugin.doctor.seen import Complaint, Seen, unread_bytes
from slurm_plugin.policy.braked import Level

VALUE: dict[State, float] = {"ok": 0, "warning": 1, "problem": 2, "unknown": math.nan}

# Each metric's name, its help text, and the label that distinguishes its samples ("" if it has one sample).
CHECK = (
    "rightsizer_check",
    "Result of a check of `rightsizer doctor`: 0 ok, 1 warning, 2 problem.",
    "check",
)
LOOKED = ("rightsizer_doctor_time_seconds", "Time of the doctor's last run, in unix time.", "")
MODEL_AGE = ("rightsizer_model_age_seconds", "Age of the current model, from its training.", "")
INGEST_LAG = ("rightsizer_ingest_lag_seconds", "Time since accounting was last read to its end.", "")
NEWEST_JOB = ("rightsizer_newest_job_age_seconds", "Time since the newest job in the store ended.", "")
UNREAD = (
    "rightsizer_journal_unread_bytes",
    "Size of the part of the decision journal that is not ingested yet.",
    "",
)
DECISION_AGE = ("rightsizer_decision_age_seconds", "Time since the last decision of the hook's service.", "")
ADVISOR_AGE = ("rightsizer_advisor_cycle_age_seconds", "Time since the advisor's last cycle.", "")
ADVISOR_FACTORS = ("rightsizer_advisor_site_factors", "SiteFactors that the advisor has set.", "")
ADVISOR_UNREAD = (
    "rightsizer_advisor_journal_unread_bytes",
    "Size of the part of the advisor's journal that is not ingested yet.",
    "",
)
DRIFT = (
    "rightsizer_feature_drift",
    "The largest population stability index of a feature, minus what chance gives; 0.25 and more is drift.",
    "resource",
)
BEYOND = (
    "rightsizer_week_beyond_model_ratio",
    "The share of the last week's jobs that used more than the model allowed.",
    "resource",
)
ALLOWED = (
    "rightsizer_week_allowed_ratio",
    "The share of jobs that may use more than the model allows.",
    "resource",
)
APART = (
    "rightsizer_users_apart",
    "Users that the model did not learn from, because they differ from all others.",
    "resource",
)

BRAKES = ("rightsizer_brakes_pulled", "Number of pulled brakes; for level all, 1 if it is pulled.", "level")
JUDGED = (
    "rightsizer_judged_jobs",
    "Ended jobs that the brakes have counted: cut and uncut ones, and how many of them failed.",
    "jobs",
)

Metric = tuple[str, str, str]
Sample = tuple[Metric, str, float]


def registry_of(seen: Seen | None, findings: Iterable[Finding], now_s: float) -> CollectorRegistry:
    """Return findings and figures for `prometheus_client` to write; `seen` is None if nothing could be looked at."""
    samples: list[Sample] = [(CHECK, one.check, VALUE[one.state]) for one in findings]
    samples.append((LOOKED, "", now_s))
    if seen is not None:
        samples += _figures(seen)
    registry = CollectorRegistry()
    registry.register(_Samples(samples))
    return registry


def _figures(seen: Seen) -> Iterator[Sample]:
    if not isinstance(seen.model, Complaint):
        yield MODEL_AGE, "", seen.now_s - seen.model.created_s
        yield from ((APART, dimension, len(users)) for dimension, users in seen.model.apart.items())
    if not isinstance(seen.training, Complaint):
        for dimension, found in counted_drift(seen.training.card):
            if (index := largest_drift(found)) is not None:
                yield DRIFT, dimension, index
        for growth in seen.training.card.growth:
            if week := last_week(growth.weeks):
                yield BEYOND, growth.dimension, week.observed
                yield ALLOWED, growth.dimension, week.nominal
    if not isinstance(seen.store, Complaint):
        yield from _ages(INGEST_LAG, seen.store.read_until_s, seen.now_s)
        yield from _ages(NEWEST_JOB, seen.store.newest_end_s, seen.now_s)
        if not isinstance(seen.journal, Complaint) and seen.journal.is_ours:
            yield UNREAD, "", unread_bytes(seen.journal, seen.store)
    if not isinstance(seen.slurm, Complaint) and seen.slurm.asked.last_decision_s is not None:
        yield DECISION_AGE, "", seen.now_s - seen.slurm.asked.last_decision_s
    yield from _of_advisor(seen)
    yield from _of_brakes(seen)


def _of_brakes(seen: Seen) -> Iterator[Sample]:
    if isinstance(seen.brakes, Complaint):
        return
    levels = [brake.level for brake in seen.brakes.stopped.brakes]
    yield from ((BRAKES, level, levels.count(level)) for level in get_args(Level))
    if not seen.brakes.lost:
        yield from (
            (JUDGED, name, value) for name, value in msgspec.structs.asdict(seen.brakes.counts).items()
        )


def _of_advisor(seen: Seen) -> Iterator[Sample]:
    if isinstance(seen.advisor, Complaint) or not seen.advisor.is_ours:
        return
    yield ADVISOR_FACTORS, "", seen.advisor.factors
    if seen.advisor.last_cycle_s is not None:
        yield ADVISOR_AGE, "", seen.now_s - seen.advisor.last_cycle_s
    if not isinstance(seen.store, Complaint):
        yield ADVISOR_UNREAD, "", unread_bytes(seen.advisor, seen.store)


def _ages(metric: Metric, then_s: int | None, now_s: float) -> Iterator[Sample]:
    if then_s is not None:
        yield metric, "", now_s - then_s


class _Samples(Collector):
    """A collector that hands samples to a registry, grouped by metric."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._families: dict[str, GaugeMetricFamily] = {}
        for (name, says, label), value_of, value in samples:
            labels = [label] if label else []
            if name not in self._families:
                self._families[name] = GaugeMetricFamily(name, says, labels=labels)
            self._families[name].add_metric([value_of] if label else [], value)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics."""
        return self._families.values()
