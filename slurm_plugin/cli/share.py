"""`rightsizer share`: which kinds of jobs run well together on one GPU, and which jobs should share one now."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accounting.errors import ConfigError
from slurm_plugin.cli.number_range import NumberRange
from slurm_plugin.cli.output import format_option, print_rows

if TYPE_CHECKING:
    from models.gpus.interference import Interference
    from models.gpus.pairing import Job, Terms

FILE = click.Path(dir_okay=False, path_type=Path)
PAIR_COLUMNS, JOB_COLUMNS = ("kind", "beside", "speed"), ("job", "kind", "gpu")
HOUR_S = 3600.0
# The largest number that is accepted (seconds, MiB and so on); sums of such numbers stay finite.
MOST = 1e12


@click.command("share")
@click.argument("pairs", type=FILE)
@click.option(
    "--jobs",
    type=FILE,
    help="CSV file of the jobs on each GPU and the waiting jobs: show which of them should share.",
)
@click.option("--move", is_flag=True, help="Running jobs may be moved, or made to wait again.")
@click.option(
    "--suspend",
    is_flag=True,
    help="Like --move; in addition, a job that has run for four hours makes room for a waiting job that has "
    "not.",
)
@click.option(
    "--trying",
    type=NumberRange(0, 5),
    default=0.0,
    show_default=True,
    help="Assume that pairs do better than expected, by this many standard deviations of their uncertainty.",
)
@click.option(
    "--gpu-mem-mib",
    type=NumberRange(1),
    help="Memory of each GPU in MiB; two jobs that need more do not share.",
)
@format_option
def share(
    pairs: Path,
    jobs: Path | None,
    move: bool,
    suspend: bool,
    trying: float,
    gpu_mem_mib: float | None,
    output_format: str,
) -> None:
    """Show which kinds of jobs run well together on one GPU, from pairs that were measured.

    PAIRS is a CSV file with these columns:

    \b
    - kind, beside: the two kinds
    - speed: the speed of `kind` when `beside` runs on the same GPU; 1 is
      as fast as alone, 0: they do not fit
    - seconds (optional): how long the pair was measured; default ten
      hours
    - mem_mib (optional): the GPU memory that the kind needs

    Pairs that are not in the file are predicted.

    With --jobs, the command shows which job should go where, and why. The CSV file has these columns:

    \b
    - job, kind
    - gpu: the name of its GPU; empty if the job waits
    - waited_s, ran_s, mem_mib (optional); ran_s is the run time in all,
      also of running jobs

    A line with a gpu and no job is a free GPU. Nothing is asked of Slurm, and nothing is changed. See
    docs/gpu-sharing.md.

    \b
    Example:
      rightsizer share pairs.csv
      rightsizer share pairs.csv --jobs now.csv --gpu-mem-mib 81920
      rightsizer share pairs.csv --jobs now.csv --suspend
    """
    from models.gpus.interference import Interference, cramped
    from models.gpus.pairing import LONG_S, Terms

    told = _rows(pairs, PAIR_COLUMNS)
    now = [] if jobs is None else _rows(jobs, JOB_COLUMNS)
    names = [row[column] for row in told for column in ("kind", "beside")]
    at_work = [row for row in now if row["job"]]
    names += [row["kind"] for row in at_work]
    known = Interference(sorted(set(names)))
    for number, row in enumerate(told, start=2):
        _learn(known, row, f"{pairs}, line {number}")
    if gpu_mem_mib is not None:
        for pair_of in cramped(_memory([*told, *at_work]), gpu_mem_mib):
            known.learn(pair_of)
    if jobs is None:
        print_rows(_pair_rows(known), output_format, f"{pairs.name}: two on a GPU")
    else:
        terms = Terms(trying=trying, long_s=LONG_S if suspend else math.inf)
        rows = _job_rows(now, jobs, known, terms, move=move or suspend)
        print_rows(rows, output_format, f"{jobs.name}: which job goes where", ("job", "gpu", "beside", "why"))


def _rows(file: Path, needed: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of a CSV file, without spaces around values; missing values are empty."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as opened:
            reader = csv.DictReader(opened, strict=True)
            missing = [name for name in needed if name not in (reader.fieldnames or ())]
            if missing:
                raise ConfigError(f"{file} has no column {missing[0]}; give {', '.join(needed)}")
            rows = [{str(name): str(value or "").strip() for name, value in row.items()} for row in reader]
    except (OSError, ValueError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read {file}: {why}; give a CSV file with {', '.join(needed)}") from None
    return rows


def _number(row: dict[str, str], name: str, default: float, where: str) -> float:
    try:
        found = float(row.get(name) or default)
    except ValueError:
        found = math.nan
    if not abs(found) < MOST:
        raise ConfigError(f"{where}: {name} is {row[name]!r}; give a number")
    return found


def _memory(rows: list[dict[str, str]]) -> dict[str, float]:
    """Return the largest GPU memory (MiB) that the rows give for each kind."""
    found: dict[str, float] = {}
    for row in rows:
        if row.get("mem_mib"):
            told_mib = _number(row, "mem_mib", 0.0, f"kind {row['kind']}")
            found[row["kind"]] = max(found.get(row["kind"], 0.0), told_mib)
    return found


def _learn(known: Interference, row: dict[str, str], where: str) -> None:
    from accounting.errors import ModelError
    from models.gpus.interference import MEASURED_S, Pair

    if not (row["kind"] and row["beside"] and row["speed"]):
        raise ConfigError(f"{where}: kind, beside or speed is empty; give all three")
    speed, seconds = _number(row, "speed", 0.0, where), _number(row, "seconds", MEASURED_S, where)
    try:
        known.learn(Pair(kind=row["kind"], beside=row["beside"], speed=speed, seconds=seconds))
    except ModelError as error:
        raise ConfigError(f"{where}: {error}") from None


def _pair_rows(known: Interference) -> list[dict[str, object]]:
    """Return a row for each pair of kinds; the pair that does most work together comes first."""
    rows = []
    for number, kind in enumerate(known.kinds):
        for beside in known.kinds[number:]:
            own, other = known.estimate(kind, beside), known.estimate(beside, kind)
            rows.append(
                {
                    "kind": kind,
                    "beside": beside,
                    "together": round(own.speed + other.speed, 2),
                    "speed": round(own.speed, 2),
                    "8 of 10 in": f"{own.low:.2f}–{own.high:.2f}",
                    "the other's": round(other.speed, 2),
                    "its 8 of 10": f"{other.low:.2f}–{other.high:.2f}",
                    "seen (h)": round(min(own.seconds, other.seconds) / HOUR_S, 1),
                }
            )
    return sorted(rows, key=lambda row: (-float(str(row["together"])), str(row["kind"]), str(row["beside"])))


def _job_rows(
    now: list[dict[str, str]], file: Path, known: Interference, terms: Terms, *, move: bool
) -> list[dict[str, object]]:
    """Return a row for each job that is placed, moved or left waiting, and for each GPU that is kept free."""
    from models.gpus.pairing import pair
    from models.gpus.reasons import reasons

    gpus: dict[str, list[Job]] = {}
    waiting: list[Job] = []
    seen: set[int] = set()
    for number, row in enumerate(now, start=2):
        where = f"{file}, line {number}"
        there = gpus.setdefault(row["gpu"], []) if row["gpu"] else waiting
        if row["job"]:
            there.append(_job(row, where))
            if there[-1].job_id in seen:
                raise ConfigError(f"{where}: job {row['job']} is listed already; give each job one line")
            seen.add(there[-1].job_id)
        elif not row["gpu"]:
            raise ConfigError(f"{where}: neither job nor gpu is given; give at least one of them")
        if row["gpu"] and len(there) > 2:
            raise ConfigError(f"{where}: {row['gpu']} has a third job; only pairs of jobs are supported")
    names = list(gpus)
    found = pair(list(gpus.values()), waiting, known, terms, moving=move)
    told = reasons(found, known, terms, names)
    rows: list[dict[str, object]] = [
        {
            "job": choice.job.job_id,
            "gpu": "" if choice.gpu is None else names[choice.gpu],
            "beside": "" if choice.beside is None else choice.beside.job_id,
            "why": why,
        }
        for choice, why in zip(found.choices, told, strict=False)
    ]
    kept = told[len(found.choices) :]
    return rows + [
        {"job": "", "gpu": names[gpu], "beside": "", "why": why}
        for gpu, why in zip(sorted(found.kept_free), kept, strict=True)
    ]


def _job(row: dict[str, str], where: str) -> Job:
    from models.gpus.pairing import Job

    if not (row["job"].isdecimal() and row["kind"]):
        raise ConfigError(
            f"{where}: job is {row['job']!r}, kind {row['kind']!r}; give a job number and a kind"
        )
    return Job(
        job_id=int(row["job"]),
        kind=row["kind"],
        waited_s=_number(row, "waited_s", 0.0, where),
        ran_s=_number(row, "ran_s", 0.0, where),
    )
