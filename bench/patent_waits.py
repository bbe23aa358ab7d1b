"""Who waits how long under the patent's method, FIFO and largest-first, on the same days; which plan it takes, and why.

    python -m bench.patent_waits [--traces DIR] [--load philly|seeded] [--suppliers N] [--show TABLE] [--format FORMAT]

Philly's virtual clusters (or seeded consumers, if there is no trace) are the demanders, days the windows; the
trace's volumes stand for a correct forecast. A cluster with as many GPUs as the mean day keeps busy is divided into
equal suppliers; a demander whose turn it is has a whole supplier. Every consumer's demand is there when its day
begins. Durations are planned by the map learned from the days before, and the first week is only for learning. No
job ran like this: all times are simulated.

`waits`: each order served with the real durations, to the end. `goals`: waits under the patent's method over the
others', before and after its choice by performance. `map`: the errors of planned durations. `candidates`: blocking
and variance by slice, on days whose planned demand is not met. `reasons`: what decided which slice is used, how
often, and what it gained. `choices`: the same day by day, in words. `each`: every candidate of every day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import numpy.typing as npt

from bench.arguments import add_traces, folder_with, parser_of, print_tables
from bench.figures import goal
from bench.patent_loads import DAY_S, PHILLY, Day, philly_days, seeded_days
from bench.patent_tables import (
    SLICES_S,
    Planned,
    candidate_rows,
    choice_rows,
    each_rows,
    map_rows,
    reason_rows,
)
from models.scheduling.checks import Floats, Order
from models.scheduling.duration_map import fit_duration_map
from models.scheduling.heap_order import heap_preorder
from models.scheduling.round_robin import serve
from models.scheduling.slice_plan import Supply, plan
from models.scheduling.time_slices import choose_slice
from slurm_plugin.cli.output import note

TAUGHT_DAYS = 7
HOUR_S, WHOLE_S = 3600.0, 1e9
HEAPS = 20
SHOWN = ("waits", "goals", "map", "candidates", "reasons", "choices", "each")


# Returns an order and a slice for a day, given a random generator for heaps.
Method = Callable[[Planned, numpy.random.Generator], tuple[Order, float]]


def main() -> None:
    """Print all tables but `each`, or one."""
    parser = parser_of(__doc__)
    add_traces(parser)
    parser.add_argument(
        "--load", choices=["philly", "seeded"], help="else Philly where it is, and seeded else"
    )
    parser.add_argument("--suppliers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", choices=SHOWN)
    arguments = parser.parse_args()
    days, load = read_days(arguments.load, arguments.traces, arguments.seed)
    planned = list(planned_days(days, arguments.suppliers, arguments.seed))
    suppliers = f"{arguments.suppliers} supplier{'s' * (arguments.suppliers > 1)}"
    note(f"{load}: {len(planned)} days planned, {len(days) - len(planned)} taught first, {suppliers}")
    waits = wait_rows(planned, arguments.suppliers, arguments.seed)
    tables = {
        "waits": ("Waits (hours)", waits),
        "goals": ("Goals: waits under the patent's method over those of others", goals(waits)),
        "map": ("Planned durations", map_rows(planned)),
        "candidates": (
            "Candidates by slice, on days when supply does not meet demand (all of them: --show each)",
            candidate_rows(planned),
        ),
        "reasons": ("What is chosen by performance, and why", reason_rows(planned)),
        "choices": ("The choice of each day", choice_rows(planned)),
        "each": ("Each candidate", each_rows(planned)),
    }
    if not arguments.show:
        del tables["each"]
    print_tables(tables, arguments)


def read_days(load: str | None, traces: Path, seed: int) -> tuple[list[Day], str]:
    """Return the days of the requested load, and its description."""
    if load == "seeded" or (load is None and not (traces / PHILLY).is_file()):
        return seeded_days(seed), f"seeded load (seed {seed})"
    return philly_days(folder_with(traces, str(PHILLY))), "Philly, virtual clusters by day"


def planned_days(days: list[Day], suppliers: int, seed: int) -> Iterator[Planned]:
    """Yield each day after the first week, planned by what the days before it teach."""
    # What one supplier does in a second, in a cluster that the mean day fills.
    gpus = float(numpy.mean([day.gpu_s.sum() for day in days])) / DAY_S / suppliers
    supply = Supply(suppliers=suppliers, window_s=DAY_S, slices_s=SLICES_S)
    generator = numpy.random.default_rng(seed)
    for number, day in enumerate(days[TAUGHT_DAYS:], TAUGHT_DAYS):
        volumes = numpy.concatenate([past.volumes for past in days[:number]])
        durations_s = numpy.concatenate([past.gpu_s for past in days[:number]]) / gpus
        planned_s = fit_duration_map(volumes, durations_s).durations_of(day.volumes)
        names = numpy.concatenate([past.consumers for past in days[:number]])
        yield Planned(
            day=day,
            planned_s=planned_s,
            by_volume_s=day.volumes * (durations_s.sum() / volumes.sum()),
            own_mean_s=numpy.array([_own_mean(durations_s, names == name) for name in day.consumers]),
            real_s=day.gpu_s / gpus,
            plan=plan(day.volumes, planned_s, supply, generator),
        )


def _own_mean(durations_s: Floats, own: npt.NDArray[numpy.bool_]) -> float:
    """Return the mean of a consumer's own durations, or that of all if it has none."""
    return float(durations_s[own].mean() if own.any() else durations_s.mean())


