"""A batch script read as sbatch would read it, for `rightsizer predict`: no cluster needed.

Options that the hook does not act on become `other`, under the names sbatch gives them.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from typing import NoReturn

from accounting.errors import RightsizerError
from accounting.units import parse_memory_mib, parse_time_limit_min, whole
from slurm_plugin.policy.submission import Submission

# Options that change neither what a job needs nor where it may run.
_HARMLESS_WITH_VALUE = (
    "-o", "--output", "-e", "--error", "-i", "--input", "-D", "--chdir", "--mail-type", "--mail-user", "--export",
    "--export-file", "--open-mode", "--signal", "-b", "--begin", "-d", "--dependency", "--wckey", "--deadline",
    "--kill-on-invalid-dep", "--profile", "--acctg-freq", "-M", "--clusters",
)  # fmt: skip
_HARMLESS_WITH_OR_WITHOUT = ("--nice", "--get-user-env", "-k", "--no-kill")
_HARMLESS_FLAGS = (
    "-H", "--hold", "--requeue", "--no-requeue", "-Q", "--quiet", "-v", "--verbose", "-W", "--wait", "--parsable",
    "--ignore-pbs",
)  # fmt: skip
_PLAIN_GPUS = re.compile(r"^(?:gres[:/])?gpu(?:[:=]([1-9]\d{0,5}))?$", re.ASCII)


class _Parser(argparse.ArgumentParser):
    """argparse without its habit of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise RightsizerError(f"the script's options cannot be read: {message}; sbatch would refuse it too")


def _parser() -> _Parser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("-c", "--cpus-per-task", type=count)
    parser.add_argument("-n", "--ntasks", type=count)
    parser.add_argument("--mem")
    parser.add_argument("--mem-per-cpu")
    # sbatch hands both to the hook as the same thing.
    parser.add_argument("--gres")
    parser.add_argument("--gpus-per-node", dest="gres", type="gpu:{}".format)
    parser.add_argument("-J", "--job-name")
    for short, name in (("-A", "account"), ("-p", "partition"), ("-q", "qos")):
        parser.add_argument(short, f"--{name}", default="")
    parser.add_argument("--comment", default="")
    parser.add_argument("-t", "--time")
    parser.add_argument(*_HARMLESS_WITH_VALUE, dest="ignored")
    parser.add_argument(*_HARMLESS_WITH_OR_WITHOUT, dest="ignored", nargs="?")
    parser.add_argument(*_HARMLESS_FLAGS, dest="ignored", action="store_true")
    return parser


def count(text: str) -> int:
    """Return a whole number above 0; ValueError where it is none."""
    number = whole(text)
    if not number:
        raise ValueError(text)
    return number


def directives(script: str) -> list[str]:
    """Return the words of a script's `#SBATCH` lines, up to its first command."""
    words: list[str] = []
    for line in script.splitlines()[1:]:
        if line.startswith("#SBATCH"):
            words.extend(shlex.split(line.removeprefix("#SBATCH"), comments=True))
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return words


def read_submission(script: str, file_name: str, user: str, options: Sequence[str] = ()) -> Submission:
    """Return what `sbatch OPTIONS script` would submit; RightsizerError where its options cannot be read.

    Options given beside the script win over those in it.
    """
    if not script.startswith("#!"):
        raise RightsizerError(
            f"{file_name} is no batch script: its first line must begin with #!, as sbatch wants it"
        )
    try:
        known, unknown = _parser().parse_known_args([*directives(script), *options])
    except ValueError as error:  # an open quotation mark
        raise RightsizerError(f"the #SBATCH lines of {file_name} cannot be read: {error}") from None
    gpus, other = _gpus(known.gres)
    other += [word.split("=")[0].lstrip("-").replace("-", "_") for word in unknown if word.startswith("-")]
    memory, per_cpu = _memory("--mem", known.mem), _memory("--mem-per-cpu", known.mem_per_cpu)
    if memory is not None and per_cpu is not None:
        raise RightsizerError(f"{file_name} asks --mem and --mem-per-cpu; sbatch takes one of them")
    if memory == 0 or per_cpu == 0:
        memory, per_cpu, other = None, None, [*other, "mem_all"]
    return Submission(
        user=user,
        uid=0,
        batch=True,
        other=tuple(sorted(other)),
        account=known.account,
        partition=known.partition,
        qos=known.qos,
        name=known.job_name or file_name,
        comment=known.comment,
        script=script,
        num_tasks=known.ntasks,
        cpus_per_task=known.cpus_per_task,
        mem_per_node_mib=memory,
        mem_per_cpu_mib=per_cpu,
        gpus_per_node=gpus,
        time_limit_min=None if known.time is None else parse_time_limit_min(known.time),
    )


def _memory(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    amount = parse_memory_mib(text)
    if amount is None:
        raise RightsizerError(
            f"{option}={text} is no amount of memory; write for example {option}=4000 or {option}=4G"
        )
    return max(1, round(amount)) if amount else 0


def _gpus(gres: str | None) -> tuple[int | None, list[str]]:
    if gres is None:
        return None, []
    plain = _PLAIN_GPUS.match(gres)
    return (int(plain[1] or 1), []) if plain else (None, ["gres"])
