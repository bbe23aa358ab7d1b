"""Combines sacct's two answers about a window: the lines of each attempt, its texts, and its digest.

Pure, except for what it asks again: texts of jobs that came between the two answers, and whether the last job is whole.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from accounting.errors import SlurmError
from accounting.records import Quarantined
from accounting.slurm.sacct import DELIMITER, END, FIGURES, KEY, TEXTS, Answer
from accounting.slurm.texts import Key, Row, are_plain, split_rows, text_alone
from accounting.units import whole

SOURCE = "sacct"
CUT = DELIMITER.encode()
# A call for each missing text takes some 30 ms: if more than FEW jobs lack theirs, all texts of the window are
# asked for once more. A window that then still lacks those of MOST_ASKED is damaged.
FEW, MOST_ASKED = 5, 1_000
# Steps can reach slurmdbd after the end of their job: by a second or two, seen on 22.05.
SETTLED_S = 10
# MariaDB plans longer lists of ids differently: 250 take a tenth of a second, 1,000 tasks of a large array minutes
# (seen).
JOBS_AT_ONCE = 250
START = FIGURES.index("Start")
_RUN = (*map(FIGURES.index, KEY), START, END)
# Raised whenever labels change, so that what is read again is labelled again (and see ingest/label_marks.py).
LABELS = "labels-13"


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
        """The id as people write it."""
        return self.lines[0].split(CUT, 3)[2]

    @property
    def own_texts(self) -> Row:
        """The attempt's texts, in the order of TEXTS."""
        return tuple(self.text.split(CUT)[len(KEY) :]) if self.texts is None else self.texts


@dataclass
class Lines:
    """Lines in groups, and lines that belong to no group."""

    groups: list[Group] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)


def split_groups(rows: Sequence[bytes], width: int) -> Lines:
    """Group rows by attempt. A step's row belongs to the job row before it, if that has its id.

    After a requeue the same id comes once for each attempt.
    """
    lines, separators = Lines(), width - 1
    step_prefix, own = b"\n", list[bytes]()  # of no job: no row begins like this
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
            lines.quarantined.append(
                Quarantined(line=shown(row), reason="a step without a job", source=SOURCE)
            )
    return lines


def add_texts(lines: Lines, answer: Answer, until_s: int) -> None:
    """Give each group its texts and its digest; a group whose texts cannot be found is quarantined."""
    delimiter, columns = answer.texts_delimiter.encode(), len(KEY) + len(TEXTS)
    rows = answer.texts.removesuffix(b"\n").split(b"\n")[1:]
    keys = [group.key for group in lines.groups]
    own_keys = keys if delimiter == CUT else [key.replace(CUT, delimiter) for key in keys]
    # A text that holds CUT, our own delimiter, must not be mistaken for several columns.
    if are_plain(rows, own_keys, delimiter, columns) and (delimiter == CUT or CUT not in answer.texts):
        for group, row in zip(lines.groups, rows, strict=True):
            group.text = row.replace(delimiter, CUT)
        last = keys[-1] if keys else None
    else:
        parted = split_rows(rows, delimiter, columns) if rows else []
        _give_texts(lines, parted, answer)
        last = CUT.join(parted[-1][: len(KEY)]) if parted else None
    if answer.one_id is not None:
        refuse_cut(lines, keys, last, answer.one_id, until_s)


def add_earlier_steps(lines: Lines, answer: Answer) -> None:
    """Give each ended group that began before the window the steps that had ended before the window too.

    For a window, slurmdbd returns only steps that ran in it, and a job's TotalCPU is then the sum over these.
    Raises SlurmError if a job asked for by itself lacks something that was in the window's answer.
    """
    if answer.whole is None:
        return
    cut = [group for group in lines.groups if _began_before(group, answer.since_s)]
    for begin in range(0, len(cut), JOBS_AT_ONCE):
        asked = cut[begin : begin + JOBS_AT_ONCE]
        printed = answer.whole(sorted({shown(_own_id(group)) for group in asked}))
        heading, *rows = printed.removesuffix(b"\n").split(b"\n")
        found = {_run_of(group): group.lines for group in split_groups(rows, heading.count(CUT) + 1).groups}
        for group in asked:
            whole = found.get(_run_of(group), [])
            if not {*_ids(group.lines)} <= {*_ids(whole)}:
                raise _cut_off(group.display_id, "a part of job")
            group.lines = whole


