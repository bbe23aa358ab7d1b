"""A batch script read as sbatch would read it, for `rightsizer predict`.

Options that have no field of their own on the wire become `other`, under the hook's names for them.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NoReturn

from accounting.errors import RightsizerError
from accounting.units import parse_memory_mib, parse_time_limit_min, whole
from slurm_plugin.policy.submission import Submission
from slurm_plugin.sbatch.environment import options_in

# Options that change neither what a job needs nor where it may run.
_HARMLESS_WITH_VALUE = (
    "-o", "--output", "-e", "--error", "-i", "--input", "--mail-type", "--mail-user", "--export",
    "--export-file", "--open-mode", "--signal", "-b", "--begin", "-d", "--dependency", "--wckey", "--deadline",
    "--kill-on-invalid-dep", "--profile", "--acctg-freq", "-M", "--clusters", "--cluster", "-m", "--distribution",
    "--cluster-constraint", "--container", "--container-id", "--cpu-freq", "--delay-boot", "--extra", "--gid", "--uid",
    "--mcs-label", "--mem-bind", "--network", "--power", "--priority", "--time-min", "--tmp", "--wait-all-nodes",
)  # fmt: skip
_HARMLESS_WITH_OR_WITHOUT = (
    "--nice", "--get-user-env", "-k", "--no-kill", "--propagate", "--oom-kill-step", "--resv-ports",
)  # fmt: skip
# An option whose value may be left out has it behind a `=` alone: what follows is the next word.
_WITHOUT_VALUE = {word: f"{word}=" for word in ("--exclusive", *_HARMLESS_WITH_OR_WITHOUT) if word != "-k"}
_WITHOUT_VALUE["-k"] = "--no-kill="
_HARMLESS_FLAGS = (
    "-H", "--hold", "--requeue", "--no-requeue", "-Q", "--quiet", "-v", "--verbose", "-W", "--wait", "--parsable",
    "--ignore-pbs", "--reboot", "--test-only", "--stepmgr", "--spread-segments", "--consolidate-segments",
)  # fmt: skip
# What slurmctld makes of other options, by the names that the hook gives it (lua/rightsizer/forms.lua).
_OTHER_WITH_VALUE = {
    "gpus_per_socket": "tres_per_socket", "cpus_per_gpu": "cpus_per_tres", "ntasks_per_gpu": "ntasks_per_tres",
    "nodelist": "req_nodes", "w": "req_nodes", "nodefile": "req_nodes", "F": "req_nodes",
    "exclude": "exc_nodes", "x": "exc_nodes",
    "constraint": "features", "C": "features", "prefer": "prefer", "reservation": "reservation",
    "licenses": "licenses", "L": "licenses", "threads_per_core": "threads_per_core",
    "ntasks_per_core": "ntasks_per_core", "ntasks_per_socket": "ntasks_per_socket",
    "cores_per_socket": "cores_per_socket", "sockets_per_node": "sockets_per_node",
    "extra_node_info": "cores_per_socket", "B": "cores_per_socket", "core_spec": "core_spec", "S": "core_spec",
    "thread_spec": "thread_spec", "mincpus": "pn_min_cpus", "switches": "req_switch", "gpu_bind": "tres_bind",
    "gpu_freq": "tres_freq", "gres_flags": "gres_flags", "bb": "burst_buffer", "bbf": "burst_buffer",
    "tres_bind": "tres_bind", "tres_per_task": "tres_per_task", "batch": "batch_features", "segment": "segment_size",
}  # fmt: skip
_OTHER_FLAGS = {
    "overcommit": "min_cpus", "O": "min_cpus", "oversubscribe": "oversubscribe", "s": "oversubscribe",
    "contiguous": "contiguous", "spread_job": "spread_job", "use_min_nodes": "use_min_nodes",
}  # fmt: skip
# What sbatch sets, and takes back, for each word of a hint (verify_hint in Slurm's proc_args.c, 22.05 to 26.05).
_HINTS = {
    "compute_bound": {"cores_per_socket": False, "threads_per_core": True},
    "memory_bound": {"cores_per_socket": True, "threads_per_core": True},
    "multithread": {"threads_per_core": False},
    "nomultithread": {"threads_per_core": True},
}
# How alike a word and an option's name are if one is taken for the other, mistyped: `memm` and `mem` are.
_ALIKE = 0.82
_GPU_COUNT = r"(?:(?!\d+[:=])[\w.-]+[:=])?([1-9]\d{0,5})"
_GPUS = re.compile(rf"^{_GPU_COUNT}$", re.ASCII)
_GPU_GRES = re.compile(rf"^(?:gres[:/])?gpu(?:[:=]{_GPU_COUNT}|:[A-Za-z][\w.-]*)?$", re.ASCII)
_COUNTED_NODES = re.compile(r"\*\d", re.ASCII)
_NODES = re.compile(r"^(\d{1,6})(?:-(\d{1,6}))?$", re.ASCII)


class OptionParser(argparse.ArgumentParser):
    """argparse without its habit of ending the process."""

    def read(self, words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Return what words say, and those that are not known; RightsizerError where sbatch would refuse them."""
        known, unknown = self.parse_known_args(
            [_WITHOUT_VALUE.get(word, word) for word in map(self.whole, words)]
        )
        for name, value in vars(known).items():
            # argparse before Python 3.13 makes a list of the value of `--name=--`.
            if value in ([], "--") and name != "ignored":
                option = f"--{name.replace('_', '-')}"
                raise RightsizerError(
                    f"cannot read the script's options: {option} has -- as its value; give another value"
                )
        return known, unknown

    def whole(self, word: str) -> str:
        """Return a word with the whole name of the option that it begins: sbatch takes `--part=` for `--partition=`."""
        name, equals, value = word.partition("=")
        if not name.startswith("--") or name in self._option_string_actions:
            return word
        meant = self._begun_by(name)
        return f"{meant[0]}{equals}{value}" if len(meant) == 1 else word

    def unknown(self, words: Sequence[str]) -> dict[str, list[str]]:
        """Return the options that sbatch itself does not have, each with those that may be meant."""
        names = [word.partition("=")[0] for word in self.read(words)[1] if word.startswith("-")]
        return {name: self._begun_by(name) or self._like(name) for name in names}

    def _begun_by(self, name: str) -> list[str]:
        return [option for option in self._option_string_actions if option.startswith(name)]

    def _like(self, name: str) -> list[str]:
        options = {option.strip("-"): option for option in self._option_string_actions}
        return [options[near] for near in difflib.get_close_matches(name.strip("-"), options, 1, _ALIKE)]

    def error(self, message: str) -> NoReturn:
        """Raise what the caller shows, where argparse would end the process."""
        raise RightsizerError(f"cannot read the script's options: {message}; sbatch would reject it too")


