"""How well run times are predicted, by type: by the boosted trees and their peer, and what each resource is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from accounting.records import Attempt
from models.run_time.regression import Judged, NotLearned, judge
from models.run_time.resources import TypeOf, jobs_by_type


class TypeScore(msgspec.Struct, frozen=True, kw_only=True):
    """One type of job, how many of them there are, and what became of judging it."""

    name: str
    jobs: int
    result: Judged | NotLearned


def score_types(
    attempts: Iterable[Attempt], type_of: TypeOf, told: Callable[[float], None]
) -> tuple[TypeScore, ...]:
    """Judge every type of job; return those with most jobs first. `told` is called with the share (0..1) done."""
    types = jobs_by_type(attempts, type_of)
    scores: list[TypeScore] = []
    for name, jobs in types.items():
        scores.append(TypeScore(name=name, jobs=len(jobs.run_s), result=judge(jobs)))
        told(len(scores) / len(types))
    return tuple(sorted(scores, key=lambda score: (-score.jobs, score.name)))


def describe_importances(judged: Judged) -> str:
    """Return what each resource is worth, in words: `read_mib +0.41 ±0.05 *`; a star means more than chance."""
    found = sorted(judged.importances, key=lambda one: -one.mean)
    return ", ".join(
        f"{one.resource} {one.mean:+.3f} ±{one.spread:.3f}{' *' if one.matters else ''}" for one in found
    )
