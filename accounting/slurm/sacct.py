"""The only module that runs sacct.

A window is asked for in two calls: what only Slurm writes (ids, times, states, figures), and what users write
(names, comments, accounts). `--parsable2` escapes nothing: a job name may hold line ends, and any delimiter that its
user knows. So may an account: without AccountingStorageEnforce, a user without any association may name whatever
account. Nothing in the first call can be forged; the second has a delimiter drawn at random for each call (texts.py).
`--noconvert` keeps bytes. SLURM_TIME_FORMAT makes times unix seconds, so that no time zone or summer time comes
between us and the record.
"""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Callable, Sequence
from io import BytesIO

import msgspec

from accounting.errors import LateAnswerError, SlurmError
from accounting.slurm.environment import slurm_environment

DELIMITER = "\x1f"
# Quarantined lines in stores have these places, from JobIDRaw to End.
FIGURES = (
    "JobIDRaw", "Submit", "JobID", "Cluster", "User", "NNodes", "Partition", "QOS", "State", "Start", "End",
    "ElapsedRaw", "TimelimitRaw", "NTasks", "ReqTRES", "AllocTRES", "MaxRSS", "TotalCPU", "TRESUsageInMax",
    "TRESUsageInTot", "TRESUsageOutTot", "ConsumedEnergyRaw",
)  # fmt: skip
END = FIGURES.index("End")
KEY = FIGURES[:2]  # identifies an attempt: a requeue has a new submit time
TEXTS = ("JobName", "Comment", "AdminComment", "Account")
# All releases of the last six years have these; without the other columns labels are poorer.
NEEDED = frozenset(FIGURES) - {"TRESUsageOutTot", "ConsumedEnergyRaw"} | frozenset(TEXTS)
# Far beyond any answer: a day of a busy site takes seconds to minutes. A sacct that hangs must not hang its caller.
ANSWER_WAIT_S = 600
# For a query about one job: sacct itself waits 45 s for a slurmdbd that hangs, and forever for a database that does.
PERSON_WAITS_S = 15
_CUT = DELIMITER.encode()
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9]+")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What sacct printed about a window: lines with their headings. The columns of `figures` may lack some of FIGURES.

    For a job that began before `since_s`, where the window begins, `figures` lacks the steps that had ended by
    then; `whole` asks for jobs (by their ids) with all of their steps, in the form of `figures`. `one_text` asks
    for one text of one job (by its display id and the column's name) and returns what was printed, `one_id` for one
    column of a job and its steps, `texts_again` for all texts of the window again, with their new delimiter. If one
    of these is None, that question is not asked.
    """

    figures: bytes
    texts: bytes
    texts_delimiter: str = DELIMITER
    since_s: int = 0
    whole: Callable[[Sequence[str]], bytes] | None = None
    one_text: Callable[[str, str], bytes]
    texts_again: Callable[[], tuple[bytes, str]] | None = None
    one_id: Callable[[str, str], bytes] | None = None


def query_sacct(command: str, since_s: int, until_s: int, fields: frozenset[str] | None = None) -> Answer:
    """Return sacct's answer about all users' jobs in a window (unix seconds); `fields` are the columns that it knows.

    Raises SlurmError if sacct is missing, fails, takes longer than ANSWER_WAIT_S, or prints other columns than asked
    for.
    """
    window = (f"--starttime={slurm_time(since_s)}", f"--endtime={slurm_time(until_s)}")
    answer = _query(command, window, window, fields)
    return msgspec.structs.replace(answer, since_s=since_s)


def query_job(command: str, job: str) -> Answer:
    """Return sacct's answer about one job, `4711` or `4711_3`; without a line if the caller may not see it.

    Raises SlurmError as query_sacct does, but after PERSON_WAITS_S: a person is waiting.
    """
    fields = known_fields(command, PERSON_WAITS_S)
    return _query(command, (f"--jobs={job}",), (), fields, PERSON_WAITS_S)


def _query(
    command: str,
    which: Sequence[str],
    window: Sequence[str],
    fields: frozenset[str] | None,
    wait_s: float | None = None,
) -> Answer:
    """Ask for the jobs selected by `which`; later questions about one of them are limited to `window`, if given."""
    columns = [name for name in FIGURES if fields is None or name in fields]
    common = (command, "--allusers", "--duplicates", "--parsable2", "--noconvert")

    def all_texts() -> tuple[bytes, str]:
        delimiter = f"|{secrets.token_hex(8)}|"
        asked = (f"--delimiter={delimiter}", f"--format={','.join((*KEY, *TEXTS))}")
        printed = _run(*common, *which, "--allocations", *asked, wait_s=wait_s)
        _check(command, printed, (*KEY, *TEXTS), delimiter)
        return printed, delimiter

    def all_figures(*these: str) -> bytes:
        asked = (f"--delimiter={DELIMITER}", f"--format={','.join(columns)}")
        printed = _run(*common, *these, *asked, wait_s=wait_s)
        _check(command, printed, columns, DELIMITER)
        return printed

    def whole(job_ids: Sequence[str]) -> bytes:
        return all_figures(f"--jobs={','.join(job_ids)}")

    # The texts come first. A job submitted between the two calls then lacks a text, which is asked for, instead of
    # having a text that belongs to nothing; and figures that lack a job of the texts were cut off.
    texts, delimiter = all_texts()
    figures = all_figures(*which)

    def one_id(display_id: str, column: str, *more: str) -> bytes:
        own = ("--noheader", f"--jobs={display_id}", f"--format={column}", *more)
        return _run(command, "--allusers", "--duplicates", "--parsable2", *window, *own, wait_s=wait_s)

    def one_text(display_id: str, column: str) -> bytes:
        return one_id(display_id, column, "--allocations")

    return Answer(
        figures=figures,
        texts=texts,
        texts_delimiter=delimiter,
        whole=whole,
        one_text=one_text,
        texts_again=all_texts,
        one_id=one_id,
    )


def ended_bytes(figures: bytes, until_s: int) -> int:
    """Return how many bytes of the figures are about jobs that had ended by a time.

    A job that was pending or running then is in the answer about every window in which it was, even if it has ended
    since: shorter windows would only repeat it more often.
    """
    ended, has_ended = 0, False
    for line in BytesIO(figures):
        columns = line.split(_CUT, END + 1)
        if b"." not in columns[0]:  # steps go with their job, which precedes them
            has_ended = len(columns) > END and columns[END].isdigit() and int(columns[END]) <= until_s
        ended += has_ended * len(line)
    return ended


def known_fields(command: str, wait_s: float | None = None) -> frozenset[str]:
    """Return the columns that this sacct knows; SlurmError if it lacks an indispensable one.

    Even for that it asks slurmdbd; it is killed after `wait_s`, or ANSWER_WAIT_S.
    """
    said = _run(command, "--helpformat", wait_s=wait_s)
    known = frozenset(_FIELD.findall(said.decode(errors="replace")))
    missing = sorted(NEEDED - known)
    if missing:
        raise SlurmError(
            f"{command} does not know {', '.join(missing)}; check that accounting.sacct names Slurm's "
            "own sacct, version 20.11 or newer"
        )
    return known


def slurm_release(command: str) -> str:
    """Return Slurm's release, such as `24.11`."""
    found = re.search(r"(\d+\.\d+)", _run(command, "--version").decode(errors="replace"))
    return found[1] if found else ""


def slurm_time(unix_s: int) -> str:
    """Return a time in the form that sacct's options accept on every release (`uts` is seconds since the epoch)."""
    return f"uts{unix_s}"


def _run(*arguments: str, wait_s: float | None = None) -> bytes:
    command, patience_s = arguments[0], wait_s or ANSWER_WAIT_S
    environment = slurm_environment({"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C.UTF-8"})
    try:
        finished = subprocess.run(
            arguments, capture_output=True, env=environment, check=False, timeout=patience_s
        )
    except OSError as error:
        raise SlurmError(
            f"cannot run {command!r}: {error.strerror}; install Slurm's client commands here or set accounting.sacct"
        ) from None
    except subprocess.TimeoutExpired:
        raise LateAnswerError(
            f"{command} did not answer within {patience_s:g} s and was stopped; check that slurmdbd and "
            "its database answer (`sacctmgr show stats`), and try again"
        ) from None
    if finished.returncode != 0:
        complaint = finished.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise SlurmError(
            f"{command} failed: {complaint[-1]}; check that slurmdbd runs, and that SLURM_CONF names "
            "the right cluster"
        )
    return finished.stdout


def _check(command: str, printed: bytes, columns: Sequence[str], delimiter: str) -> None:
    heading = printed.split(b"\n", 1)[0].decode(errors="replace")
    if heading.split(delimiter) != list(columns):
        raise SlurmError(
            f"{command} did not print the requested columns (first line: {heading[:80]!r}); check that "
            "accounting.sacct names Slurm's own sacct, version 20.11 or newer"
        )
    if not printed.endswith(b"\n"):
        raise SlurmError(
            f"the output of {command} ends in the middle of a line; see its own messages, and try again"
        )
