"""Reads a load from a file: the Standard Workload Format, or a CSV file with a header line. It changes nothing.

CSV columns: submit_s, run_s, cpus; if known also mem_mib, gpus, used_cpus, used_mem_mib, used_gpus, limit_s,
deadline_s (seconds, on the clock of submit_s), user, kind. A job with a known use but no known request of a resource
counts as having asked for what it used. SWF: fields 2, 4, 5, 8 to 10 and 12 of Feitelson's format (its memory is KiB
per processor), -1 if not known. Jobs that never ran, or asked for nothing (in SWF, for no processor), are left out
and counted.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import msgspec
import numpy
import pandas

from accounting.errors import ModelError
from models.scheduling.room import MILLI, Floats, Ints
from models.simulation.nodes import MOST_AMOUNT
from models.simulation.workload import Workload, workload

NEEDED = ("submit_s", "run_s", "cpus")
NAMES = ("user", "kind")
SWF_FIELDS = 18
SUBMIT, RUN, GIVEN, ASKED, LIMIT, MEM_KIB, USER = 1, 3, 4, 7, 8, 9, 11
KIB_A_MIB = 1024


class Trace(msgspec.Struct, frozen=True):
    """A load, how many of the file's jobs are not in it, and the number of each user that the file names."""

    jobs: Workload
    left_out: int
    users: dict[str, int]


def read_trace(file: Path) -> Trace:
    """Return the load of a file, SWF by its name (.swf, .swf.gz); ModelError if it cannot be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            if ".swf" in file.suffixes:
                return _of_swf(file)
            return _of_csv(file)
    except FileNotFoundError:
        raise ModelError(f"the file {file} does not exist") from None
    except (OSError, ValueError, EOFError, pandas.errors.ParserWarning) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"cannot read {file}: {reason}; give SWF, or CSV with {', '.join(NEEDED)}") from None


def _of_swf(file: Path) -> Trace:
    table = pandas.read_csv(file, sep=r"\s+", comment=";", header=None, dtype=float)
    if table.shape[1] != SWF_FIELDS:
        raise ValueError(f"a line has {table.shape[1]} fields, but SWF has {SWF_FIELDS}")
    columns = table.to_numpy(dtype=numpy.float64).T
    cpus = numpy.where(columns[ASKED] > 0, columns[ASKED], columns[GIVEN])
    mem_mib = numpy.ceil(columns[MEM_KIB].clip(0) * cpus.clip(0) / KIB_A_MIB)
    return _trace(
        columns[SUBMIT],
        columns[RUN],
        numpy.stack([cpus * MILLI, mem_mib, numpy.zeros(len(cpus))], axis=1),
        limit_s=columns[LIMIT],
        user=columns[USER],
        users={str(int(user)): int(user) for user in numpy.unique(columns[USER])},
    )


def _of_csv(file: Path) -> Trace:
    # Names may be numbers: pandas would make 1001.0 of 1001 where another job has none, and one user of 7 and 007.
    table = pandas.read_csv(file, index_col=False, dtype=dict.fromkeys(NAMES, str))
    missing = [name for name in NEEDED if name not in table.columns]
    if missing:
        raise ValueError(f"it lacks the columns {', '.join(missing)}")

    def column(name: str, otherwise: Floats | float) -> Floats:
        if name not in table.columns:
            return numpy.broadcast_to(numpy.asarray(otherwise, dtype=numpy.float64), len(table)).copy()
        values = pandas.to_numeric(table[name]).to_numpy(dtype=numpy.float64)
        return numpy.where(numpy.isnan(values), otherwise, values)

    cpus, mem_mib, gpus = (column(name, column(f"used_{name}", 0.0)) for name in ("cpus", "mem_mib", "gpus"))
    used = [column("used_cpus", cpus), column("used_mem_mib", mem_mib), column("used_gpus", gpus)]
    user, names = _codes(table, "user")
    return _trace(
        column("submit_s", numpy.nan),
        column("run_s", numpy.nan),
        numpy.stack([cpus * MILLI, mem_mib, gpus * MILLI], axis=1),
        used=numpy.stack([used[0] * MILLI, used[1], used[2] * MILLI], axis=1),
        limit_s=column("limit_s", numpy.inf),
        deadline_s=column("deadline_s", numpy.inf),
        user=user,
        users={name: number for number, name in enumerate(names)},
        kind=_codes(table, "kind")[0],
    )


def _codes(table: pandas.DataFrame, name: str) -> tuple[Ints, list[str]]:
    """Return a number for each different text of a column, in the order they come, and these texts."""
    if name not in table.columns:
        return numpy.zeros(len(table), dtype=numpy.int64), []
    codes, texts = pandas.factorize(table[name])
    return numpy.asarray(codes, dtype=numpy.int64), [str(text) for text in texts]


def _trace(
    submit_s: Floats,
    run_s: Floats,
    asked: Floats,
    *,
    limit_s: Floats,
    user: Floats | Ints,
    users: dict[str, int],
    used: Floats | None = None,
    deadline_s: Floats | None = None,
    kind: Ints | None = None,
) -> Trace:
    """Sort jobs by arrival, count time from the first one's, and leave out those that never ran."""
    ran = (
        numpy.isfinite(submit_s)
        & numpy.isfinite(run_s)
        & (run_s > 0)
        & numpy.isfinite(asked).all(axis=1)
        & (asked > 0).any(axis=1)
    )
    # -1 is an unknown limit in SWF, and in formats that follow it.
    limit_s = numpy.where(limit_s > 0, limit_s, numpy.inf)
    if not ran.any():
        raise ValueError("it has no job that ran")
    order = numpy.flatnonzero(ran)[numpy.argsort(submit_s[ran], kind="stable")]
    first_s = float(submit_s[order[0]])
    rows = asked[order] if used is None else numpy.hstack([asked[order], used[order]])
    # In thousandths of a CPU and of a GPU.
    absurd = ~((rows >= 0) & (rows < MOST_AMOUNT * MILLI)).all(axis=1)
    if absurd.any():
        raise ValueError(
            f"its job {order[absurd][0] + 1} asks for, or used, an amount below 0 or beyond any cluster"
        )
    return Trace(
        workload(
            submit_s[order] - first_s,
            run_s[order],
            numpy.ceil(asked[order]).astype(numpy.int64),
            used=None if used is None else numpy.ceil(used[order]).astype(numpy.int64),
            limit_s=limit_s[order],
            deadline_s=None if deadline_s is None else deadline_s[order] - first_s,
            user=user[order].astype(numpy.int64),
            kind=None if kind is None else kind[order],
        ),
        int((~ran).sum()),
        users,
    )
