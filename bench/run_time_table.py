"""The run times of the resource-demand paper, learned again from public traces, and what its Algorithm 1 would save.

    python -m bench.run_time_table [--traces DIR] [--plots DIR] [--only PATTERN]
        [--least-median-s S] [--show errors|goals|worth|scaling] [--format table|json|csv]

The paper's own trace (Alibaba PAI 2020) is not available, so its Table 3 is reproduced on the nextflow traces in
$RIGHTSIZER_TRACES: for each type of job, XGBoost and the random forest learn from the earlier jobs and are judged
on the later ones. A type is trusted if the earlier jobs alone, split once more, say that its model will do, as a
site would find at that time (models/run_time/strategy.py). Then Algorithm 1 scales what the later jobs of these
types requested, over its α, Δα and θ. Savings are hours of the request; the cost is what the model predicts, and
how many jobs were left with less than they had really used.
"""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Callable
from pathlib import Path

from bench.arguments import add_traces, folder_with, parser_of, print_tables
from bench.memory_sizing import check_plots
from bench.memory_traces import NEXTFLOW
from bench.run_time_sweep import WANTED_WMAPE, Learned, settings_of, swept
from bench.run_time_traces import LEAST_MEDIAN_S, TracedType, read_types
from models.chance import RARE
from models.run_time.regression import (
    FOREST,
    FOREST_ON_LAWS,
    XGBOOST,
    Judged,
    Method,
    NotLearned,
    judge,
    nearer_by_chance,
)
from models.run_time.strategy import type_model
from slurm_plugin.cli.output import note

COLUMNS: dict[Method, str] = {XGBOOST: "XGBoost", FOREST: "forest", FOREST_ON_LAWS: "law + forest"}
METHODS = tuple(COLUMNS)
SHOWN = ("errors", "goals", "worth", "scaling")
PAPER = (
    ("CTR (paper)", 0.16, 13.0, 0.17, 14.0),
    ("ResNet (paper)", 1.45, 15.0, 1.46, 16.0),
    ("NMT (paper)", 0.75, 11.0, 1.01, 15.0),
)


def main() -> None:
    """Measure and print, and plot where asked."""
    parser = parser_of(__doc__)
    add_traces(parser)
    parser.add_argument("--plots", type=Path, help="a folder for PNG files")
    parser.add_argument("--only", default="*", help="types whose names fit this pattern")
    parser.add_argument(
        "--least-median-s", type=float, default=LEAST_MEDIAN_S, help="leave out shorter types"
    )
    parser.add_argument("--show", choices=SHOWN, help="one table; else all, of json and csv the errors")
    arguments = parser.parse_args()
    traces = folder_with(arguments.traces, NEXTFLOW)
    if arguments.plots:
        check_plots()
    types, unfit = read_types(traces, arguments.least_median_s)
    note(f"{len(types)} types are fit; not fit are {', '.join(unfit)}")
    learned = learn_all([one for one in types if fnmatch.fnmatch(one.name, arguments.only)])
    if not learned:
        sys.exit(
            f"no type could be judged that fits {arguments.only}; the types are {[t.name for t in types]}"
        )
    rows = [error_row(one) for one in learned]
    points = [swept(learned, setting) for setting in settings_of()]
    tables = {
        "errors": (
            "Run time on later jobs, as the paper's Table 3 (MAE in s, WMAPE in %)",
            rows + [paper_row(*figures) for figures in PAPER],
        ),
        "goals": ("Goals", summary(learned)),
        "worth": ("What each resource is worth", [worth_row(one) for one in learned]),
        "scaling": ("Algorithm 1 on what the later jobs asked", [point.row() for point in points]),
    }
    print_tables(tables, arguments)
    if arguments.plots:
        from bench.run_time_plots import plot_errors, plot_sweep

        arguments.plots.mkdir(parents=True, exist_ok=True)
        for file in (plot_errors(learned, arguments.plots), plot_sweep(points, arguments.plots)):
            note(f"wrote {file}")


def learn_all(types: list[TracedType]) -> list[Learned]:
    """Judge each type by each method; types from which nothing can be learned are named and left out."""
    learned = []
    for number, traced in enumerate(types, start=1):
        note(f"{number} of {len(types)}: {traced.name}")
        judged = judge(traced.jobs, METHODS)
        if not isinstance(judged, Judged):
            note(f"{traced.name}: {judged.reason}")
            continue
        model = type_model(traced.jobs.part(0, judged.learned_from))
        if isinstance(model, NotLearned):
            note(f"{traced.name} is not trusted: {model.reason}")
        learned.append(Learned(traced=traced, judged=judged, model=model))
    return learned


