"""Jobs that share GPUs: mean completion time under the pairing, against other ways to share, or not to.

    python -m bench.gpu_sharing [--traces DIR] [--gpu v100|k80] [--load 0.8 --load 1.1 --load 1.5] [--seeds 5]
        [--show times|goals|errors|decisions] [--format table|json|csv]

Semi-synthetic (bench/gpu_sharing_load.py): speeds of pairs were measured by Gavel, arrivals and run times are
Philly's ($RIGHTSIZER_TRACES), kinds are drawn. A load of 1 asks for as much work, run alone, as there are GPUs. All
policies get the same arrivals; figures are means over seeds. Ours begins with a fifth of the pairs, drawn, and
learns; knowing the truth from the beginning is its bound. Long jobs give way to short ones in slots, except in
"nobody suspended". Peers are in bench/gpu_sharing_peers.py; parameters were chosen on seeds 100 to 103.

It also measures how far predicted speeds of held-out pairs are off, and what a decision costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy

from bench.arguments import add_traces, folder_with, parser_of, print_tables
from bench.figures import goal
from bench.gpu_sharing_decisions import HOSTS, WAITING, decision_rows
from bench.gpu_sharing_load import GAVEL, GPU_TYPES, PHILLY, Measured, drawn_load, measured, philly
from bench.gpu_sharing_peers import Exclusive, LeastAttained, by_utilisation, first_fit, random_pairs
from models.gpus.interference import Interference
from models.gpus.pairing import Terms
from models.scheduling.room import Floats
from models.simulation.shared_gpus import Load, Machines, SharingPolicy, share
from models.simulation.sharing import LearnedPairing
from slurm_plugin.cli.output import note

JOBS, GPUS = 2000, 50
KNOWN = 0.2
KNOWN_SHARES = (0.05, 0.1, 0.2, 0.4)
DRAWS = 20
HOUR_S = 3600.0
MOST_RATIO, MOST_OF_MEAN_ERROR, LEAST_OF_BOUND, MOST_DECISION_MS = 0.8, 0.5, 0.9, 100.0
FIFO, SHORTEST, ATTAINED = "exclusive, FIFO", "exclusive, shortest first (knows)", "exclusive, least attained"
FIRST_FIT, RANDOM, BY_USE = "two, first fit", "two, random", "two, by utilisation"
OURS, STILL, KEEPING, NOTHING, BOUND = (
    "pairing",
    "pairing, no moves",
    "pairing, nobody suspended",
    "pairing, knows nothing, tries",
    "pairing, truth known",
)
# The peers that do not know how long jobs run.
EXCLUSIVE, PACKING = (FIFO, ATTAINED), (FIRST_FIT, RANDOM, BY_USE)
Row = dict[str, object]
# For each policy at each load: its figures, one row per seed.
Ran = dict[tuple[float, str], Floats]
COLUMNS = ("mean (h)", "p50 (h)", "p99 (h)", "longest wait (h)", "GPUs' work", "shared %", "moves")


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    add_traces(parser)
    parser.add_argument("--gpu", choices=GPU_TYPES, default=GPU_TYPES[0])
    parser.add_argument("--load", type=float, action="append", help="again for more; else 0.8, 1.1 and 1.5")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--show",
        choices=("times", "goals", "errors", "decisions"),
        help="one table; else all, of json and csv times",
    )
    arguments = parser.parse_args()
    traces = folder_with(arguments.traces, GAVEL, PHILLY)
    table = measured(traces, arguments.gpu)
    ran = simulated(table, philly(traces), arguments.load or [0.8, 1.1, 1.5], range(arguments.seeds))
    errors = error_rows(table)
    decisions = decision_rows(Interference(table.kinds, table.pairs(table.some(KNOWN, 0))))
    tables = {
        "times": (f"Completion times on {GPUS} {arguments.gpu.upper()}s (semi-synthetic)", time_rows(ran)),
        "errors": ("Speeds of pairs held out", errors),
        "decisions": (f"A decision: {HOSTS:,} GPUs, {WAITING:,} jobs wait", decisions),
        "goals": ("Goals", goal_rows(ran, errors, decisions)),
    }
    print_tables(tables, arguments)


def ways(table: Measured, load: Load, seed: int) -> dict[str, Callable[[], SharingPolicy]]:
    """Return a constructor for each policy, for one load."""

    def ours(share_known: float, terms: Terms, *, moves: bool = True) -> LearnedPairing:
        known = table.pairs(table.some(share_known, seed))
        return LearnedPairing(Interference(table.kinds, known), terms, moves=moves)

    return {
        FIFO: Exclusive,
        SHORTEST: lambda: Exclusive(lambda job: float(load.alone_s[job])),
        ATTAINED: LeastAttained,
        FIRST_FIT: lambda: first_fit(table.speed),
        RANDOM: lambda: random_pairs(table.speed, seed),
        BY_USE: lambda: by_utilisation(table.speed, table.use_of_twins()),
        STILL: lambda: ours(KNOWN, Terms(), moves=False),
        KEEPING: lambda: ours(KNOWN, Terms(long_s=math.inf)),
        OURS: lambda: ours(KNOWN, Terms()),
        NOTHING: lambda: ours(0.0, Terms(trying=0.5)),
        BOUND: lambda: ours(1.0, Terms()),
    }


def simulated(table: Measured, jobs: tuple[Floats, Floats], loads: list[float], seeds: range) -> Ran:
    """Run each policy on the loads of all seeds."""
    ran: dict[tuple[float, str], list[Floats]] = {}
    for load_of in loads:
        for seed in seeds:
            note(f"load {load_of:g}, seed {seed}")
            load = drawn_load(jobs, JOBS, len(table.kinds), 1 / (GPUS * load_of), seed)
            for name, make in ways(table, load, seed).items():
                ran.setdefault((load_of, name), []).append(figures_of(load, table, make()))
    return {key: numpy.array(rows) for key, rows in ran.items()}


def figures_of(load: Load, table: Measured, policy: SharingPolicy) -> Floats:
    """Return the COLUMNS of one run."""
    ended = share(load, Machines(gpus=GPUS, speed=table.speed), policy)
    stayed_h = (ended.end_s - load.submit_s) / HOUR_S
    waits_h = (ended.start_s - load.submit_s) / HOUR_S
    figures = (stayed_h.mean(), *numpy.quantile(stayed_h, (0.5, 0.99)), waits_h.max())
    return numpy.array([*figures, ended.gain, 100 * ended.shared, ended.moves])


def best(ran: Ran, load: float, names: tuple[str, ...]) -> Floats:
    """Return the mean completion times of the best of several policies, the same one for all seeds."""
    found: Floats = min((ran[load, name][:, 0] for name in names), key=lambda means: float(means.mean()))
    return found


def time_rows(ran: Ran) -> list[Row]:
    """Return a row per load and policy; ratios are of mean completion times, with the range over seeds."""
    rows: list[Row] = []
    for (load, name), figures in ran.items():
        means = figures[:, 0]
        against = {"/ exclusive": best(ran, load, EXCLUSIVE), "/ packing": best(ran, load, PACKING)}
        row: Row = {"load": load, "way": name}
        for column, peers in against.items():
            each = means / peers
            row[column] = f"{means.mean() / peers.mean():.2f} ({each.min():.2f}–{each.max():.2f})"
        digits = (2, 2, 1, 1, 3, 0, 0)
        row |= {
            column: round(float(value), digit)
            for column, value, digit in zip(COLUMNS, figures.mean(axis=0), digits, strict=True)
        }
        rows.append(row)
    return rows


def error_rows(table: Measured) -> list[Row]:
    """Return the errors of held-out speeds, by the share of known pairs, compared with the mean of the known ones."""
    rows: list[Row] = []
    for known_share in KNOWN_SHARES:
        draws = [errors_of(table, known_share, seed) for seed in range(DRAWS)]
        ours, mean, inside = numpy.mean(draws, axis=0)
        rows.append(
            {
                "known": known_share,
                "error": round(float(ours), 3),
                "of the mean": round(float(mean), 3),
                "ratio": round(float(ours / mean), 2),
                "in low..high %": round(100 * float(inside), 1),
            }
        )
    return rows


def errors_of(table: Measured, known_share: float, seed: int) -> tuple[float, float, float]:
    """Return mean absolute errors of held-out speeds, ours and the mean's, and the share within our intervals."""
    known, fits = table.some(known_share, seed), table.speed > 0
    model = Interference(table.kinds, table.pairs(known))
    held_out = numpy.argwhere(fits & ~known)
    truth = table.speed[tuple(held_out.T)]
    expected = [model.estimate(table.kinds[one], table.kinds[other]) for one, other in held_out]
    inside = [found.low <= true <= found.high for found, true in zip(expected, truth, strict=True)]
    off = numpy.abs([found.speed for found in expected] - truth)
    return (
        float(off.mean()),
        float(numpy.abs(truth - table.speed[fits & known].mean()).mean()),
        float(numpy.mean(inside)),
    )


