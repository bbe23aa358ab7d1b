"""Draw requests and run each beside its twin: `python -m tests.cluster.twins` (make twins). Exit 1 if one lost."""

from __future__ import annotations

import itertools
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

# Who asks the service: slurmctld's hook, or the clients of direct jobs, before they submit.
ASKERS = ("hook", "clients")


@click.command()
@click.option("--requests", default=40, show_default=True, help="How many to draw for each cluster.")
@click.option("--seed", type=int, help="Draw those of an earlier run. [default: by the clock]")
@click.option(
    "--cluster", "clusters", multiple=True, type=click.Choice(list(CLUSTERS)), help="Only these clusters."
)
@click.option(
    "--release", "names", multiple=True, type=click.Choice(list(releases())), help="Only these releases."
)
@click.option(
    "--by", "askers", multiple=True, type=click.Choice(list(ASKERS)), help="Only what these ask for."
)
def main(
    requests: int,
    seed: int | None,
    clusters: tuple[str, ...],
    names: tuple[str, ...],
    askers: tuple[str, ...],
) -> None:
    """Submit requests drawn by chance, each cut and opted out, and print those that lost something by the cut."""
    first_seed = int(time.time()) if seed is None else seed
    done: Counter[str] = Counter()
    lost = 0
    for name in names or releases():
        prefix = releases()[name]
        if reason := why_missing(prefix):
            note(f"{name}: skipped, {reason}")
            continue
        for where, by in itertools.product(clusters or CLUSTERS, askers or ASKERS):
            cluster, asking = CLUSTERS[where], by == "clients"
            found: Counter[str] = Counter()
            for pair in run_pairs(
                prefix, drawn(requests, first_seed, cluster.places, asking=asking), cluster, asking=asking
            ):
                found[verdict(pair.ours, pair.twin)] += 1
                lost += bool(pair.losses)
                for loss in pair.losses:
                    print(f"{name} {where} {by} {pair.form.name} ({pair.form.asked}): {loss}", flush=True)
            note(f"{name}, {where}, {by}, seed {first_seed}: {_counts(found)}")
            done += found
    print(f"{_counts(done)}; {lost} lost something")
    sys.exit(1 if lost or not done["cut"] else 0)


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in found.items())


if __name__ == "__main__":
    main()
