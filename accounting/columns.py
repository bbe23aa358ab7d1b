"""Bulk parsing of Slurm's text columns: what units, tres, ids and states do for one text, for millions of texts.

Every function takes an array of strings and returns an array of the same length, with null where the function
for one text returns None. Arrow parses the usual forms. Unusual texts, and columns with few distinct texts, go
through the function for one text, once per distinct text, so that only one place defines what a text means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from accounting import units
from accounting.ids import parse_job_id
from accounting.states import outcome_of
from accounting.tres import parse_tres, parse_usage
from accounting.units import MIB_IN_BYTES, parse_requested_mib, parse_time_s

Text: TypeAlias = pa.Array | pa.ChunkedArray

FEW = 512  # up to this many distinct texts are faster to parse one by one
_SAMPLE = 2048
_BYTES_PER = {"": 0, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5, "E": 1024**6}
_WHOLE = r"^[0-9]{1,18}$"
_MEMORY = r"^(?P<number>[0-9]{1,18}(?:\.[0-9]{1,18})?)(?P<suffix>[KMGTPE]?)$"
_DURATION = (
    r"^(?:(?P<days>[0-9]{1,6})-)?(?:(?:(?P<hours>[0-9]{1,6}):)?(?P<minutes>[0-9]{1,6}):)?"
    r"(?P<seconds>[0-9]{1,9}(?:\.[0-9]{1,9})?)$"
)
# Local times that need no calendar. The function for one text handles the last days of each month, and the
# years for which Arrow knows no summer time.
_LOCAL_TIME = (
    r"^(?:20[0-2][0-9]|203[0-6])-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
    r"[T ](?:[01][0-9]|2[0-3])(?::[0-5][0-9]){2}$"
)
_JOB_ID = r"^(?P<display>[0-9]{1,10})(?:\.(?P<step>batch|extern|interactive|[0-9]{1,10}))?$"
_AMOUNT = "[0-9.:KMGTPE-]*"
# sacct writes a list in the order of its names. Few sites measure GPUs, and a pattern without them is twice as
# fast. The function for one text handles what neither pattern matches.
_USAGE_HEAD = "^" + "".join(
    f"(?:{name}=(?P<{group}>{_AMOUNT})(?:,|$))?"
    for name, group in (("cpu", "cpu"), ("energy", "energy"), ("fs/disk", "disk"))
)
_USAGE_GPU = f"gres/gpumem=(?P<gpumem>{_AMOUNT}),gres/gpuutil=(?P<gpuutil>{_AMOUNT})(?:,|$)"
_USAGE_TAIL = f"(?:mem=(?P<mem>{_AMOUNT})(?:,|$))?(?:pages={_AMOUNT}(?:,|$))?(?:vmem={_AMOUNT})?$"
_USAGE_PATTERNS = (_USAGE_HEAD + _USAGE_TAIL, _USAGE_HEAD + _USAGE_GPU + _USAGE_TAIL)


@dataclass(frozen=True)
class TresAmounts:
    """Columns of a ReqTRES or AllocTRES column; memory is in MiB, energy in joules."""

    cpus: pa.Array
    mem_mib: pa.Array
    gpus: pa.Array
    nodes: pa.Array
    energy_j: pa.Array


@dataclass(frozen=True)
class UsageAmounts:
    """Columns of a TRESUsage column; `moved_mib` is data read in TRESUsageIn*, data written in TRESUsageOut*."""

    cpu_s: pa.Array
    mem_mib: pa.Array
    gpu_util_pct: pa.Array
    gpu_mem_mib: pa.Array
    moved_mib: pa.Array
    energy_j: pa.Array


@dataclass(frozen=True)
class JobIds:
    """Columns of JobID or JobIDRaw, split as in accounting/ids.py; `pending` is false if the text is not an id."""

    number: pa.Array
    display_id: pa.Array
    task: pa.Array
    component: pa.Array
    pending: pa.Array
    step_id: pa.Array


def whole(text: Text) -> pa.Array:
    """Return non-negative whole numbers of at most 18 digits (int64)."""
    values = _plain(text)
    return _kept(values, pc.match_substring_regex(values, _WHOLE)).cast(pa.int64())


def memory_mib(text: Text, bare_unit: str) -> pa.Array:
    """Return MiB (float64); `bare_unit` is the unit of numbers without a suffix, `M` or `B`."""
    return _read(
        text,
        partial(_memory_mib, bare_unit=bare_unit),
        partial(units.parse_memory_mib, bare_unit=bare_unit),
        pa.float64(),
    )


def duration_s(text: Text) -> pa.Array:
    """Parse `[D-][[HH:]MM:]SS[.mmm]` into seconds (float64)."""
    return _read(text, _duration_s, units.parse_duration_s, pa.float64())


def time_s(text: Text, zone: ZoneInfo) -> pa.Array:
    """Parse unix seconds, or local times in a zone, into unix seconds (int64); null for `Unknown` and the like."""
    seconds = whole(text)
    if seconds.null_count == 0:
        return seconds
    local = _read(text, partial(_time_s, zone=zone), lambda one: parse_time_s(one, zone), pa.int64())
    return pc.coalesce(seconds, local)


def second_time_s(text: Text, first_s: pa.Array, zone: ZoneInfo) -> pa.Array:
    """Return unix seconds, taking local times that occur twice, when summer time ends, as the later moment.

    `first_s` is the result of `time_s` for the same texts; it is returned unchanged for all other texts.
    """
    local = pc.and_(first_s.is_valid(), pc.invert(pc.match_substring_regex(_plain(text), _WHOLE)))
    if not pc.any(local).as_py():
        return first_s
    clock = pc.local_timestamp(_kept(first_s, local).cast(pa.timestamp("s", zone.key)))
    later = pc.assume_timezone(clock, zone.key, ambiguous="latest", nonexistent="earliest")
    return pc.coalesce(later.cast(pa.int64()), first_s)


def tres_amounts(text: Text) -> TresAmounts:
    """Parse ReqTRES or AllocTRES lists (int64)."""
    index, texts = _distinct(text)
    lists = [parse_tres(one or "") for one in texts.to_pylist()]
    names = ("cpus", "mem_mib", "gpus", "nodes", "energy_j")
    return TresAmounts(
        **{name: pa.array([getattr(each, name) for each in lists], pa.int64()).take(index) for name in names}
    )


def usage(text: Text) -> UsageAmounts:
    """Parse TRESUsage lists (float64)."""
    values = _plain(text)
    index, texts = (None, values) if _varied(values) else _distinct(values)
    amounts = _usage_one_by_one(texts) if len(texts) <= FEW else _usage_in_bulk(texts)
    return amounts if index is None else _each(amounts, lambda column: column.take(index))


def requested_memory_mib(text: Text, cpus: Text, nodes: Text) -> pa.Array:
    """Parse ReqMem into MiB of the whole job (int64): `100Mc` is per CPU, `2000Mn` per node.

    `cpus` and `nodes` are int64. Null if the text states no amount, or if it is per CPU or node and that number
    is unknown.
    """
    index, texts = _distinct(text)
    requests = [parse_requested_mib(one or "") for one in texts.to_pylist()]
    each_mib = pa.array([one and one[0] for one in requests], pa.float64()).take(index)
    unit = pa.array([one and one[1] for one in requests], pa.string()).take(index)
    counted = pc.case_when(
        pc.make_struct(pc.fill_null(pc.equal(unit, "c"), False), pc.fill_null(pc.equal(unit, "n"), False)),
        pc.cast(cpus, pa.int64()),
        pc.cast(nodes, pa.int64()),
        1,
    )
    mem_mib = pc.round(pc.multiply(each_mib, pc.cast(counted, pa.float64(), safe=False)))
    return pc.if_else(pc.less(mem_mib, 2.0**53), mem_mib, None).cast(pa.int64())


def job_ids(text: Text) -> JobIds:
    """Split JobID or JobIDRaw into its parts."""
    values = _plain(text)
    parts = pc.extract_regex(values, _JOB_ID)
    usual = parts.is_valid()
    odd = pc.invert(usual)
    index, texts = _distinct(values.filter(odd))
    ids = [parse_job_id(one or "") for one in texts.to_pylist()]

    def column(name: str, kind: pa.DataType, usually: pa.Array) -> pa.Array:
        rest = pa.array([one and getattr(one, name) for one in ids], kind).take(index)
        return pc.replace_with_mask(usually, odd, rest)

    display, step = _kept(parts.field("display"), usual), parts.field("step")
    none = pa.nulls(len(values), pa.int64())
    return JobIds(
        number=column("number", pa.int64(), display.cast(pa.int64())),
        display_id=column("display_id", pa.string(), display),
        task=column("task", pa.int64(), none),
        component=column("component", pa.int64(), none),
        pending=pc.fill_null(column("pending", pa.bool_(), none.cast(pa.bool_())), False),
        step_id=column("step_id", pa.string(), _kept(step, pc.not_equal(step, ""))),
    )


def outcomes(text: Text) -> pa.Array:
    """Return the outcome of each state, in the words of accounting/states.py (string)."""
    index, texts = _distinct(text)
    return pa.array([outcome_of(one or "") for one in texts.to_pylist()], pa.string()).take(index)


def _plain(text: Text) -> pa.Array:
    """Return one array of strings, whether or not the input is chunked."""
    array = text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text
    return array if array.type == pa.string() else array.cast(pa.string())


def _distinct(text: Text) -> tuple[pa.Array, pa.Array]:
    """Return the index of each text among the distinct texts, and the distinct texts."""
    encoded = _plain(text).dictionary_encode("encode")
    return encoded.indices, encoded.dictionary


def _varied(values: pa.Array) -> bool:
    """Whether most texts differ, so that finding equal ones would cost more than parsing them all."""
    sample = values.slice(0, _SAMPLE)
    return len(sample) > FEW and len(sample.unique()) > len(sample) // 2


def _kept(values: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.if_else(mask, values, pa.scalar(None, values.type))


def _read(
    text: Text,
    in_bulk: Callable[[pa.Array], pa.Array],
    one_by_one: Callable[[str], float | None],
    kind: pa.DataType,
) -> pa.Array:
    """Parse texts in bulk, and one by one those that this leaves null."""
    values = _plain(text)
    if _varied(values):
        return _read_distinct(values, in_bulk, one_by_one, kind)
    index, texts = _distinct(values)
    return _read_distinct(texts, in_bulk, one_by_one, kind).take(index)


def _read_distinct(
    texts: pa.Array,
    in_bulk: Callable[[pa.Array], pa.Array],
    one_by_one: Callable[[str], float | None],
    kind: pa.DataType,
) -> pa.Array:
    if len(texts) <= FEW:
        return pa.array([None if one is None else one_by_one(one) for one in texts.to_pylist()], kind)
    amounts = in_bulk(texts)
    odd = pc.and_(pc.is_null(amounts), pc.fill_null(pc.not_equal(texts, ""), False))
    if not pc.any(odd).as_py():
        return amounts
    index, rest = _distinct(texts.filter(odd))
    read = pa.array([one_by_one(one) for one in rest.to_pylist()], kind)
    return pc.replace_with_mask(amounts, odd, read.take(index))


def _memory_mib(texts: pa.Array, bare_unit: str) -> pa.Array:
    parts = pc.extract_regex(texts, _MEMORY)
    suffix = parts.field("suffix")
    known = list(_BYTES_PER)
    per = {**_BYTES_PER, "": _BYTES_PER.get(bare_unit, 1)}
    factor = pa.array([float(per[each]) for each in known]).take(pc.index_in(suffix, pa.array(known)))
    number = _kept(parts.field("number"), parts.is_valid()).cast(pa.float64())
    return pc.divide(pc.multiply(number, factor), float(MIB_IN_BYTES))


def _duration_s(texts: pa.Array) -> pa.Array:
    parts = pc.extract_regex(texts, _DURATION)
    valid = parts.is_valid()

    def count(name: str) -> pa.Array:
        part = parts.field(name)
        return pc.if_else(pc.equal(part, ""), "0", _kept(part, valid)).cast(pa.int64())

    clock = pc.add(pc.multiply(count("hours"), 3600), pc.multiply(count("minutes"), 60))
    whole_s = pc.add(pc.multiply(count("days"), 86400), clock)
    return pc.add(whole_s.cast(pa.float64()), _kept(parts.field("seconds"), valid).cast(pa.float64()))


def _time_s(texts: pa.Array, zone: ZoneInfo) -> pa.Array:
    local = _kept(texts, pc.match_substring_regex(texts, _LOCAL_TIME)).cast(pa.timestamp("s"))
    moments = pc.assume_timezone(local, zone.key, ambiguous="earliest", nonexistent="earliest")
    # A time that the clock skips in spring comes back as another time: the function for one text handles it.
    unix_s = _kept(moments.cast(pa.int64()), pc.equal(pc.local_timestamp(moments), local))
    return _kept(unix_s, pc.greater_equal(unix_s, 0))


def _usage_one_by_one(texts: pa.Array) -> UsageAmounts:
    lists = [parse_usage(one or "") for one in texts.to_pylist()]
    names = UsageAmounts.__dataclass_fields__
    return UsageAmounts(
        **{name: pa.array([getattr(one, name) for one in lists], pa.float64()) for name in names}
    )


def _usage_in_bulk(texts: pa.Array, patterns: tuple[str, ...] = _USAGE_PATTERNS) -> UsageAmounts:
    if not patterns:
        return _usage_one_by_one(texts)
    parts = pc.extract_regex(texts, patterns[0])
    amounts = _usage_of(parts)
    odd = pc.invert(parts.is_valid())
    if not pc.any(odd).as_py():
        return amounts
    rest = vars(_usage_in_bulk(texts.filter(odd), patterns[1:]))
    replaced = {name: pc.replace_with_mask(column, odd, rest[name]) for name, column in vars(amounts).items()}
    return UsageAmounts(**replaced)


def _usage_of(parts: pa.StructArray) -> UsageAmounts:
    """Return the groups of a usage pattern as columns; null for groups that the pattern lacks."""

    def part(name: str) -> pa.Array:
        known = parts.type.get_field_index(name) >= 0
        return parts.field(name) if known else pa.nulls(len(parts), pa.string())

    return UsageAmounts(
        cpu_s=duration_s(part("cpu")),
        mem_mib=memory_mib(part("mem"), "B"),
        gpu_util_pct=whole(part("gpuutil")).cast(pa.float64(), safe=False),
        gpu_mem_mib=memory_mib(part("gpumem"), "B"),
        moved_mib=memory_mib(part("disk"), "B"),
        energy_j=pc.multiply(memory_mib(part("energy"), "B"), float(MIB_IN_BYTES)),
    )


def _each(amounts: UsageAmounts, change: Callable[[pa.Array], pa.Array]) -> UsageAmounts:
    return UsageAmounts(**{name: change(column) for name, column in vars(amounts).items()})