def ends_later(group: Group, until_s: int) -> bool:
    """Whether an attempt is known to have ended after a time."""
    end_s = _time(group, END)
    return end_s is not None and end_s > until_s


def _began_before(group: Group, since_s: int) -> bool:
    """Whether an attempt has ended and had started before a time."""
    start_s = _time(group, START)
    return start_s is not None and start_s < since_s and _has_ended(group)


def _time(group: Group, place: int) -> int | None:
    """Return one of an attempt's times, by its place among FIGURES; None if it has not come yet."""
    told = group.lines[0].split(CUT, place + 1)[place]
    return int(told) if told.isdigit() else None


def _own_id(group: Group) -> bytes:
    """Return the id by which slurmdbd finds a job fastest: its number, unless that is the number of its whole array."""
    number = group.key[: group.key.find(CUT)]
    return group.display_id if group.display_id.startswith(number + b"_") else number


def _run_of(group: Group) -> Key:
    """Return what identifies an attempt even among those with the same key: its key, its start and its end."""
    columns = group.lines[0].split(CUT)
    return CUT.join(columns[place] for place in _RUN)


def _ids(rows: Sequence[bytes]) -> Iterator[bytes]:
    return (row[: row.find(CUT)] for row in rows)


def _by_key(rows: Sequence[Row]) -> dict[Key, deque[Row]]:
    found: dict[Key, deque[Row]] = {}
    for row in rows:
        found.setdefault(CUT.join(row[: len(KEY)]), deque()).append(row[len(KEY) :])
    return found


def _texts_again(answer: Answer) -> list[Row]:
    if answer.texts_again is None:
        return []
    printed, delimiter = answer.texts_again()
    rows = printed.removesuffix(b"\n").split(b"\n")[1:]
    return split_rows(rows, delimiter.encode(), len(KEY) + len(TEXTS)) if rows else []