def option_parser() -> OptionParser:
    """Return what reads the options of sbatch; its errors are RightsizerErrors."""
    parser = OptionParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-c", "--cpus-per-task", type=count)
    parser.add_argument("-n", "--ntasks", type=count)
    parser.add_argument("--ntasks-per-node", "--tasks-per-node", type=count)
    parser.add_argument("-N", "--nodes")
    for memory in ("--mem", "--mem-per-cpu", "--mem-per-gpu"):
        parser.add_argument(memory)
    # sbatch hands both to the hook as the same thing.
    parser.add_argument("--gres")
    parser.add_argument("--gpus-per-node", dest="gres", type="gpu:{}".format)
    parser.add_argument("-G", "--gpus")
    parser.add_argument("--gpus-per-task")
    parser.add_argument("-a", "--array")
    parser.add_argument("--exclusive", nargs="?", const="", action="store")
    parser.add_argument("-J", "--job-name")
    for short, name in (("-A", "account"), ("-p", "partition"), ("-q", "qos")):
        parser.add_argument(short, f"--{name}", default="")
    parser.add_argument("--comment", default="")
    parser.add_argument("-D", "--chdir", default="")
    parser.add_argument("-t", "--time", type=time_limit)
    parser.add_argument(*_HARMLESS_WITH_VALUE, dest="ignored")
    parser.add_argument(*_HARMLESS_WITH_OR_WITHOUT, dest="ignored", nargs="?")
    parser.add_argument(*_HARMLESS_FLAGS, dest="ignored", action="store_true")
    parser.add_argument("--hint", type=hint_names, default=())
    parser.set_defaults(values_by_name={})
    for option, name in _OTHER_WITH_VALUE.items():
        parser.add_argument(_dashed(option), dest="other", action=_Name, const=name)
    for option, name in _OTHER_FLAGS.items():
        parser.add_argument(_dashed(option), dest="other", action=_Name, const=name, nargs=0)
    return parser


def _dashed(option: str) -> str:
    return f"-{option}" if len(option) == 1 else f"--{option.replace('_', '-')}"


class _Name(argparse.Action):
    """Collects the name that an option has for the hook, whatever its value, and by that name its last value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - argparse's own signature
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        names = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*names, self.const])
        namespace.values_by_name = {**namespace.values_by_name, self.const: str(values)}


def count(text: str) -> int:
    """Return a whole number above 0; ValueError where it is none."""
    number = whole(text)
    if not number:
        raise ValueError(text)
    return number


def hint_names(text: str) -> tuple[str, ...]:
    """Return the hook's names for what a hint asks for; ValueError where sbatch knows no such hint."""
    asked: dict[str, bool] = {}
    for word in text.lower().split(","):
        if word not in _HINTS:
            raise ValueError(text)
        asked |= _HINTS[word]
    return tuple(name for name, is_asked in asked.items() if is_asked)


def time_limit(text: str) -> str:
    """Return a time limit as it was written; ValueError where it has letters, but for Slurm's words for no limit."""
    if text.lower() not in ("unlimited", "infinite") and re.search("[A-Za-z]", text):
        raise ValueError(text)
    return text