def _came(planned: Planned) -> Order:
    return numpy.arange(len(planned.day.volumes))


def _heap(planned: Planned, generator: numpy.random.Generator) -> Order:
    return heap_preorder(planned.day.volumes, generator)


def _least_sum(order: Order, durations_s: Floats) -> tuple[Order, float]:
    return order, choose_slice(durations_s, order, SLICES_S).slice_s


FIFO, LARGEST, PATENT = "FIFO, each served whole", "largest first, whole", "heap, slice of least sum (patent)"
BY_PERFORMANCE = "heap and slice by performance (patent)"
METHODS: dict[str, Method] = {
    FIFO: lambda planned, _: (_came(planned), WHOLE_S),
    LARGEST: lambda planned, _: (numpy.argsort(-planned.day.volumes, kind="stable"), WHOLE_S),
    "smallest first, whole": lambda planned, _: (numpy.argsort(planned.day.volumes, kind="stable"), WHOLE_S),
    "heap, whole": lambda planned, one: (_heap(planned, one), WHOLE_S),
    "FIFO, slice of least sum": lambda planned, _: _least_sum(_came(planned), planned.planned_s),
    PATENT: lambda planned, one: _least_sum(_heap(planned, one), planned.planned_s),
    "… of own mean durations": lambda planned, one: _least_sum(_heap(planned, one), planned.own_mean_s),
    "… if durations were known": lambda planned, one: _least_sum(_heap(planned, one), planned.real_s),
    "FIFO, an hour's slice": lambda planned, _: (_came(planned), HOUR_S),
    "heap, an hour's slice": lambda planned, one: (_heap(planned, one), HOUR_S),
    BY_PERFORMANCE: lambda planned, _: (
        numpy.array(planned.plan.chosen.order),
        planned.plan.chosen.cost.slice_s,
    ),
}
LONGEST, BY_VOLUME, BY_TIME = "longest wait", "small by volume", "small by time"
GOAL_COLUMNS = (LONGEST, BY_VOLUME, BY_TIME)


def wait_rows(days: list[Planned], suppliers: int, seed: int) -> list[dict[str, object]]:
    """Return a row per method: hours waited, as means over days and heaps."""
    rows: list[dict[str, object]] = []
    for name, method in METHODS.items():
        generator = numpy.random.default_rng(seed)
        waits = [
            waits_of_day(planned, *method(planned, generator), suppliers)
            for planned in days
            for _ in range(HEAPS)
        ]
        hours = {column: numpy.array([one[column] for one in waits]) for column in waits[0]}
        row: dict[str, object] = {"order and slice": name}
        row |= {column: round(float(values.mean()), 2) for column, values in hours.items()}
        rows.append(row | {"longest of all days": round(float(hours[LONGEST].max()), 1)})
    return rows


def waits_of_day(planned: Planned, order: Order, slice_s: float, suppliers: int) -> dict[str, float]:
    """Return the hours waited with an order and a slice; small is the half with the fewest GPUs, or least GPU time."""
    record = serve(planned.real_s, order, slice_s, range(suppliers))
    waits_h, first_h = record.waits_s / HOUR_S, record.first_start_s / HOUR_S
    few = planned.day.volumes <= numpy.median(planned.day.volumes)
    short = planned.real_s <= numpy.median(planned.real_s)
    return {
        LONGEST: float(waits_h.max()),
        BY_VOLUME: float(waits_h[few].mean()),
        BY_TIME: float(waits_h[short].mean()),
        "mean wait": float(waits_h.mean()),
        "longest until first turn": float(first_h.max()),
        "turns": float(len(record.turns)),
    }


def goals(waits: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return a row per goal: under the patent's orders and slices, nobody waits longer than under others' orders."""
    hours = {
        (str(row["order and slice"]), column): float(str(row[column]))
        for row in waits
        for column in GOAL_COLUMNS
    }
    return [
        goal(column, f"{ours}, over {other}", hours[ours, column] / hours[other, column], 1.0, at_most=True)
        for ours in (PATENT, BY_PERFORMANCE)
        for other in (FIFO, LARGEST)
        for column in GOAL_COLUMNS
    ]


if __name__ == "__main__":
    main()
