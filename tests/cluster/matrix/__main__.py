"""Print the matrix of forms and releases: `python -m tests.cluster.matrix` (make matrix). Exit 1: a cell is wrong."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.cluster.matrix.prefixes import releases, why_missing
from tests.cluster.matrix.release import Allocation, Cell, Release, run_release
from tests.cluster.matrix.table import FORMS


def main() -> int:
    """Run every release that this machine has and print the table; return the exit code."""
    note = Console(stderr=True)
    done: list[Release] = []
    for name, prefix in releases().items():
        reason = why_missing(prefix)
        if reason:
            note.print(f"{name}: skipped, {reason}", highlight=False)
            continue
        begin_s = time.monotonic()
        done.append(run_release(prefix, FORMS))
        note.print(
            f"Slurm {done[-1].version}: {2 * len(FORMS)} submissions in {time.monotonic() - begin_s:.0f} s"
        )
    problems = problems_of(done)
    # As wide as it needs to be where no terminal sets a width.
    out = Console() if sys.stdout.isatty() else Console(width=60 + 34 * max(1, len(done)))
    out.print(table_of(done))
    for problem in problems:
        out.print(problem, markup=False, highlight=False, soft_wrap=True)
    out.print(
        f"{sum(len(release.cells) for release in done)} cells, {len(problems)} not as planned",
        highlight=False,
    )
    return 1 if problems or not done else 0


def table_of(releases: Sequence[Release]) -> Table:
    """Lay out form × release: what the untouched twin got, and what ours got instead."""
    table = Table("form", "asked", *(release.version for release in releases))
    for form in FORMS:
        cells = (cell_text(release.cell(form)) for release in releases)
        table.add_row(form.name, form.asked, *cells)
    return table


def cell_text(cell: Cell) -> str:
    """Say what was allocated with us and, where that differs, without; a mark says whether that is the plan."""
    ours, twin = (amounts(ran.allocations) for ran in (cell.ours, cell.twin))
    changed = f"{ours} (was {twin})" if ours != twin else f"{ours} (as it was)"
    return f"{'✗' if cell.problem else '✓'} {changed}"


def amounts(allocations: Sequence[Allocation]) -> str:
    """Write allocations as CPUs/MiB/GPUs, equal ones once."""
    texts = (
        f"{one.get('cpu', 0)}c {one.get('mem', 0)}M"
        + (f" {one['gres/gpu']}g" if "gres/gpu" in one else "")
        + (f" {one['node']}n" if one.get("node", 1) != 1 else "")
        for one in allocations
    )
    return " + ".join(dict.fromkeys(texts)) or "nothing"


def problems_of(releases: Sequence[Release]) -> list[str]:
    """List the cells that are not as planned, each with the reason."""
    return [
        f"{release.version} {cell.form.name} ({cell.form.asked}): {cell.problem}"
        for release in releases
        for cell in release.cells
        if cell.problem
    ]


if __name__ == "__main__":
    sys.exit(main())
