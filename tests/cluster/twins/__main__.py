"""Draw requests and run each beside its twin: `python -m tests.cluster.twins` (make twins). Exit 1 if one lost."""

from __future__ import annotations

import sys
import time
from collections import Counter

import click

from slurm_plugin.cli.output import note
from tests.cluster.matrix.prefixes import releases, why_missing
from tests.cluster.twins.clusters import CLUSTERS
from tests.cluster.twins.compare import verdict
from tests.cluster.twins.draw import drawn
from tests.cluster.twins.pairs import run_pairs


@click.command()
@click.option("--requests", default=40, show_default=True, help="How many to draw for each cluster.")
@click.option("--seed", type=int, help="Draw those of an earlier run. [default: by the clock]")
@click.option(
    "--cluster", "clusters", multiple=True, type=click.Choice(list(CLUSTERS)), help="Only these clusters."
)
@click.option(
    "--release", "names", multiple=True, type=click.Choice(list(releases())), help="Only these releases."
)
def main(requests: int, seed: int | None, clusters: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Submit requests drawn by chance, each cut and opted out, and print those that lost something by the cut."""
    first_seed = int(time.time()) if seed is None else seed
    done: Counter[str] = Counter()
    lost = 0
    for name in names or releases():
        prefix = releases()[name]
        if reason := why_missing(prefix):
            note(f"{name}: skipped, {reason}")
            continue
        for where in clusters or CLUSTERS:
            note(f"{name}, {where}: {requests} requests of seed {first_seed}")
            cluster = CLUSTERS[where]
            for pair in run_pairs(prefix, drawn(requests, first_seed, cluster.places), cluster):
                done[verdict(pair.ours, pair.twin)] += 1
                lost += bool(pair.losses)
                for loss in pair.losses:
                    print(f"{name} {where} {pair.form.name} ({pair.form.asked}): {loss}", flush=True)
    print(f"{', '.join(f'{count} {word}' for word, count in done.items())}; {lost} lost something")
    sys.exit(1 if lost or not done["cut"] else 0)


if __name__ == "__main__":
    main()
