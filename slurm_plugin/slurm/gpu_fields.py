"""How a record of slurmctld's asks for GPUs, and for the memory that comes with them: one field for each way. Pure.

    TresPerNode=gres:gpu:a100:2,gres:nic:1   --gres, --gpus-per-node
    TresPerJob=gres/gpu:2                    --gpus
    TresPerTask=cpu=2,gres/gpu=1             --gpus-per-task; the CPUs stand there from 23.11 on
    MemPerTres=gres/gpu:2048                 --mem-per-gpu, MiB

Up to 23.02 it is `gres:`, since then `gres/`, and each release wants its own back: of a field only numbers are changed.
slurmctld of 22.05 refuses TresPerTask by itself («Invalid generic resource (gres) specification»), and takes it with
the GPUs of all tasks in TresPerJob beside it, as `sbatch --gpus --gpus-per-task` asks. It refuses MemPerTres by itself,
too, and where the GPUs have a type it takes memory without that type and allocates what was asked before. So they go
together, the memory with their type, wherever the prefix is `gres:`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from slurm_plugin.slurm.queue import GiveBack

# What a request, a grant and a change call it, and where slurmctld keeps it.
FIELDS: Mapping[str, str] = {
    "gpus_per_node": "TresPerNode",
    "gpus_per_job": "TresPerJob",
    "gpus_per_task": "TresPerTask",
    "mem_per_gpu_mib": "MemPerTres",
}
PER_TASK, _IN_ALL, _MEMORY, _BINDING = "TresPerTask", "TresPerJob", "MemPerTres", "TresBind"
# The characters of Slurm's own words: what a field says goes back to scontrol.
_LINE = re.compile(
    rf"^   ({'|'.join((*FIELDS.values(), _BINDING))})=([\w.:/,=\-]+)$", re.ASCII | re.MULTILINE
)
_OLD_PREFIX = "gres:"
# What stands before the count of GPUs, with their type where one was asked for, and the count.
_GPUS = re.compile(r"((?:gres[:/])?gpu(?::(?!\d+[:=])[\w.\-]+)?[:=])(\d{1,9})", re.ASCII)
# What stands before the count, also where there is none: `--gres=gpu` is one GPU.
_KIND = re.compile(r"((?:gres[:/])?gpu(?::(?!\d+(?:[:=]|$))[\w.\-]+)?)(?:[:=]\d{1,9})?", re.ASCII)
# An entry, with its type and its count where it names them.
_ENTRY = re.compile(r"(?:gres[:/])?gpu(?::(?!\d+(?:[:=]|$))([\w.\-]+))?(?:[:=](\d{1,9}))?", re.ASCII)
_CPUS = re.compile(r"(cpu[:=])\d+", re.ASCII)
# Clients from 24.05 on derive it from --gpus-per-task.
_BOUND = re.compile(r"(gres/gpu:per_task:)\d+", re.ASCII)


def parse_gpu_fields(block: str) -> dict[str, str]:
    """Return those fields of one record of `scontrol show job`, by name; one that stands there twice is left out."""
    lines = _LINE.findall(block)
    times = Counter(name for name, _ in lines)
    return {name: value for name, value in lines if times[name] == 1}


def gpus_by_type(request: str) -> Counter[str]:
    """Return how many GPUs of each type a field asks for, '' for any: `gres:gpu:a100:2,gres:nic:1`."""
    found = Counter[str]()
    for entry in request.split(","):
        if match := _ENTRY.fullmatch(entry.strip()):
            found[match[1] or ""] += int(match[2] or 1)
    return found


def amount(fields: Mapping[str, str], kind: str) -> int | None:
    """Return how many a record asks for in a way of asking; None where it does not, or in words that are not known."""
    entry = _gpu_entry(fields.get(FIELDS[kind], ""))
    return int(entry[2]) if entry else None


def gpu_words(fields: Mapping[str, str], change: GiveBack) -> list[str]:
    """Return what to tell scontrol so that a record asks for what a change says; nothing where it does not ask so."""
    words: list[str] = []
    for kind, name in FIELDS.items():
        wanted, stands = getattr(change, kind), amount(fields, kind)
        if wanted is None or stands is None or wanted == stands:
            continue
        if name == _MEMORY and fields[name].startswith(_OLD_PREFIX):
            words += [
                *([] if words else _as_they_stand(fields, change)),
                f"{name}={_by_type(fields, wanted)}",
            ]
            continue
        words.append(f"{name}={_edited(fields[name], wanted, change.cpus_per_task)}")
        if name == PER_TASK:
            words += _beside_per_task(fields, wanted, change.num_tasks)
    return words


def with_cpus(request: str, cpus_per_task: int) -> str:
    """Return what is asked for a task (`cpu=2,gres/gpu=1`) with other CPUs; '' where it tells none."""
    told = any(_CPUS.fullmatch(entry) for entry in request.split(","))
    return _edited(request, None, cpus_per_task) if told else ""


def _gpu_entry(request: str) -> re.Match[str] | None:
    """Return the one entry of a request that is about GPUs; None where there is none, or more than one."""
    found = [match for entry in request.split(",") if (match := _GPUS.fullmatch(entry))]
    return found[0] if len(found) == 1 else None


def _gpu_kinds(request: str) -> list[str]:
    return [match[1] for entry in request.split(",") if (match := _KIND.fullmatch(entry))]


def _as_they_stand(fields: Mapping[str, str], change: GiveBack) -> list[str]:
    """Return the words that ask for the GPUs that a record has."""
    asked = [name for name in FIELDS.values() if name != _MEMORY and _gpu_kinds(fields.get(name, ""))]
    words = [f"{name}={fields[name]}" for name in asked]
    stands = amount(fields, "gpus_per_task")
    if stands is not None and _IN_ALL not in asked:
        words += _beside_per_task(fields, stands, change.num_tasks)
    return words


def _by_type(fields: Mapping[str, str], mib: int) -> str:
    """Return so much memory for each GPU, in an entry for each type of GPU that a record asks for."""
    names = (name for name in FIELDS.values() if name != _MEMORY)
    kinds = dict.fromkeys(kind for name in names for kind in _gpu_kinds(fields.get(name, "")))
    return ",".join(f"{kind}:{mib}" for kind in kinds) or _edited(fields[_MEMORY], mib, None)


def _edited(request: str, number: int | None, cpus_per_task: int | None) -> str:
    """Return a request with another number of GPUs, and of CPUs, where it tells those and they change."""
    return ",".join(_edited_entry(entry, number, cpus_per_task) for entry in request.split(","))


def _edited_entry(entry: str, number: int | None, cpus_per_task: int | None) -> str:
    gpus, cpus = _GPUS.fullmatch(entry), _CPUS.fullmatch(entry)
    if gpus and number is not None:
        return f"{gpus[1]}{number}"
    return f"{cpus[1]}{cpus_per_task}" if cpus and cpus_per_task else entry


def _beside_per_task(fields: Mapping[str, str], wanted: int, num_tasks: int) -> list[str]:
    """Return what goes with another number of GPUs for a task: their binding, or the number of GPUs in all."""
    words: list[str] = []
    bound, entry = _BOUND.fullmatch(fields.get(_BINDING, "")), _gpu_entry(fields[PER_TASK])
    if bound:
        words.append(f"{_BINDING}={bound[1]}{wanted}")
    if entry and entry[1].startswith(_OLD_PREFIX):
        words.append(f"{_IN_ALL}={entry[1]}{wanted * num_tasks}")
    return words