def _give_texts(lines: Lines, rows: Sequence[Row], answer: Answer) -> None:
    found = _by_key(rows)
    if sum(group.key not in found and _has_ended(group) for group in lines.groups) > FEW:
        # Many came between the two calls, such as the tasks of an array that was cancelled.
        found = _by_key(_texts_again(answer)) | found
    missing = sum(group.key not in found for group in lines.groups)
    if missing > max(MOST_ASKED, len(lines.groups) // 2):
        raise SlurmError(
            f"sacct's two answers about one window differ in {missing} of {len(lines.groups)} jobs; see "
            "slurmdbd's log, and try again"
        )
    attempts = Counter(name for group in lines.groups for name in _names(group)) if missing else Counter()
    groups, asked = [], 0
    for group in lines.groups:
        if found.get(group.key):
            group.texts = found[group.key].popleft()
        elif _has_ended(group):
            # It came after the texts had been asked for.
            asked += 1
            alone = asked <= MOST_ASKED
            group.texts = ask_alone(group, attempts[asked_as(group)], answer.one_text) if alone else None
        else:
            group.texts = (b"",) * len(TEXTS)
        if group.texts is None:
            record = b"\n".join(group.lines)
            reason = "sacct did not give its name and comments"
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
    """Raise SlurmError if the figures lack steps, or the last job of the texts, which were asked for first."""

    def printed(display_id: bytes, column: str) -> list[str]:
        return one_id(shown(display_id), column).decode(errors="replace").splitlines()

    last = lines.groups[-1] if lines.groups else None
    if last is not None and _has_settled(last, until_s):
        own = last.key[: last.key.find(CUT) + 1]
        attempts = [group for group in lines.groups if group.key.startswith(own)]
        known = {shown(group.key) for group in attempts}
        if sum(len(group.lines) for group in attempts) < _lines_of(
            known, printed(last.display_id, ",".join(KEY))
        ):
            raise _cut_off(last.display_id, "steps of job")
    if last_text is not None and last_text not in keys:
        job_id, _, submit = last_text.partition(CUT)
        # It may have left the window meanwhile, if its begin time was postponed.
        if submit.decode(errors="replace") in printed(job_id, "Submit"):
            raise _cut_off(job_id, "job")


def _lines_of(attempts: Collection[str], printed: Sequence[str]) -> int:
    """Count the lines of the attempts with these keys, including their steps.

    For a job number, sacct returns all attempts that end after the window begins: also one that was requeued and is
    pending, or that began after the window.
    """
    count, is_one = 0, False
    for line in printed:
        if "." not in line.partition("|")[0]:
            is_one = line.replace("|", DELIMITER) in attempts
        count += is_one
    return count


def _cut_off(job_id: bytes, what: str) -> SlurmError:
    return SlurmError(
        f"sacct's output is not complete ({what} {job_id.decode(errors='replace')} missing), although "
        "sacct reported success; check the command that accounting.sacct names, and try again"
    )


def _has_settled(group: Group, until_s: int) -> bool:
    """Whether an attempt ended so long ago that none of its steps can still be on the way to slurmdbd."""
    end_s = _time(group, END)
    return b"_[" not in group.display_id and end_s is not None and end_s <= until_s - SETTLED_S


def _has_ended(group: Group) -> bool:
    """Whether an attempt has ended. Otherwise it will be read again anyway, and need not be asked for."""
    return _time(group, END) is not None


def ask_alone(group: Group, attempts: int, one_text: Callable[[str, str], bytes]) -> Row | None:
    """Ask for a group's texts separately; None if the job's `attempts` differ in one of them."""
    # Even if this is no job id, it is passed as a single argument, and sacct finds no such job.
    asked = shown(asked_as(group))
    texts = [text_alone(one_text(asked, name), attempts) for name in TEXTS]
    known = [text for text in texts if text is not None]
    return tuple(known) if len(known) == len(TEXTS) else None


def asked_as(group: Group) -> bytes:
    """Return the id by which sacct can be asked for a job.

    sacct accepts no range of tasks that never started (`12_[3-5]`): the whole array is asked for instead.
    """
    array, waiting, _ = group.display_id.partition(b"_[")
    return array if waiting else group.display_id


def _names(group: Group) -> set[bytes]:
    """Return the ids for which sacct prints this attempt: its own, and that of its array."""
    return {group.display_id, group.display_id.partition(b"_")[0]}


def digest_of(group: Group) -> int:
    """Return the digest of a record as a signed 64-bit number."""
    record = b"\n".join((*group.lines, group.text))
    return int.from_bytes(blake2b(record, digest_size=8, key=LABELS.encode()).digest(), "big", signed=True)


def end_of(line: str) -> int | None:
    """Return when a quarantined job ended, in unix seconds; None if its line does not say."""
    return whole(_figure(line, "End"))


def cluster_of(line: str) -> str:
    """Return the cluster of a quarantined job; '' if its line does not say."""
    return _figure(line, "Cluster")


def job_of(line: str) -> str:
    """Return the id of a quarantined job, or of a quarantined step's job, as Slurm writes it."""
    return _figure(line, "JobIDRaw").partition(".")[0]


def _figure(line: str, name: str) -> str:
    fields = line.split("\n", 1)[0].split(DELIMITER)
    place = FIGURES.index(name)
    return fields[place] if len(fields) > place else ""


def shown(text: bytes) -> str:
    r"""Return text in a form that a store accepts: bytes that are not UTF-8 are written as `\xff`, and so is NUL."""
    return text.decode("utf-8", errors="backslashreplace").replace("\x00", "\\x00")
