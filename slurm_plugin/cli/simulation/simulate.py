"""`rightsizer simulate`: run a load under several policies, on a cluster that a file or options describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from accounting.units import counted
from slurm_plugin.cli.output import format_option, note, print_rows
from slurm_plugin.cli.plot_check import check_plots
from slurm_plugin.cli.simulation.machines import nodes_option
from slurm_plugin.cli.simulation.placed import explain_rows

if TYPE_CHECKING:
    from models.simulation.nodes import Node
    from models.simulation.results import Results
    from models.simulation.scenario import Scenario

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("simulate")
@click.argument("scenario", type=FILE, required=False)
@nodes_option("The nodes, such as 20x64:257000:4, instead of those of the scenario. Can be repeated.")
@click.option("--trace", type=FILE, help="The load (SWF or CSV), instead of that of the scenario.")
@click.option(
    "--policy",
    "names",
    multiple=True,
    help="A scheduling policy to try. Can be repeated. Default: the policies of the scenario.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    help="Seed of a generated load and of `heap`, instead of the scenario's.",
)
@click.option(
    "--placement",
    help="How nodes are chosen, instead of the scenario's way; fgd and best-fit consider single GPUs.",
)
@click.option(
    "--explain",
    "explained",
    type=click.IntRange(1),
    metavar="N",
    help="Instead of figures, show why the N-th job that arrived was placed where it was (fgd or deadlines "
    "only).",
)
@click.option("--plot", type=FILE, help="Draw what was in use over time (PNG, SVG, PDF).")
@format_option
def simulate(
    scenario: Path | None,
    nodes: tuple[Node, ...],
    trace: Path | None,
    names: tuple[str, ...],
    seed: int | None,
    placement: str | None,
    explained: int | None,
    plot: Path | None,
    output_format: str,
) -> None:
    """Run a load on an imaginary cluster under several policies, and show how long jobs would have waited.

    SCENARIO is a TOML file; docs/simulation.md describes it. It contains:

    \b
    - [[nodes]]: cpus, mem_mib, gpus, speed, device, count, down, owner
    - [load]: a `trace` (SWF or CSV), or jobs_per_hour, hours and
      [[load.kinds]]
    - [[reservations]]
    - `policies`

    With --nodes and --trace no SCENARIO is needed. Nothing outside these files is read or changed.

    \b
    Example:
      rightsizer simulate cluster.toml
      rightsizer simulate --nodes 20x64:257000:4 --trace last-month.swf
      rightsizer simulate cluster.toml --policy easy --policy conservative --format json
      rightsizer simulate cluster.toml --policy easy --placement fgd --explain 17
    """
    from models.simulation.policies import FGD, policies, way_to_place

    # Check the command line before anything is read, and before slow modules are imported.
    policies(names)
    if plot is not None:
        check_plots(plot)
    from models.simulation.engine import Hooks
    from models.simulation.engine import simulate as run
    from models.simulation.hooks import slowed_by_cpus
    from models.simulation.placed import first_run
    from models.simulation.scenario import ShareOfRequest, cluster, load_of, profiles_of

    described = described_by(scenario, nodes, trace)
    if placement is not None:
        described = msgspec.structs.replace(described, placement=placement)
    if (
        explained is not None
        and described.placement != FGD
        and "deadlines" not in (names or described.policies)
    ):
        raise click.UsageError(
            f"--explain works with placement {FGD} and with the policy deadlines; add --placement {FGD}, "
            "or --policy deadlines"
        )
    seed = described.seed if seed is None else seed
    jobs, left_out, users = load_of(described, Path() if scenario is None else scenario.parent, seed)
    chosen = policies(names or described.policies, way_to_place(described.placement, jobs), seed)
    if left_out:
        note(f"left out: {counted(left_out, 'job')} of the trace that never ran")
    machines, profiles = cluster(described, users), profiles_of(described)
    until_s = described.until_h * 3600 or float("inf")
    ran: dict[str, Results] = {}
    for name, policy in chosen.items():
        hooks = Hooks(
            sizing=ShareOfRequest(jobs, described.granted_share),
            run_time=slowed_by_cpus(jobs),
            profiles=profiles,
            checkpoint_s=described.checkpoint_s or float("inf"),
            explained=-1 if explained is None else explained - 1,
        )
        ran[name] = run(jobs, machines, policy, hooks, until_s)
    if plot is not None:
        from slurm_plugin.cli.simulation.picture import draw

        draw(ran, plot)
    if explained is not None:
        for results in ran.values():
            first_run(results, explained - 1)
        chose = [
            {"policy": name, "why": f"job {explained} {one.why}"} for name, one in ran.items() if one.why
        ]
        for row in chose if described.placement == FGD else ():
            note(f"{row['policy']}: {row['why']}")
        by_place = explain_rows(explained - 1, machines, ran) if described.placement == FGD else chose
        print_rows(by_place, output_format, columns=("policy", "why"))
        return
    title = ", ".join(file.name for file in (scenario, trace) if file is not None)
    rows = [row_of(name, results) for name, results in ran.items()]
    print_rows(narrowed(rows) if output_format == "table" else rows, output_format, f"{title}, simulated")


def described_by(scenario: Path | None, nodes: tuple[Node, ...], trace: Path | None) -> Scenario:
    """Return a scenario with the given nodes and load; its reservations stay only with its own nodes and load."""
    from models.simulation.scenario import Load, Scenario, read_scenario

    if scenario is None and not (nodes and trace):
        raise click.UsageError("give a SCENARIO, or both --nodes and --trace")
    described = Scenario() if scenario is None else read_scenario(scenario)
    if nodes:
        described = msgspec.structs.replace(described, nodes=list(nodes), reservations=[])
    if trace is not None:
        load = Load(trace=str(trace.absolute()))
        described = msgspec.structs.replace(described, load=load, reservations=[])
    return described


def narrowed(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return rows without the columns on deadlines or lent nodes if there are none of these."""
    told = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    return [{name: row[name] for name in told} for row in rows]


def row_of(name: str, results: Results) -> dict[str, object]:
    """Return the row of one policy."""
    from models.simulation.results import Outcome, figures

    found = figures(results)
    return {
        "policy": name,
        "jobs": found.jobs,
        "finished": found.finished,
        "queued": found.queued,
        "unfit": int((results.outcome == Outcome.UNFIT).sum()),
        "failures": found.failures,
        "timeouts": int((results.outcome == Outcome.TIMEOUT).sum()),
        "late": found.missed_deadlines,
        "in time %": round(100 * found.met_deadlines / found.due, 1) if found.due else None,
        "interrupted": found.interruptions if results.lent.idle else None,
        "lent %": round(100 * found.lent_used, 1) if results.lent.idle else None,
        "completion %": round(100 * found.completion, 1),
        "mean wait (s)": round(found.mean_wait_s, 1),
        "longest wait (s)": round(found.longest_wait_s, 1),
        "slowdown": round(found.bounded_slowdown, 2),
        "CPU %": round(100 * found.cpu_allocated, 1),
        "memory %": round(100 * found.mem_allocated, 1),
        "GPU %": round(100 * found.gpu_allocated, 1),
        "CPU busy %": round(100 * found.cpu_used, 1),
        "memory busy %": round(100 * found.mem_used, 1),
    }
