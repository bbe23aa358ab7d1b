"""`rightsizer report gpu-parts`: whose jobs would do with a part of a GPU, and how many GPU hours that frees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from slurm_plugin.cli.given_options import refuse_given
from slurm_plugin.cli.output import cell, config_option, format_option, note, print_rows
from slurm_plugin.cli.report.advised import advised_jobs, advised_margin
from slurm_plugin.cli.report.options import NONE_CHOSEN, selection_options
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
    type=click.FloatRange(1, 4096),
    required=True,
    help="The memory of one whole GPU, as its name says it: 40, 80, 141.",
)
@click.option(
    "--instances",
    type=click.Choice(["7", "4"]),
    default="7",
    show_default=True,
    help="Into how many MIG cuts one at most: 4 for an A30 or an RTX PRO 6000.",
)
@click.option(
    "--shards", type=click.IntRange(2, 1024), help="Not MIG: by Slurm's shards, of which a GPU has so many."
)
@click.option(
    "--slower",
    type=click.FloatRange(0, 10),
    default=0.25,
    show_default=True,
    help="By which share of its time a job may run longer at most.",
)
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Show so many rows.")
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
    """Show whose jobs with one GPU would do with a part of it: an instance of MIG's, or shards.

    A part must hold the most memory that a family of five measured jobs or more has used of a GPU, and 15 % on top, and
    the busiest job must not become slower than is borne, even if it can use a whole GPU whenever it computes. Only
    `rightsizer collect` tells how busy a GPU is. GPUs of several types are not told apart: choose their partition.

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
        refuse_given("instances", why="are of MIG, and --shards is instead of it; give one of them")
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
        note(f"of attempts with one GPU: {NONE_CHOSEN}")
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
        "GiB at most": row["mem_most_gib"],
        "busy % (at most)": f"{cell(row['busy_mean_pct'])} ({cell(row['busy_most_pct'])})",
        "would do": row["part"] or f"- ({row['why']})",
        "times at most": row["times_at_most"],
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
            f"{len(parted):,} of {len(rows):,} families would do with a part; of {held_h:,.1f} hours of jobs with one "
            f"GPU that frees {freed_h:,.1f} at least"
        )
        used_h: defaultdict[str, float] = defaultdict(float)
        for row in parted:
            used_h[row.part] += row.part_h
        needed = ", ".join(
            f"{used_h[part.name] / max(span_h, 1):.3g} of {part.name}"
            for part in parts
            if part.name in used_h
        )
        found.append(f"in the mean over {span_h:,.0f} hours these would hold {needed}")
    else:
        found.append(f"no family of {len(rows):,} is known to do with a part of a GPU")
    if unknown_h:
        found.append(
            f"{unknown_h:,.1f} of {held_h:,.1f} hours are of families with too few measured jobs; `rightsizer "
            "collect` on the nodes measures them"
        )
    return found
