"""What sacct's answers say: attempts that have ended, with their steps and texts, in columns. Pure but for `one_text`.

An attempt whose record is the same, byte for byte, as when it was last read is known by its digest and not read again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from io import BytesIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from accounting import columns
from accounting.errors import SlurmError
from accounting.frames import JOBS, STEPS, Ints, Records
from accounting.records import Quarantined
from accounting.sacct import DELIMITER, FIGURES, KEY, TEXTS, Answer
from accounting.texts import Key, Row, are_plain, split_rows, text_alone
from accounting.units import whole

SOURCE = "sacct"
CUT = DELIMITER.encode()
# Attempts in one Records: what a few hundred megabytes hold.
MOST_JOBS = 50_000
# A call of its own for each text that is missing takes some 30 ms; a window that lacks more of them is damaged.
MOST_ASKED = 1_000
# Steps can reach slurmdbd after the end of their job: by a second or two, seen on 22.05.
SETTLED_S = 10
# Raised whenever labels change, so that what is read again is labelled anew.
DIGEST_KEY = b"labels-2"


class Metering(msgspec.Struct, frozen=True, kw_only=True):
    """Who measured: Slurm's release (`24.11`), its plugin (`jobacct_gather/cgroup cgroup/v2`), and how often."""

    release: str = ""
    gather: str = ""
    sampled_every_s: int = 30


@dataclass(slots=True)
class Group:
    """The lines of an attempt: its own, and those of its steps; `text` is its key and its texts, as one line."""

    key: Key
    lines: list[bytes]
    text: bytes = b""
    texts: Row | None = None
    digest: int = 0

    @property
    def display_id(self) -> bytes:
        """Its id as people write it."""
        return self.lines[0].split(CUT, 3)[2]

    @property
    def own_texts(self) -> Row:
        """Its texts, in the order of TEXTS."""
        return tuple(self.text.split(CUT)[len(KEY) :]) if self.texts is None else self.texts


@dataclass
class Lines:
    """Lines in groups, and what belongs to none."""

    groups: list[Group] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)


def read_answer(
    answer: Answer, until_s: int, metering: Metering, known: Ints | None = None, most_jobs: int = MOST_JOBS
) -> Iterator[Records]:
    """Yield the attempts of an answer that have ended by `until_s`, but for those whose digest is among `known`.

    What ended later belongs to a later window. Raises SlurmError where the two calls contradict each other.
    """
    heading, *rows = answer.figures.removesuffix(b"\n").split(b"\n")
    names = tuple(heading.decode().split(DELIMITER))
    lines = split_groups(rows, len(names))
    add_texts(lines, answer, until_s)
    seen = np.sort(known) if known is not None else np.empty(0, dtype=np.int64)
    fresh = [group for group, old in zip(lines.groups, _is_known(lines.groups, seen), strict=True) if not old]
    yield replace(
        _records(fresh[:most_jobs], names, until_s, metering, tuple(lines.quarantined)),
        known=len(lines.groups) - len(fresh),
    )
    for begin in range(most_jobs, len(fresh), most_jobs):
        yield _records(fresh[begin : begin + most_jobs], names, until_s, metering)


def split_groups(rows: Sequence[bytes], width: int) -> Lines:
    """Put rows into groups. Step rows belong to the job row before them, with its id.

    After a requeue the same id comes once for each attempt.
    """
    lines, separators = Lines(), width - 1
    step_prefix, own = b".", list[bytes]()  # of no job
    for row in rows:
        if row.count(CUT) != separators:
            reason = f"{row.count(CUT) + 1} columns instead of {width}"
            lines.quarantined.append(Quarantined(line=shown(row), reason=reason, source=SOURCE))
        elif row.startswith(step_prefix):
            own.append(row)
        elif b"." not in (job_id := row[: (end := row.find(CUT))]):
            step_prefix, own = job_id + b".", [row]
            lines.groups.append(Group(row[: row.find(CUT, end + 1)], own))
        else:
            lines.quarantined.append(Quarantined(line=shown(row), reason="a step of no job", source=SOURCE))
    return lines