def error_row(one: Learned) -> dict[str, object]:
    """Return a type's errors; MAE in seconds, WMAPE in %. `median` is the method that always predicts the median."""
    judged = one.judged
    row: dict[str, object] = {
        "type": one.traced.name,
        "learned": judged.learned_from,
        "judged": judged.judged,
        "mean run": round(float(one.traced.jobs.run_s.mean()), 1),
    }
    for method, words in COLUMNS.items():
        row[f"{words} MAE"] = round(judged.errors[method].mae_s, 2)
        row[f"{words} WMAPE"] = round(100 * judged.errors[method].wmape, 2)
    return row | {
        "median WMAPE": round(100 * judged.median.wmape, 2),
        "ahead": "yes" if is_ahead(judged) else "no",
        "by chance": round(chance(one), 3),
        "≤ 15 %": "yes" if judged.errors[XGBOOST].wmape <= WANTED_WMAPE else "no",
        "trusted": "no" if isinstance(one.model, NotLearned) else "yes",
    }


def paper_row(
    name: str, mae: float, wmape: float, forest_mae: float, forest_wmape: float
) -> dict[str, object]:
    """Return one of the paper's own rows, whose MAE has no unit."""
    told = {
        f"{COLUMNS[XGBOOST]} MAE": mae,
        f"{COLUMNS[XGBOOST]} WMAPE": wmape,
        f"{COLUMNS[FOREST]} MAE": forest_mae,
        f"{COLUMNS[FOREST]} WMAPE": forest_wmape,
    }
    absent = dict.fromkeys(("learned", "judged", "mean run", "by chance"))
    others = {
        f"{COLUMNS[FOREST_ON_LAWS]} MAE": None,
        f"{COLUMNS[FOREST_ON_LAWS]} WMAPE": None,
        "median WMAPE": None,
    }
    return {"type": name, **absent, **told, **others, "ahead": "yes", "≤ 15 %": "yes", "trusted": None}


def is_ahead(judged: Judged, peer: Method = FOREST) -> bool:
    """Whether XGBoost errs less than a peer; on the same jobs, MAE and WMAPE always agree."""
    return judged.errors[XGBOOST].wmape < judged.errors[peer].wmape


def chance(one: Learned) -> float:
    """Return the probability (0..1) that the two differ this much on later jobs if neither is better."""
    said_s = one.judged.predicted_s
    return nearer_by_chance(said_s[XGBOOST], said_s[FOREST], one.traced.jobs.run_s[one.judged.learned_from :])


def summary(learned: list[Learned]) -> list[dict[str, object]]:
    """Return a row for each goal, for all types and for trusted ones: how many meet it, and which do not."""
    tests: tuple[tuple[str, Callable[[Learned], bool]], ...] = (
        ("XGBoost ahead of the random forest", lambda one: is_ahead(one.judged)),
        ("… or not behind it by more than chance", lambda one: is_ahead(one.judged) or chance(one) > RARE),
        ("… and ahead by more than chance", lambda one: is_ahead(one.judged) and chance(one) <= RARE),
        (
            "XGBoost ahead of a forest on the same laws",
            lambda one: is_ahead(one.judged, FOREST_ON_LAWS),
        ),
        (f"WMAPE ≤ {WANTED_WMAPE:.0%}", lambda one: one.judged.errors[XGBOOST].wmape <= WANTED_WMAPE),
        ("XGBoost ahead of the median", lambda one: one.judged.tells),
    )
    trusted = [one for one in learned if not isinstance(one.model, NotLearned)]
    return [
        {
            "goal": name,
            "of": of,
            "types": len(types),
            "holds": sum(holds(one) for one in types),
            "not for": ", ".join(one.traced.name for one in types if not holds(one)) or "-",
        }
        for of, types in (("all types", learned), ("types trusted before", trusted))
        for name, holds in tests
    ]


def worth_row(one: Learned) -> dict[str, object]:
    """Return each resource's worth to a type's model: what shuffling it adds to WMAPE; a star means not by chance."""
    found = {importance.resource: importance for importance in one.judged.importances}
    row: dict[str, object] = {"type": one.traced.name}
    for resource in one.traced.jobs.resources:
        worth = found.get(resource)
        star = " *" if worth and worth.matters else ""
        row[resource] = f"{worth.mean:+.3f} ±{worth.spread:.3f}{star}" if worth else "constant"
    return row


if __name__ == "__main__":
    main()
