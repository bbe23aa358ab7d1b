"""Reads files made by others: everything in them becomes a job or a line with a reason, nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import msgspec

from accounting import frames
from accounting.dumps.believe import records_of
from accounting.dumps.heading import Heading, missing, read_heading
from accounting.dumps.jobs import DumpSettings, unnamed_tres
from accounting.dumps.lines import NO_NEWLINE, Block, read_blocks
from accounting.dumps.rows import REACH_LINES, is_job_line, is_whole_line, split_rows
from accounting.errors import DumpError
from accounting.frames import Records

_SAMPLE_LINES = 1000
_TRIES = 10_000
_MOST_LINES = 2_000_000
_LOST_IDS = "lacks the last digits of job ids: jobs are numbered by their lines, so do not change the file"
_NO_STEPS = (
    "has no lines of steps, which sacct -X leaves out: memory, cores, GPUs and input were not measured"
)


def read_dump(file: Path, settings: DumpSettings) -> Iterator[Records]:
    """Yield the jobs of a dump in blocks; the first block says what the dump lacks, the last what emerged on the way.

    The file is sacct's output with any delimiter and any sufficient columns, or slurmdbd's job table as CSV,
    compressed with gzip or not. Raises DumpError if it is neither.
    """
    blocks = read_blocks(file, settings.block_bytes)
    first = next(blocks, None)
    if first is None or not first.lines:  # compressed, and with nothing in it
        raise DumpError(f"{file} has no complete line; make the dump again")
    heading = read_heading(first.lines[0])
    first = Block(2, first.lines[1:], first.cut_off)
    said = missing(heading, settings.cluster)
    if _ids_are_lost(heading, first.lines[:_SAMPLE_LINES]):
        heading, said = _without_ids(heading), (*said, _LOST_IDS)
    cluster, any_jobs, any_steps = settings.cluster or file.name.removesuffix(".gz"), False, False
    unnamed = set[int]()
    for block in _whole_jobs(heading, chain([first], blocks)):
        rows = split_rows(heading, block)
        unnamed |= unnamed_tres(rows, settings)
        records = records_of(rows, settings, cluster, file.name)
        any_jobs = any_jobs or bool(rows.is_job.any())
        any_steps = any_steps or (rows.ids is not None and rows.ids.step_id.null_count < len(rows.lines))
        yield replace(records, missing=said, cut_off=_cut_off(heading, block))
        said = ()
    said = (*([_NO_STEPS] if any_jobs and not any_steps else []), *([_no_names(unnamed)] if unnamed else []))
    yield Records(frames.JOBS.empty_table(), frames.STEPS.empty_table(), missing=said)


def _no_names(numbers: set[int]) -> str:
    listed = ",".join(map(str, sorted(numbers)))
    return (
        f"lacks the names of TRES {listed}, so GPUs among them are not counted; say which are GPUs, for "
        f"example --gpu-tres {listed}, and ingest it again (`sacctmgr show tres` lists them)"
    )


def _cut_off(heading: Heading, block: Block) -> str:
    """Return how a file ends too soon, in words that follow its name; '' if it does not."""
    if block.cut_off == NO_NEWLINE and block.lines and is_whole_line(heading, block.lines[-1]):
        return (
            "has no newline at its end, so its last job is not read; add a newline if the line is "
            "complete, and ingest it again"
        )
    number = block.first + max(0, len(block.lines) - 1)
    return (
        f"ends in the middle of line {number}; get the whole file and ingest it again"
        if block.cut_off
        else ""
    )


def _ids_are_lost(heading: Heading, lines: list[str]) -> bool:
    """Whether ids went through a program that took them for floats (16051200000000.0)."""
    ids = split_rows(heading, Block(2, lines)).ids if lines and heading.slurmdbd else None
    return ids is not None and ids.number.null_count > len(lines) // 2


def _without_ids(heading: Heading) -> Heading:
    place = {thing: at for thing, at in heading.place.items() if thing not in ("raw_id", "id")}
    return msgspec.structs.replace(heading, place=place)


def _whole_jobs(heading: Heading, blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks that end where a job's lines end, and not among the pieces of a broken line."""
    first, pending = 2, list[str]()
    for block in blocks:
        pending += block.lines
        if block.cut_off:
            yield Block(first, pending, block.cut_off)
            return
        cut = _last_cut(heading, pending)
        if cut:
            yield Block(first, pending[:cut])
            first, pending = first + cut, pending[cut:]
        elif len(pending) > _MOST_LINES:
            raise DumpError(
                f"line {first}: one job has more than {_MOST_LINES} lines; remove it from the dump"
            )
    if pending:
        yield Block(first, pending)


def _last_cut(heading: Heading, lines: list[str]) -> int:
    """Return where a late job begins, if possible among whole lines, 0 if none does; the rest is carried over."""
    latest = len(lines) - REACH_LINES
    starts = (place for place in range(latest, 0, -1) if is_job_line(heading, lines[place]))
    cut = next(starts, 0)
    if heading.free_text and not heading.quoted:
        for place in chain([cut], islice(starts, _TRIES)):
            near = lines[max(0, place - REACH_LINES) : place + REACH_LINES]
            if all(is_whole_line(heading, line) for line in near):
                return place
    return cut