def add_texts(lines: Lines, answer: Answer, until_s: int) -> None:
    """Give each group its texts and its digest; a group whose texts cannot be told is quarantined."""
    delimiter, columns = answer.texts_delimiter.encode(), len(KEY) + len(TEXTS)
    rows = answer.texts.removesuffix(b"\n").split(b"\n")[1:]
    keys = [group.key for group in lines.groups]
    own_keys = keys if delimiter == CUT else [key.replace(CUT, delimiter) for key in keys]
    # A text that holds our own delimiter must not meet it again.
    if are_plain(rows, own_keys, delimiter, columns) and (delimiter == CUT or CUT not in answer.texts):
        for group, row in zip(lines.groups, rows, strict=True):
            group.text = row.replace(delimiter, CUT)
        last = keys[-1] if keys else None
    else:
        parted = split_rows(rows, delimiter, columns) if rows else []
        _give_texts(lines, parted, answer.one_text)
        last = CUT.join(parted[-1][: len(KEY)]) if parted else None
    if answer.one_id is not None:
        refuse_cut(lines, keys, last, answer.one_id, until_s)
    for group in lines.groups:
        group.digest = digest_of(group)


def _give_texts(lines: Lines, rows: Sequence[Row], one_text: Callable[[str, str], bytes]) -> None:
    found: dict[Key, deque[Row]] = {}
    for row in rows:
        found.setdefault(CUT.join(row[: len(KEY)]), deque()).append(row[len(KEY) :])
    missing = sum(group.key not in found for group in lines.groups)
    if missing > max(MOST_ASKED, len(lines.groups) // 2):
        raise SlurmError(
            f"sacct's two answers about one window differ in {missing} of {len(lines.groups)} jobs; "
            "look at slurmdbd's log, and try again"
        )
    attempts = Counter(name for group in lines.groups for name in _names(group)) if missing else Counter()
    groups, asked = [], 0
    for group in lines.groups:
        if found.get(group.key):
            group.texts = found[group.key].popleft()
        elif _may_have_ended(group):
            # It came after the texts had been asked for.
            asked += 1
            alone = asked <= MOST_ASKED
            group.texts = ask_alone(group, attempts[asked_as(group)], one_text) if alone else None
        else:
            group.texts = (b"",) * len(TEXTS)
        if group.texts is None:
            record = b"\n".join(group.lines)
            reason = "sacct did not tell its name and comments"
            lines.quarantined.append(Quarantined(line=shown(record), reason=reason, source=SOURCE))
            continue
        group.text = CUT.join((group.key, *group.texts))
        groups.append(group)
    lines.groups = groups


def refuse_cut(
    lines: Lines,
    keys: Sequence[Key],
    last_text: Key | None,
    one_id: Callable[[str, str], bytes],
    until_s: int,
) -> None:
    """Raise SlurmError where the figures lack what the texts, which were asked for first, end with, or steps."""

    def printed(display_id: bytes, column: str) -> list[str]:
        return one_id(display_id.decode(errors="replace"), column).decode(errors="replace").splitlines()

    last = lines.groups[-1] if lines.groups else None
    if last is not None and _has_settled(last, until_s):
        own = last.key[: last.key.find(CUT) + 1]
        count = sum(len(group.lines) for group in lines.groups if group.key.startswith(own))
        if count < len(printed(last.display_id, "JobIDRaw")):
            raise _cut_off(last.display_id, "steps of job")
    if last_text is not None and last_text not in keys:
        job_id, submit = last_text.split(CUT)
        # It may have left the window meanwhile, when its begin time was put off.
        if submit.decode(errors="replace") in printed(job_id, "Submit"):
            raise _cut_off(job_id, "job")


def _cut_off(job_id: bytes, what: str) -> SlurmError:
    return SlurmError(
        f"sacct's output was cut off ({what} {job_id.decode(errors='replace')} missing), although it ended well; "
        "look at what accounting.sacct runs, and try again"
    )


def _has_settled(group: Group, until_s: int) -> bool:
    """Whether an attempt ended so long ago that no step of it can still be on its way to slurmdbd."""
    end_s = group.lines[0].split(CUT)[FIGURES.index("End")]
    return b"_[" not in group.display_id and end_s.isdigit() and int(end_s) <= until_s - SETTLED_S


def _may_have_ended(group: Group) -> bool:
    """Whether to ask for its texts: what has not ended is read again anyway."""
    return group.lines[0].split(CUT)[FIGURES.index("End")].isdigit()


def ask_alone(group: Group, attempts: int, one_text: Callable[[str, str], bytes]) -> Row | None:
    """Return a group's texts, asked for by themselves; None where its job's `attempts` differ in one of them."""
    texts = [text_alone(one_text(asked_as(group).decode(), name), attempts) for name in TEXTS]
    known = [text for text in texts if text is not None]
    return tuple(known) if len(known) == len(TEXTS) else None


def asked_as(group: Group) -> bytes:
    """Return the id by which sacct takes a job.

    It takes no range of tasks that never started (`12_[3-5]`): then all of the array is asked for.
    """
    array, waiting, _ = group.display_id.partition(b"_[")
    return array if waiting else group.display_id


def _names(group: Group) -> set[bytes]:
    """Return the ids for which sacct prints this attempt: its own, and that of its array."""
    return {group.display_id, group.display_id.partition(b"_")[0]}


def digest_of(group: Group) -> int:
    """Return the digest of a record as a signed number of 64 bits."""
    record = b"\n".join((*group.lines, group.text))
    return int.from_bytes(blake2b(record, digest_size=8, key=DIGEST_KEY).digest(), "big", signed=True)


def _is_known(groups: Sequence[Group], known: Ints) -> list[bool]:
    digests = np.fromiter((group.digest for group in groups), np.int64, len(groups))
    flags: list[bool] = np.isin(digests, known).tolist()
    return flags


def _records(
    groups: Sequence[Group],
    names: Sequence[str],
    until_s: int,
    metering: Metering,
    quarantined: tuple[Quarantined, ...] = (),
) -> Records:
    job_of = [row for row, group in enumerate(groups) for _ in group.lines]
    table = _table([line for group in groups for line in group.lines], names)
    is_job = np.diff(np.array(job_of, dtype=np.int64), prepend=-1) > 0
    jobs = _jobs(table.filter(pa.array(is_job)), groups, metering)
    steps = _steps(table.filter(pa.array(~is_job)), np.array(job_of, dtype=np.int64)[~is_job])
    return taken(jobs, steps, until_s, quarantined, [b"\n".join(group.lines) for group in groups])


def _table(rows: Sequence[bytes], names: Sequence[str]) -> pa.Table:
    """Return rows as columns of text; one that sacct does not know is empty."""
    if not rows:
        return pa.table({name: pa.array([], pa.string()) for name in FIGURES})
    text = b"\n".join(rows).replace(b"\r", b" ")
    table = csv.read_csv(
        BytesIO(text if text.isascii() else shown(text).encode()),
        read_options=csv.ReadOptions(column_names=list(names), block_size=1 << 24),
        parse_options=csv.ParseOptions(
            delimiter=DELIMITER, quote_char=False, newlines_in_values=False, ignore_empty_lines=False
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False, check_utf8=False
        ),
    )
    for name in FIGURES:
        if name not in table.column_names:
            table = table.append_column(name, [[""] * len(table)])
    return table


def _jobs(table: pa.Table, groups: Sequence[Group], metering: Metering) -> pa.Table:
    asked, given = columns.tres_amounts(table["ReqTRES"]), columns.tres_amounts(table["AllocTRES"])
    limit_min = columns.whole(table["TimelimitRaw"])
    texts = (
        list(zip(*([shown(text) for text in group.own_texts] for group in groups), strict=True)) or [()] * 3
    )
    values = {
        "cluster": table["Cluster"],
        "job_id": columns.whole(table["JobIDRaw"]),
        "display_id": table["JobID"],
        "user": table["User"],
        "account": table["Account"],
        "partition": table["Partition"],
        "qos": table["QOS"],
        "job_name": texts[0],
        "comment": texts[1],
        "admin_comment": texts[2],
        "state": table["State"],
        "submit_s": columns.whole(table["Submit"]),
        "start_s": pc.fill_null(columns.whole(table["Start"]), 0),
        "end_s": pc.fill_null(columns.whole(table["End"]), 0),
        "elapsed_s": pc.fill_null(columns.whole(table["ElapsedRaw"]), 0),
        "limit_s": pc.multiply(limit_min, 60),
        "nodes": pc.fill_null(columns.whole(table["NNodes"]), 0),
        "tasks": columns.whole(table["NTasks"]),
        "req_cpus": asked.cpus,
        "req_mem_mib": asked.mem_mib,
        "req_gpus": asked.gpus,
        "alloc_cpus": given.cpus,
        "alloc_mem_mib": given.mem_mib,
        "alloc_gpus": given.gpus,
        "energy_j": columns.whole(table["ConsumedEnergyRaw"]),
        "slurm_release": pa.repeat(metering.release, len(table)),
        "gather": pa.repeat(metering.gather, len(table)),
        "digest": [group.digest for group in groups],
    }
    return _typed(values, JOBS)


def _steps(table: pa.Table, job: Ints) -> pa.Table:
    highest, total = columns.usage(table["TRESUsageInMax"]), columns.usage(table["TRESUsageInTot"])
    values = {
        "job": job,
        "step_id": pc.replace_substring_regex(table["JobIDRaw"], r"^[^.]*\.", ""),
        "state": table["State"],
        "start_s": pc.fill_null(columns.whole(table["Start"]), 0),
        "end_s": pc.fill_null(columns.whole(table["End"]), 0),
        "tasks": pc.fill_null(columns.whole(table["NTasks"]), 1),
        "nodes": pc.fill_null(columns.whole(table["NNodes"]), 1),
        "mem_max_task_mib": columns.memory_mib(table["MaxRSS"], "B"),
        "mem_total_mib": total.mem_mib,
        "cpu_s": columns.duration_s(table["TotalCPU"]),
        "cpu_max_task_s": highest.cpu_s,
        "gpu_util_pct": highest.gpu_util_pct,
        "gpu_mem_mib": total.gpu_mem_mib,
        "read_mib": total.moved_mib,
        "written_mib": columns.usage(table["TRESUsageOutTot"]).moved_mib,
        "energy_j": columns.whole(table["ConsumedEnergyRaw"]),
    }
    return _typed(values, STEPS)


def _typed(values: dict[str, object], schema: pa.Schema) -> pa.Table:
    arrays = [_array(values[of.name], of.type) for of in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(value: object, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    return value.cast(kind) if isinstance(value, (pa.Array, pa.ChunkedArray)) else pa.array(value, kind)


def taken(
    jobs: pa.Table,
    steps: pa.Table,
    until_s: int,
    quarantined: tuple[Quarantined, ...],
    lines: Sequence[bytes],
) -> Records:
    """Return the attempts that have ended and can be believed, with their steps; the others counted or quarantined."""
    # A job's end can reach slurmdbd before its start (seen on 22.05): for two seconds its row is COMPLETED,
    # of root, and without a partition.
    ended = pc.and_(pc.greater(jobs["end_s"], 0), pc.not_equal(jobs["partition"], ""))
    ended = pc.and_(ended, pc.not_equal(columns.outcomes(jobs["state"]), "unfinished")).to_numpy()
    identified = pc.and_(pc.is_valid(jobs["job_id"]), pc.is_valid(jobs["submit_s"])).to_numpy()
    in_order = pc.greater_equal(jobs["end_s"], jobs["start_s"]).to_numpy()
    later = pc.greater(jobs["end_s"], until_s).to_numpy()
    refused = [
        Quarantined(line=shown(lines[int(row)]), reason=reason, source=SOURCE)
        for reason, rows in (
            ("no job id or submit time", np.flatnonzero(~identified)),
            ("it ends before it starts", np.flatnonzero(identified & ended & ~in_order)),
        )
        for row in rows
    ]
    keep = identified & ended & in_order & ~later
    place = np.cumsum(keep) - 1
    job = steps["job"].to_numpy()
    of_kept = steps.filter(pa.array(keep[job])) if len(steps) else steps
    moved = pa.array(place[of_kept["job"].to_numpy()], pa.int64())
    return Records(
        jobs=jobs.filter(pa.array(keep)),
        steps=of_kept.set_column(0, "job", moved),
        quarantined=(*quarantined, *refused),
        unfinished=int((identified & ~ended).sum()),
    )


def end_of(line: str) -> int | None:
    """Return when a quarantined job ended, in unix seconds; None where its line does not tell."""
    fields = line.split("\n", 1)[0].split(DELIMITER)
    place = FIGURES.index("End")
    return whole(fields[place]) if len(fields) > place else None


def shown(text: bytes) -> str:
    r"""Return text as a store takes it: what is no UTF-8 stands as `\xff`, and so does a NUL."""
    return text.decode("utf-8", errors="backslashreplace").replace("\x00", "\\x00")
