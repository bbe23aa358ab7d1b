"""Print the matrix of forms and releases: `python -m tests.cluster.matrix` (make matrix). Exit 1 if a cell is wrong."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from slurm_plugin.cli.output import note
from tests.cluster.matrix.prefixes import releases, why_missing
from tests.cluster.matrix.release import Allocation, Cell, Release, run_release
from tests.cluster.matrix.table import FORMS


def main() -> int:
    """Run every release that this machine has and print the table; return the exit code."""
    done: list[Release] = []
    for name, prefix in releases().items():
        reason = why_missing(prefix)
        if reason:
            note(f"{name}: skipped, {reason}")
            continue
        begin_s = time.monotonic()
        done.append(run_release(prefix, FORMS))
        note(f"Slurm {done[-1].version}: {2 * len(FORMS)} submissions in {time.monotonic() - begin_s:.0f} s")
    problems = problems_of(done)
    rows = rows_of(done)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    for problem in problems:
        print(problem)
    print(f"{sum(len(release.cells) for release in done)} cells, {len(problems)} not as planned")
    return 1 if problems or not done else 0


def rows_of(releases: Sequence[Release]) -> list[tuple[str, ...]]:
    """Lay out form × release: what our job got, and what the untouched twin got."""
    rows = [("FORM", "ASKED", *(release.version for release in releases))]
    for form in FORMS:
        cells = (cell_text(release.cell(form)) for release in releases)
        rows.append((form.name, form.asked, *cells))
    return rows


def cell_text(cell: Cell) -> str:
    """Say what was allocated with us and, if that differs, without; a mark shows whether that is as planned."""
    ours, twin = (amounts(ran.allocations) for ran in (cell.ours, cell.twin))
    changed = f"{ours} (was {twin})" if ours != twin else f"{ours} (as it was)"
    return f"{'✗' if cell.problem else '✓'} {changed}"


def amounts(allocations: Sequence[Allocation]) -> str:
    """Write allocations as CPUs/MiB/GPUs, equal ones only once."""
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
