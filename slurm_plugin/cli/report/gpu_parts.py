"""`rightsizer report gpu-parts`: which jobs need only a part of a GPU, and how many GPU hours that would free."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from accounting.units import counted
from slurm_plugin.cli.given_options import refuse_given
from slurm_plugin.cli.number_range import NumberRange
from slurm_plugin.cli.output import cell, config_option, format_option, note, print_rows
from slurm_plugin.cli.report.advised import advised_jobs, advised_margin
from slurm_plugin.cli.report.options import NONE_CHOSEN, selection_options, top_option
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.file import load_config
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from accounting.report.selection import Selection
    from models.gpus.parted_families import PartedFamily, Rule
    from models.gpus.parts import Part


@click.command("gpu-parts")
@click.option(
    "--gpu-mem-gib",
    type=NumberRange(1, 4096),
    required=True,
    help="Memory of one whole GPU in GiB, as in its product name: 40, 80, 141.",
)
@click.option(
    "--instances",
    type=click.Choice(["7", "4"]),
    default="7",
    show_default=True,
    help="Most MIG instances of one GPU: 4 for an A30 or an RTX PRO 6000.",
)
@click.option(
    "--shards",
    type=click.IntRange(2, 1024),
    help="Use Slurm's shards instead of MIG; the number of shards of one GPU.",
)
@click.option(
    "--slower",
    type=NumberRange(0, 10),
    default=0.25,
    show_default=True,
    help="The share of its run time by which a job may become slower.",
)
@top_option
@config_option
@format_option
@selection_options
def gpu_parts(
    config_file: str | None,
    gpu_mem_gib: float,
    instances: str,
    shards: int | None,
    slower: float,
    top: int,
    output_format: str,
    selection: Selection,
) -> None:
    """Show whose jobs would manage with a part of a GPU.

    Only jobs with one GPU are considered. A part is a MIG instance, or some shards. It must hold the most GPU memory
    that the family has used, plus 15 %, if at least five of its jobs were measured. The busiest job must not become
    slower than --slower allows, even if it can use a whole GPU whenever it computes. Only `rightsizer collect`
    measures how busy a GPU is. The report does not distinguish types of GPUs: select a partition with one type.

    \b
    Example:
      rightsizer report gpu-parts --gpu-mem-gib 80 --partition a100
      rightsizer report gpu-parts --gpu-mem-gib 32 --shards 4 --slower 0.5
    """
    from accounting.report.gpu_jobs import read_on_one_gpu
    from models.gpus.parted_families import PartedFamily, parted_families
    from models.gpus.parts import mig_instances
    from models.gpus.parts import shards as shards_of
    from models.past.families import family_name

    if shards:
        refuse_given("instances", why="describes MIG, and --shards replaces MIG; give only one of them")
    config = load_config(config_file)
    parts = shards_of(gpu_mem_gib, shards) if shards else mig_instances(gpu_mem_gib, int(instances))
    with opened_store(config) as engine:
        runs = read_on_one_gpu(engine, selection, family_name)
        rows, span_h = parted_families(runs, parts, _rule(config, slower))
    shown = [msgspec.structs.asdict(row) for row in rows[:top]]
    if output_format == "table":
        print_rows([_brief(row) for row in shown], output_format)
    else:
        print_rows(shown, output_format, columns=PartedFamily.__struct_fields__)
    if not rows:
        note(f"no attempt with one GPU: {NONE_CHOSEN}")
        return
    for said in _in_words(rows, parts, span_h):
        note(said)


def _rule(config: Config, slower: float) -> Rule:
    from models.gpus.parted_families import Rule
    from models.past.families import is_alike

    return Rule(
        least_jobs=advised_jobs(config),
        mem_margin=advised_margin(config.policy.memory_margin),
        most_times=1 + slower,
        alike=is_alike,
    )


def _brief(row: dict[str, object]) -> dict[str, object]:
    return {
        "user": row["user"],
        "family": row["family"],
        "jobs (measured)": f"{row['jobs']} ({row['measured']})",
        "GPU·h": row["gpu_h"],
        "most GiB used": row["mem_most_gib"],
        "busy % (highest)": f"{cell(row['busy_mean_pct'])} ({cell(row['busy_most_pct'])})",
        "suitable part": row["part"] or f"none ({row['why']})",
        "times as long, at most": row["times_at_most"],
        "GPU·h freed": row["gpu_h_freed"],
    }


def _in_words(rows: Sequence[PartedFamily], parts: Sequence[Part], span_h: float) -> list[str]:
    held_h = sum(row.gpu_h for row in rows)
    unknown_h = sum(row.gpu_h for row in rows if row.why == "too few measured")
    parted = [row for row in rows if row.part]
    found = []
    if parted:
        freed_h = sum(row.gpu_h_freed for row in parted)
        found.append(
            f"{len(parted):,} of {counted(len(rows), 'family')} could use a part of a GPU; of {held_h:,.1f} GPU "
            f"hours held by jobs with one GPU this frees at least {freed_h:,.1f}"
        )
        used_h: defaultdict[str, float] = defaultdict(float)
        for row in parted:
            used_h[row.part] += row.part_h
        needed = ", ".join(
            f"{used_h[part.name] / max(span_h, 1):.3g} of {part.name}"
            for part in parts
            if part.name in used_h
        )
        found.append(f"on average over {span_h:,.0f} hours these jobs would hold {needed}")
    else:
        found.append(f"none of {counted(len(rows), 'family')} is known to manage with a part of a GPU")
    if unknown_h:
        found.append(
            f"{unknown_h:,.1f} of {held_h:,.1f} hours belong to families with too few measured jobs; "
            "`rightsizer collect` on the nodes measures them"
        )
    return found
