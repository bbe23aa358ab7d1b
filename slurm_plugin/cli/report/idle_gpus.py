"""`rightsizer report idle-gpus`: of what use the GPUs that are idle now are to the jobs that usually come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.cli.report.options import selection_options
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.file import load_config

if TYPE_CHECKING:
    from accounting.report.selection import Selection
    from slurm_plugin.advisor.idle_gpus import BesideGpu, IdleGpus


@click.command("idle-gpus")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Show so many nodes.")
@config_option
@selection_options
@format_option
def idle_gpus(config_file: str | None, top: int, output_format: str, selection: Selection) -> None:
    """Show of what use the GPUs that are idle now are to the jobs that usually come, and what stands in their way.

    What usually comes are the attempts with GPUs that the options mean, as they were given. A GPU is lost to one of
    them where its node has too few CPUs or too little memory left for it, or too few idle GPUs; figures are means over
    them. Those nodes come first where most is lost. `cpus_held` are CPUs of jobs that have no GPU there.

    \b
    Example:
      rightsizer report idle-gpus --since 2026-01-01 --partition gpu
    """
    from accounting.report.gpu_jobs import read_given
    from slurm_plugin.advisor.idle_gpus import IdleGpus, beside_a_gpu, usual_among
    from slurm_plugin.advisor.idle_gpus import idle_gpus as idle_of
    from slurm_plugin.slurm.backends import open_queue

    config = load_config(config_file)
    with opened_store(config) as engine:
        given = read_given(engine, selection)
    snapshot = open_queue(config.advisor.queue).read()
    rows = idle_of(snapshot, usual_among(given))
    print_rows(
        [msgspec.structs.asdict(row) for row in rows[:top]],
        output_format,
        columns=IdleGpus.__struct_fields__,
    )
    away = sum(node.gpus for node in snapshot.nodes if node.away)
    for said in _in_words(rows, sum(each.attempts for each in given), beside_a_gpu(given), away):
        note(said)


def _in_words(rows: list[IdleGpus], attempts: int, beside: BesideGpu | None, away: int) -> list[str]:
    idle = sum(row.idle for row in rows)
    found = []
    if not idle:
        found.append("no GPU is idle on a node that takes jobs")
    elif beside is None:
        found.append(
            f"{idle} GPUs are idle; what usually comes is not known: the store has no attempt with GPUs that these "
            "options mean; choose others, or run `rightsizer ingest`"
        )
    else:
        usable, cpus, memory, gpus = (
            sum(getattr(row, name) or 0.0 for row in rows)
            for name in ("usable", "lost_for_cpus", "lost_for_memory", "lost_for_gpus")
        )
        held = sum(row.lost_for_cpus or 0.0 for row in rows if row.cpus_held)
        found.append(
            f"{idle} GPUs are idle, of which a job like one of {attempts:,} with GPUs could use {usable:.1f} in the "
            f"mean; {cpus:.1f} are lost for want of CPUs ({held:.1f} of them where jobs without GPUs hold some), "
            f"{memory:.1f} of memory, and {gpus:.1f} as too few are idle on a node"
        )
        if cpus + memory:
            found.append(
                f"nine of ten of them took no more than {beside.cpus:.3g} CPUs and {beside.mem_mib:,.0f} MiB for each "
                "GPU: kept free beside each idle one (MaxCPUsPerNode of a partition for jobs without GPUs), that does"
            )
    if away:
        found.append(f"{away} GPUs more are on nodes that take no jobs now")
    return found
