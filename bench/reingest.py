"""What a day of accounting costs to ingest, and what it costs to ingest once more.

    python -m bench.reingest [--jobs 100000] [--rounds 3] [--format table|json|csv]

The day is what sacct would print of a seeded site's jobs, with two steps each; sacct itself is left out. It goes
through all of ingest (texts matched, rows parsed, attempts labelled, everything written) into a fresh SQLite store,
then the very same day again, as every run's overlap does, and then with one job in 100 changed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from accounting.ingest.ingesting import fetched_answer, ingest
from accounting.ingest.run import IngestReport, IngestSettings
from accounting.slurm.sacct import DELIMITER, FIGURES, KEY, TEXTS, Answer
from accounting.slurm.sacct_records import Metering
from accounting.slurm.windows import DAY_S, Pace
from accounting.store.database import open_store
from bench import site_rows
from bench.arguments import parser_of
from bench.figures import goal
from slurm_plugin.cli.output import note, print_rows

FIRST, AGAIN, CHANGED = "first", "again", "one in 100 changed"
FASTER = 5.0
PRESSED = 100


def _no_text(display_id: str, column: str) -> bytes:
    sys.exit(f"the {column} of job {display_id} was asked for alone: the figures would be wrong")


def _bytes(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


HEAD_OF_FIGURES, HEAD_OF_TEXTS = DELIMITER.join(FIGURES), DELIMITER.join((*KEY, *TEXTS))
OWN_TEXTS = ("job_id", "submit_s", "job_name", "comment", "admin_comment", "account")


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    note(f"making a day of {arguments.jobs:,} jobs")
    attempts, steps = (in_a_day(table) for table in site_rows.chunk(0, arguments.jobs))
    day = printed_day(attempts, steps)
    changed = msgspec.structs.replace(day, texts=day.texts.replace(b"00\x1fstage-", b"00\x1fSTAGE-"))
    rows = len(attempts) + len(steps)
    seconds: dict[str, list[float]] = {FIRST: [], AGAIN: [], CHANGED: []}
    for number in range(arguments.rounds):
        note(f"round {number + 1} of {arguments.rounds}")
        with tempfile.TemporaryDirectory(prefix="rightsizer-bench-") as name:
            engine = open_store(f"sqlite:///{name}/store.db", create=True)
            for way, answer in ((FIRST, day), (AGAIN, day), (CHANGED, changed)):
                seconds[way].append(timed(engine, answer, Path(name), way, len(attempts)))
            engine.dispose()
    ratio = statistics.median(
        first / again for first, again in zip(seconds[FIRST], seconds[AGAIN], strict=True)
    )
    if arguments.format == "table":
        print_rows([goal("first / again", "sqlite", ratio, FASTER, at_most=False)], "table", "Goals")
    table = [
        {
            "run": way,
            "rows/s": round(rows / statistics.median(taken)),
            "s": round(statistics.median(taken), 2),
            "first / this": round(statistics.median(seconds[FIRST]) / statistics.median(taken), 2),
        }
        for way, taken in seconds.items()
    ]
    print_rows(table, arguments.format, f"A day of {len(attempts):,} jobs and {len(steps):,} steps")


def timed(engine: Engine, answer: Answer, folder: Path, way: str, jobs: int) -> float:
    """Ingest a day and return the seconds it took; end the benchmark if the store did not get what it should."""
    settings = IngestSettings(
        sacct="sacct", overlap_s=0, first_days=1, gpu_spool=folder / "spool", journal=folder / "journal"
    )
    until_s = site_rows.T0 + DAY_S
    # One window has all of the day, however much that is: the length of windows is not measured here.
    begin = time.perf_counter()
    fetched = msgspec.structs.replace(fetched_answer(answer, until_s, Metering()), size_bytes=0)
    report = ingest(
        engine,
        settings,
        until_s,
        since_s=site_rows.T0,
        source=lambda _begin_s, _end_s: fetched,
        pace=Pace(DAY_S),
    )
    taken_s = time.perf_counter() - begin
    if not as_expected(report, way, jobs):
        sys.exit(
            f"{way}: {report.attempts} of {jobs} jobs, {report.quarantined} quarantined: the figures would be wrong"
        )
    return taken_s


def in_a_day(table: pa.Table) -> pa.Table:
    """Return attempts or steps with their times compressed into the day after T0: some weeks are more than a window."""
    for name in ("submit_s", "start_s", "end_s"):
        if name in table.column_names:
            since_s = pc.subtract(table[name], site_rows.T0)
            pressed = pc.add(pc.cast(pc.divide(since_s, PRESSED), pa.int64()), site_rows.T0)
            table = table.set_column(table.column_names.index(name), name, pressed)
    return table


def as_expected(report: IngestReport, way: str, jobs: int) -> bool:
    """Whether a run brought what it should."""
    counts = report.attempts
    if way == CHANGED:
        return 0 < counts.changed < jobs / 50 and not counts.new
    return (counts.new, counts.same) == ((jobs, 0) if way == FIRST else (0, jobs)) and not report.quarantined


def printed_day(attempts: pa.Table, steps: pa.Table) -> Answer:
    """Return what sacct would print of attempts and their steps."""
    figures, texts = [HEAD_OF_FIGURES], [HEAD_OF_TEXTS]
    own = iter(steps.to_pylist())
    step = next(own, None)
    for row in attempts.to_pylist():
        figures.append(_line(_job(row)))
        texts.append(DELIMITER.join(str(row[name]) for name in OWN_TEXTS))
        while step is not None and step["job_id"] == row["job_id"]:
            figures.append(_line(_step(step)))
            step = next(own, None)
    return Answer(figures=_bytes(figures), texts=_bytes(texts), one_text=_no_text)


def _line(fields: dict[str, object]) -> str:
    return DELIMITER.join(str(fields.get(name, "")) for name in FIGURES)


def _job(row: dict[str, object]) -> dict[str, object]:
    tres = f"billing={row['alloc_cpus']},cpu={row['alloc_cpus']},mem={row['alloc_mem_mib']}M,node=1"
    return {
        "JobIDRaw": row["job_id"],
        "JobID": row["job_id"],
        "Cluster": row["cluster"],
        "User": row["user"],
        "Partition": row["partition"],
        "QOS": row["qos"],
        "State": row["state"],
        "Submit": row["submit_s"],
        "Start": row["start_s"],
        "End": row["end_s"],
        "ElapsedRaw": row["elapsed_s"],
        "TimelimitRaw": 1440,
        "NNodes": 1,
        "ReqTRES": tres,
        "AllocTRES": tres,
    }


def _step(row: dict[str, object]) -> dict[str, object]:
    def mib(name: str) -> int:
        value = row[name]
        return round(value * 1024**2) if isinstance(value, float) else 0

    usage = f"cpu=00:01:{mib('mem_total_mib') % 60:02},energy=0,fs/disk={mib('mem_total_mib') // 7},mem="
    return {
        "JobIDRaw": f"{row['job_id']}.{row['step_id']}",
        "JobID": f"{row['job_id']}.{row['step_id']}",
        "Cluster": row["cluster"],
        "State": row["state"],
        "Submit": row["submit_s"],
        "Start": row["start_s"],
        "End": row["end_s"],
        "NNodes": 1,
        "NTasks": row["tasks"],
        "MaxRSS": mib("mem_max_task_mib"),
        "TotalCPU": f"00:01:{mib('mem_total_mib') % 60:02}.123",
        "TRESUsageInMax": f"{usage}{mib('mem_max_task_mib')},pages=0,vmem=0",
        "TRESUsageInTot": f"{usage}{mib('mem_total_mib')},pages=0,vmem=0",
        "TRESUsageOutTot": "energy=0,fs/disk=1048576",
    }


if __name__ == "__main__":
    main()
