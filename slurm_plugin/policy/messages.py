"""The line that a user sees at submission, and a decision in words."""

from __future__ import annotations

import re

from accounting.decisions.decision import Decision
from accounting.request import Grant, JobRequest
from accounting.units import counted, format_mib

# The hook accepts texts of up to 512 bytes, and refuses the whole reply if one is longer.
BASIS_CHARS = 160
OPT_OUT = "--comment=rightsize=off"
# Tools that take what sbatch says on its standard error for output. batchtools takes the fourth word of the first line
# for the job's number and all its jobs for expired; EasyBuild finds no number, and ends; ARC has a shell read the line.
_MISREAD = re.compile(
    r"\bbatchtools::doJobCollection\(|\beb[ \t](?:(?!\beb[ \t])[^\n]){0,200}?\.eb\b|\bRUNTIME_JOB_DIAG\b"
)
_MISREAD_WORDS = ("batchtools", ".eb", "RUNTIME_JOB_DIAG")


def user_line(decision: Decision, basis: str, command: str = "sbatch ") -> str:
    """Return the message for the user; '' if there is nothing worth saying (nothing to cut, or only observed).

    `command` is the command that submitted the job, with a space after it; '' if it is not known.
    """
    if not decision.grant or decision.mode == "observe":
        return ""
    changes, shown = ", ".join(changes_in_words(decision.request, decision.grant)), printable(basis)
    if decision.applied:
        return (
            f"rightsizer: this job gets {changes}, based on {shown}. To keep your request: {command}{OPT_OUT}"
        )
    return f"rightsizer: {changes} would be enough for this job, based on {shown}. Nothing was changed."


def is_misread(script: str) -> bool:
    """Whether the tool that submits a script would take a message for the user for the job's number."""
    return any(word in script for word in _MISREAD_WORDS) and bool(_MISREAD.search(script))


def printable(text: str) -> str:
    """Return text that is safe on a terminal: plain ASCII and short, because users choose the names of their jobs."""
    plain = text.isascii() and text.isprintable()
    shown = text if plain else "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return shown if len(shown) <= BASIS_CHARS else shown[: BASIS_CHARS - 3] + "..."


def changes_in_words(request: JobRequest, grant: Grant) -> list[str]:
    """Return each change in words: `640 MiB per node (you asked for 7.8 GiB)`."""
    words: list[str] = []
    if grant.cpus_per_task is not None:
        each = " per task" if request.num_tasks > 1 else ""
        words.append(f"{counted(grant.cpus_per_task, 'CPU')}{each} (you asked for {request.cpus_per_task})")
    for field, where in (
        ("mem_per_node_mib", "per node"),
        ("mem_per_cpu_mib", "per CPU"),
        ("mem_per_gpu_mib", "per GPU"),
    ):
        given, asked = getattr(grant, field), getattr(request, field)
        if given is not None:
            words.append(f"{format_mib(given)} {where} (you asked for {format_mib(asked)})")
    for field, where in (("gpus_per_node", ""), ("gpus_per_job", ""), ("gpus_per_task", " per task")):
        given, asked = getattr(grant, field), getattr(request, field)
        if given is not None:
            words.append(f"{counted(given, 'GPU')}{where} (you asked for {asked})")
    return words
