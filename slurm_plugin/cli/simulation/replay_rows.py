"""The output of `rightsizer replay`: a row for each run (for people, a column), and what the figures rest on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from accounting.units import counted

if TYPE_CHECKING:
    from models.simulation.past import Past
    from models.simulation.replayed import Comparison
    from models.simulation.results import Results

RESOURCES = ("CPU", "memory", "GPU")
NAMES = ("policy", "sizing")


def row_of(policy: str, sizing: str, found: Comparison) -> dict[str, object]:
    """Return the row of one run."""
    shares = {
        f"{resource} {kind} %": round(100 * share, 1)
        for kind, of in (("allocated", found.allocated), ("busy", found.busy))
        for resource, share in zip(RESOURCES, of, strict=True)
    }
    return {
        **dict(zip(NAMES, (policy, sizing), strict=True)),
        "jobs": found.jobs,
        "resized": found.resized,
        "mean wait (s)": round(found.mean_wait_s, 1),
        "p95 wait (s)": round(found.p95_wait_s, 1),
        "slowdown": round(found.slowdown, 2),
        "completed": found.completed,
        "completed in window": found.completed_in_window,
        "memory failures": found.memory_failures,
        "of them by a cut": found.by_a_cut,
        "lost (core·h)": round(found.lost_core_h, 1),
        "timeouts": found.timeouts,
        **shares,
        "unused (core·h)": round(found.unused_core_h, 1),
        "unused (GiB·h)": round(found.unused_gib_h, 1),
        "energy (kWh)": round(found.energy_kwh, 2),
        "CO2 (kg)": round(found.carbon_kg, 2),
        "makespan (h)": round(found.makespan_h, 2),
    }


def transposed(names: Sequence[str], rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Return a row for each figure, with a column for each run."""
    figures = [figure for figure in rows[0] if figure not in NAMES]
    return [
        {"": figure, **{name: row[figure] for name, row in zip(names, rows, strict=True)}}
        for figure in figures
    ]


def window_in_words(past: Past) -> str:
    """Return the beginning and end of the window, in local time."""
    since = datetime.fromtimestamp(past.since_s).astimezone()
    until = datetime.fromtimestamp(past.since_s + past.window_s).astimezone()
    return f"submitted from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M}"


def grounds(past: Past) -> Iterator[str]:
    """Yield a line for each thing that the figures rest on."""
    from models.simulation.past import NOT_MEASURED

    earlier = int((~past.counted).sum())
    yield (
        f"learned from {counted(len(past.before), 'job')} that had ended before; {counted(earlier, 'job')} still "
        "waiting or running then also simulated, as asked, but not counted"
    )
    for reason, jobs in sorted(past.left_out.items()):
        yield f"{jobs:,} jobs {reason} and are left out"
    for reason, jobs in sorted(past.kept.items()):
        if reason in NOT_MEASURED:
            yield f"{jobs:,} jobs: {reason}; that resource stays as asked, and counts as used"
        else:
            yield f"{jobs:,} jobs {reason} and stay as asked"
    yield (
        '"recorded" also includes waiting for what is not simulated: priorities, limits, dependencies, '
        "reservations, nodes that were down"
    )
    yield (
        "energy is estimated with the site's table from what jobs held, because no meter can measure "
        "simulated jobs"
    )


def doubts(real: Results) -> Iterator[str]:
    """Yield reasons why these nodes cannot be those on which the jobs ran."""
    from models.simulation.fitting import held_beyond

    beyond = held_beyond(real)
    if beyond:
        yield (
            f"these nodes are fewer than the jobs ran on: up to {'; '.join(beyond)} were really held at "
            'once; the waits of "as asked" are those of a smaller cluster'
        )
