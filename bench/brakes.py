"""After how many cut jobs a family's brake is pulled, and how often one is pulled that should not be.

    python -m bench.brakes [--runs 200]

Each run is a family, whose jobs are drawn one after the other and counted by production's code. Only
`slurm_plugin/brakes/judging.py` decides when it stops. The comparison is a fixed look after 30 jobs: an exact
binomial test against the bound at 1 %, which must not be repeated, by somebody who knows for each failure whether
the cut caused it (for a program that ends with an exit code of its own, nobody does).
"""

from __future__ import annotations

import random
from collections.abc import Callable

import click
import msgspec
import numpy as np

from accounting.request import JobRequest
from models.chance import at_least
from models.past.trials import Trial
from models.sequential import ALONE, beginning, judged
from slurm_plugin.brakes.evidence import Evidence, Ledger
from slurm_plugin.brakes.judging import ENOUGH_KILLS, is_enough
from slurm_plugin.config.settings import Config
from slurm_plugin.policy.braked import family_brake

REQUEST = JobRequest(user="ann", job_name="fit", partition="main")
FAMILY = family_brake("ann", "fit")
BOUND = Config().brakes.most_excess
FIRST, PEER_RISK = 30, 0.01


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A family: the shares of its jobs that fail in any case, are killed for memory by a cut, or fail otherwise by it.

    `whole` jobs were left whole before, and `good` ones cut by a good model, which made none of them fail.
    """

    name: str
    anyhow: float = 0.02
    killed: float = 0.0
    failing: float = 0.0
    whole: int = 0
    good: int = 0
    jobs: int = 300


BAD = (
    *(
        Case(name=f"killed {share:.0%}, none left whole", killed=share)
        for share in (1.0, 0.5, 0.2, 0.1, 0.05)
    ),
    *(
        Case(name=f"killed {share:.0%}, after 1,000 good ones", killed=share, good=1000)
        for share in (1.0, 0.5, 0.2)
    ),
    *(
        Case(name=f"exit 1 in {share:.0%}, 10 left whole", failing=share, whole=10)
        for share in (1.0, 0.5, 0.2)
    ),
    *(
        Case(name=f"exit 1 in {share:.0%}, 50 left whole", failing=share, whole=50)
        for share in (1.0, 0.5, 0.2)
    ),
    *(
        Case(name=f"exit 1 in {share:.0%}, 200 left whole", failing=share, whole=200)
        for share in (1.0, 0.5, 0.2)
    ),
)
GOOD = (
    Case(name="killed 1%", killed=0.01),
    Case(name="killed 2%, which is the bound", killed=0.02),
    Case(name="killed 1%, 3,000 jobs", killed=0.01, jobs=3_000),
    Case(name="fails 30% anyhow, 1 left whole", anyhow=0.3, killed=0.01, whole=1),
    Case(name="fails 30% anyhow, 50 left whole", anyhow=0.3, killed=0.01, whole=50),
    Case(name="fails 5% anyhow, 50 left whole", anyhow=0.05, killed=0.01, whole=50),
)


def stopped_after(case: Case, draw: random.Random) -> int | None:
    """Return after how many cut jobs a family's brake is pulled; None if it is not."""
    ledger = Ledger(Evidence(), BOUND)

    def end(*, shrunk: bool, killed: float = 0.0, failing: float = 0.0) -> None:
        killed_now = draw.random() < killed
        failed = killed_now or draw.random() < failing or draw.random() < case.anyhow
        wanted = "out_of_memory" if killed_now else None
        ledger.add(REQUEST, Trial(shrunk=shrunk, failed=failed, wanted=wanted), 0.0, frozenset())  # type: ignore[arg-type]

    for _ in range(case.whole):
        end(shrunk=False)
    for _ in range(case.good):
        end(shrunk=True)
        if is_enough(FAMILY, ledger):
            ledger.begin_anew(FAMILY)
    for number in range(1, case.jobs + 1):
        end(shrunk=True, killed=case.killed, failing=case.failing)
        if is_enough(FAMILY, ledger):
            return number
    return None


def peer_finds(share: float, draw: random.Random) -> bool:
    """Whether a binomial test on the first jobs, by only the failures that the cut caused, finds too many."""
    failed = sum(draw.random() < share for _ in range(FIRST))
    return at_least(failed, FIRST, BOUND) <= PEER_RISK


def table(cases: tuple[Case, ...], runs: int, of: Callable[[Case, list[int | None], int], str]) -> None:
    """Print a line for each case."""
    for case in cases:
        draw = random.Random(case.name)
        stops = [stopped_after(case, draw) for _ in range(runs)]
        found = sum(peer_finds(case.killed + case.failing, draw) for _ in range(runs))
        print(f"| {case.name} | {of(case, stops, runs)} | {found * 100 / runs:.1f} |", flush=True)


def how_soon(case: Case, stops: list[int | None], runs: int) -> str:
    """Return how soon bad families are stopped."""
    in_time = sum(1 for one in stops if one is not None and one <= FIRST)
    ordered = sorted(case.jobs + 1 if one is None else one for one in stops)
    most = "never" if ordered[-1] > case.jobs else str(ordered[-1])
    middle = ordered[len(ordered) // 2]
    return f"{'never' if middle > case.jobs else middle} | {most} | {in_time * 100 / runs:.1f}"


def how_often(case: Case, stops: list[int | None], runs: int) -> str:
    """Return how often good families are stopped."""
    return f"{case.jobs} | {sum(one is not None for one in stops) * 100 / runs:.2f}"


# Many families, of which only kills are drawn: the share that is killed, the number of jobs, and of families.
MANY = ((0.5, FIRST, 100_000), (0.01, 3000, 20_000), (0.02, 300, 40_000))


def share_stopped(killed: float, jobs: int, families: int) -> float:
    """Return the share of families stopped within this many jobs, by the first test only, computed for all at once."""
    draw = np.random.default_rng(jobs)
    grow = {up: np.array(judged(beginning(ALONE), ALONE, float(up), BOUND).judged[0]) for up in (True, False)}
    logs, stopped = np.zeros((families, len(grow[True]))), np.zeros(families, dtype=bool)
    for _ in range(jobs):
        kills = draw.random(families) < killed
        logs = np.maximum(logs, 0.0) + np.where(kills[:, None], grow[True], grow[False])
        stopped |= np.exp(logs).mean(axis=1) >= ENOUGH_KILLS
    return float(stopped.mean())


@click.command()
@click.option("--runs", default=200, show_default=True)
@click.option("--only", type=click.Choice(["bad", "good", "many"]))
def main(runs: int, only: str | None) -> None:
    """Print all three tables."""
    if only in (None, "bad"):
        print(
            f"| bad ({runs} runs) | stopped after (median) | at the latest | within 30, % | binomial at 30, % |\n"
            "|---|---|---|---|---|"
        )
        table(BAD, runs, how_soon)
    if only in (None, "good"):
        print(f"\n| good ({runs} runs) | jobs | stopped in 100 runs | binomial at 30, % |\n|---|---|---|---|")
        table(GOOD, runs, how_often)
    if only in (None, "many"):
        print("\n| killed | jobs | families | stopped, % |\n|---|---|---|---|")
        for killed, jobs, families in MANY:
            print(
                f"| {killed:.0%} | {jobs} | {families} | {share_stopped(killed, jobs, families) * 100:.3f} |"
            )


if __name__ == "__main__":
    main()
