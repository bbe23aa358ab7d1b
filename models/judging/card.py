"""The model card: what a person should know of a model before trusting it. Pure: a value, and the same in words.

Nothing in it depends on when it was made, so that the same training gives the same card.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import msgspec

from accounting.units import counted
from models.judging.drift import FeatureDrift, WeekCalibration
from models.judging.health import GrowthHealth, drift_of, health_of
from models.judging.outcomes import DIMENSIONS
from models.judging.promotion import NEW, Comparison, Verdict
from models.past.jobs import Learned
from models.training.quantile import SEED
from models.training.training import Trained, libraries
from models.versions.artefact import CARD_JSON, CARD_MD

# No more features than a reader looks at.
MOST_FEATURES = 6
BY_WEEK = (
    "The latest jobs by week, compared with a model that was made in the same way from the earlier "
    "jobs. The jobs that a user runs in one week are not independent of each other; the column "
    '"independent jobs" allows for that:'
)


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A model's card. Times are unix seconds; `verdict` is the gate's, None if the gate was not asked."""

    first_submit_s: int
    last_end_s: int
    attempts: int
    users: int
    families: int
    seed: int
    libraries: dict[str, str]
    verdict: Verdict | None
    growth: tuple[GrowthHealth, ...]
    drift: dict[Learned, tuple[FeatureDrift, ...]]


def card_of(trained: Trained, verdict: Verdict | None, most_failures: float) -> Card:
    """Return the card of what was trained."""
    seen = trained.seen
    return Card(
        first_submit_s=seen.first_submit_s,
        last_end_s=seen.last_end_s,
        attempts=seen.attempts,
        users=seen.users,
        families=sum(1 for _ in trained.history.items()),
        seed=SEED,
        libraries=libraries(),
        verdict=verdict,
        growth=health_of(trained, most_failures),
        drift=drift_of(trained),
    )


def card_files(card: Card) -> dict[str, bytes]:
    """Return the card as the files of an artefact."""
    document = msgspec.json.format(msgspec.json.encode(card), indent=1)
    return {CARD_JSON: document, CARD_MD: markdown(card).encode()}


def markdown(card: Card) -> str:
    """Return a card for people."""
    whose = f"{counted(card.attempts, 'attempt')} of {counted(card.users, 'user')}"
    window = f"{_day(card.first_submit_s)} to {_day(card.last_end_s)} UTC"
    parts = [
        "# Model card",
        f"{whose}, {window}; {card.families} families and cohorts.",
        "## Promotion",
        *_promotion(card.verdict),
        "## Growth models",
        *(_growth(one) for one in card.growth),
        *(
            []
            if card.growth
            else ["None: too few jobs had a past. Only the families' own history and tail are used."]
        ),
        "## Drift",
        (
            "PSI of the latest jobs against earlier ones, minus chance: stable < 0.1 < shifted < 0.25 < "
            "drifted."
        ),
        _drift(card.drift),
        "## Made with",
        f"Seed {card.seed}; "
        + ", ".join(f"{name} {version}" for name, version in sorted(card.libraries.items())),
    ]
    return "\n\n".join(parts) + "\n"


def _promotion(verdict: Verdict | None) -> Iterable[str]:
    if verdict is None:
        yield "The gate was not asked."
        return
    word = "Passed" if verdict.passed else "Refused"
    since = f", submitted from {_day(verdict.split_s)}" if verdict.judged else ""
    yield f"{word} against the {verdict.opponent}, on {counted(verdict.judged, 'job')}{since}."
    yield "\n".join(f"- {reason}" for reason in verdict.reasons)
    if verdict.comparisons:
        yield _table(
            ("resource", "unit", "method", "jobs", "resized", "failed", "requested", "granted", "saved"),
            [row for one in verdict.comparisons for row in _compared(one, verdict.opponent)],
        )


def _compared(one: Comparison, opponent: str) -> Iterable[tuple[object, ...]]:
    for method, tally in ((opponent, one.old), (NEW, one.new)):
        yield (
            one.dimension,
            DIMENSIONS[one.dimension],
            method,
            tally.jobs,
            tally.resized,
            tally.failed,
            f"{tally.requested:.2f}",
            f"{tally.granted:.2f}",
            f"{tally.saved_share:.1%}",
        )


def _growth(health: GrowthHealth) -> str:
    apart = (
        f"; {health.apart} users are not learned from, because they differ from all others"
        if health.apart
        else ""
    )
    parts = [
        f"### {health.dimension}",
        f"Trained on {health.rows} jobs, calibrated on {health.calibrated_on} later ones{apart}.",
        (
            'In all of this, jobs are weighted by user; "equal jobs" is the number of equally weighted '
            "jobs that say as much."
        ),
        "Calibration: computed on the earlier half of the later jobs, counted on the other half:",
        _table(
            ("may exceed", "exceeded", "equal jobs"),
            [(f"{one.nominal:.1%}", f"{one.observed:.1%}", one.jobs) for one in health.calibration],
        ),
        BY_WEEK,
        _table(
            ("week from", "jobs", "independent jobs", "may exceed", "exceeded", "in a word"),
            [_counted(week) for week in health.weeks],
        ),
        "What shuffling a feature adds to the loss (permutation importance):",
        _table(
            ("feature", "adds", "spread"),
            [
                (one.resource, f"{one.mean:+.5f}", f"{one.spread:.5f}")
                for one in health.importance[:MOST_FEATURES]
            ],
        ),
    ]
    return "\n\n".join(parts)


def _counted(week: WeekCalibration) -> tuple[object, ...]:
    return (
        _day(week.from_s),
        week.rows,
        week.jobs,
        f"{week.nominal:.1%}",
        f"{week.observed:.1%}",
        week.word,
    )


def _drift(drift: dict[Learned, tuple[FeatureDrift, ...]]) -> str:
    rows = [
        (dimension, one.feature, f"{one.psi:.3f}", f"{one.by_chance:.3f}", one.before, one.latest, one.word)
        for dimension, found in drift.items()
        for one in found[:MOST_FEATURES]
    ]
    return _table(
        ("resource", "feature", "PSI", "by chance", "jobs before", "latest jobs", "in a word"), rows
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return "Too few jobs to judge."
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _day(at_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at_s))
