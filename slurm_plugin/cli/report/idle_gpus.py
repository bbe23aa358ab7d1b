"""`rightsizer report idle-gpus`: how many of the idle GPUs the jobs that are usually submitted could use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from accounting.units import counted
from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.cli.report.options import selection_options
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.file import load_config

if TYPE_CHECKING:
    from accounting.report.selection import Selection
    from slurm_plugin.advisor.idle_gpus import BesideGpu, IdleGpus


@click.command("idle-gpus")
@click.option(
    "--top", type=click.IntRange(1), default=20, show_default=True, help="Show at most this many nodes."
)
@config_option
@selection_options
@format_option
def idle_gpus(config_file: str | None, top: int, output_format: str, selection: Selection) -> None:
    """Show which idle GPUs the usual jobs could use, and why not.

    The usual jobs are the selected attempts with GPUs, with what they were given. An idle GPU is lost to such a job if
    its node has too few CPUs, too little memory or too few idle GPUs left. Figures are averages over these attempts.
    Nodes are sorted by what is lost, most first. `cpus_held` are the CPUs of jobs that have no GPU on the node.

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
        found.append("no GPU is idle on a node that accepts jobs")
    elif beside is None:
        found.append(
            f"{counted(idle, 'idle GPU')}; the usual jobs with GPUs are not known, because the store has no "
            "attempt with GPUs for this selection; select differently, or run `rightsizer ingest`"
        )
    else:
        usable, cpus, memory, gpus = (
            sum(getattr(row, name) or 0.0 for row in rows)
            for name in ("usable", "lost_for_cpus", "lost_for_memory", "lost_for_gpus")
        )
        held = sum(row.lost_for_cpus or 0.0 for row in rows if row.cpus_held)
        found.append(
            f"{counted(idle, 'idle GPU')}. On average over {attempts:,} attempts with GPUs, such a job could "
            f"use {usable:.1f} of them; {cpus:.1f} are lost because too few CPUs are left ({held:.1f} "
            f"of them on nodes where jobs without GPUs hold some), {memory:.1f} because too little "
            f"memory is left, and {gpus:.1f} because too few GPUs are idle on one node"
        )
        if cpus + memory:
            found.append(
                f"nine out of ten of these attempts had at most {beside.cpus:.3g} CPUs and "
                f"{beside.mem_mib:,.0f} MiB per GPU: to keep idle GPUs usable, keep that much free for "
                "each of them (MaxCPUsPerNode of a partition for jobs without GPUs)"
            )
    if away:
        found.append(f"{counted(away, 'more GPU')} on nodes that accept no jobs now")
    return found