def directives(script: str) -> list[str]:
    """Return the words of a script's `#SBATCH` lines, up to its first command."""
    words: list[str] = []
    for line in script.splitlines()[1:]:
        if line.startswith("#SBATCH"):
            words.extend(shlex.split(line.removeprefix("#SBATCH"), comments=True))
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return words


def read_submission(
    script: str,
    file_name: str,
    user: str,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Submission:
    """Return what `sbatch OPTIONS script` would submit; RightsizerError where its options cannot be read.

    Options given beside the script win over those in the environment, and those over the script's own.
    """
    if not script.startswith("#!"):
        raise RightsizerError(
            f"{file_name} is not a batch script: its first line must begin with #!, as sbatch requires"
        )
    try:
        own, more = directives(script), options_in(environment or {})
        known, unknown = option_parser().read([*own, *more, *options])
    except ValueError as error:  # an open quotation mark
        raise RightsizerError(f"cannot read the #SBATCH lines of {file_name}: {error}") from None
    other = {*(known.other or ()), *known.hint}
    if known.exclusive is not None:
        other.add("exclusive" if known.exclusive in ("", "exclusive") else "exclusive_user")
    if any(word in ("hetjob", "packjob", ":") for word in unknown):
        other.add("het_job")
    nodes_min, nodes_max = _nodes(known.nodes, file_name)
    gpus = _gpu_fields(known, other)
    if "gpus_per_job" in gpus and nodes_max is None and _count_nodes(known.values_by_name):
        other.add("counted_features")
    return Submission(
        user=user,
        uid=0,
        batch=True,
        account=known.account,
        partition=known.partition,
        qos=known.qos,
        name=known.job_name or file_name,
        comment=known.comment,
        script=script,
        work_dir=known.chdir,
        array=known.array is not None,
        num_tasks=known.ntasks,
        ntasks_per_node=known.ntasks_per_node,
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        cpus_per_task=known.cpus_per_task,
        time_limit_min=None if known.time is None else parse_time_limit_min(known.time),
        **_memory_fields(known, file_name, other),
        **gpus,
        other=tuple(sorted(other)),
    )


def _count_nodes(values: Mapping[str, str]) -> bool:
    """Whether a constraint says how many nodes the job has: `[fast*2]`."""
    return any(_COUNTED_NODES.search(values.get(name, "")) for name in ("features", "prefer"))


def _nodes(text: str | None, file_name: str) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    found = _NODES.match(text)
    if found is None:
        raise RightsizerError(
            f"{file_name} asks for --nodes={text}; write a number, or two numbers with a - between them"
        )
    return int(found[1]), int(found[2] or found[1])


def _memory_fields(known: argparse.Namespace, file_name: str, other: set[str]) -> dict[str, int | None]:
    asked = {
        "mem_per_node_mib": _memory("--mem", known.mem),
        "mem_per_cpu_mib": _memory("--mem-per-cpu", known.mem_per_cpu),
        "mem_per_gpu_mib": _memory("--mem-per-gpu", known.mem_per_gpu),
    }
    given = {field: mib for field, mib in asked.items() if mib is not None}
    if len(given) > 1:
        raise RightsizerError(
            f"{file_name} asks for memory in {len(given)} ways; sbatch accepts only one of them"
        )
    if 0 in given.values():
        other.add("mem_all")
        return {}
    return dict(given)


def _gpu_fields(known: argparse.Namespace, other: set[str]) -> dict[str, int | None]:
    """Return the one way in which GPUs are asked for; more than one, or one that is no count, goes to `other`."""
    asked = {
        "gres": ("gpus_per_node", _gres_gpus(known.gres)),
        "tres_per_job": ("gpus_per_job", _plain_gpus(known.gpus)),
        "tres_per_task": ("gpus_per_task", _plain_gpus(known.gpus_per_task)),
    }
    given = {name: found for name, found in asked.items() if found[1] is not None}
    counted = {field: number for field, number in given.values() if number}
    if len(given) == 1 and counted:
        return dict(counted)
    other.update(given)
    return {}


def _plain_gpus(text: str | None) -> int | None:
    """Return the count of `4` or `a100:4`; 0 where it is another form, None where nothing is asked."""
    if text is None:
        return None
    found = _GPUS.match(text)
    return int(found[1]) if found else 0


def _gres_gpus(text: str | None) -> int | None:
    """Return the GPUs of a list of gres with one entry of them; 0 where it is another form, None without any."""
    if text is None:
        return None
    entries = [entry for entry in text.split(",") if _GPU_GRES.match(entry)]
    found = _GPU_GRES.match(entries[0]) if len(entries) == 1 else None
    return int(found[1] or 1) if found else 0


def _memory(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    amount = parse_memory_mib(text)
    if amount is None:
        raise RightsizerError(
            f"{option}={text} is not an amount of memory; write for example {option}=4000 or {option}=4G"
        )
    return math.ceil(amount)