def goal_rows(ran: Ran, errors: list[Row], decisions: list[Row]) -> list[Row]:
    """Return a row a goal."""
    rows: list[Row] = []
    for load in sorted({load for load, _ in ran}):
        where = f"{OURS}, load {load:g}"
        ours, bound = (float(ran[load, name][:, 0].mean()) for name in (OURS, BOUND))
        exclusive, packing = (float(best(ran, load, names).mean()) for names in (EXCLUSIVE, PACKING))
        rows += [
            goal("mean completion / best exclusive", where, ours / exclusive, MOST_RATIO, at_most=True),
            goal("mean completion / best packing", where, ours / packing, 1.0, at_most=True),
            goal(
                "share of the truth's gain over packing",
                where,
                (packing - ours) / (packing - bound),
                LEAST_OF_BOUND,
                at_most=False,
            ),
        ]
    ratio = next(float(str(row["ratio"])) for row in errors if row["known"] == KNOWN)
    rows.append(
        goal("error / the mean's", f"{KNOWN:g} of the pairs known", ratio, MOST_OF_MEAN_ERROR, at_most=True)
    )
    for row in decisions[1:]:
        rows.append(
            goal(
                "p99 (CPU ms)",
                str(row["way"]),
                float(str(row["p99 (CPU ms)"])),
                MOST_DECISION_MS,
                at_most=True,
            )
        )
    return rows


if __name__ == "__main__":
    main()
