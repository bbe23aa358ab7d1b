"""How a record of slurmctld's asks for GPUs and for the memory that comes with them: one field for each way. Pure.

    TresPerNode=gres:gpu:a100:2,gres:nic:1   --gres, --gpus-per-node
    TresPerJob=gres/gpu:2                    --gpus
    TresPerTask=cpu=2,gres/gpu=1             --gpus-per-task; it includes the CPUs from 23.11
    MemPerTres=gres/gpu:2048                 --mem-per-gpu, MiB
    CpusPerTres=gres/gpu:8                   --cpus-per-gpu

The last two come without a prefix (`gpu:8`) if the partition's DefMemPerGPU and DefCpuPerGPU say so.
Up to 23.02 the prefix is `gres:`, since then `gres/`, and each release wants its own back: only numbers are changed
in a field. slurmctld of 22.05 refuses TresPerTask by itself («Invalid generic resource (gres) specification»), and
accepts it together with the GPUs of all tasks in TresPerJob, as `sbatch --gpus --gpus-per-task` asks. It also refuses
MemPerTres by itself; and if the GPUs have a type, it accepts memory without that type but allocates what was asked
before. So wherever the prefix is `gres:`, the fields are written together, and the memory with the type of the GPUs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from slurm_plugin.slurm.queue import GiveBack

# The names in a request, a grant and a change, and the fields where slurmctld keeps them.
FIELDS: Mapping[str, str] = {
    "gpus_per_node": "TresPerNode",
    "gpus_per_job": "TresPerJob",
    "gpus_per_task": "TresPerTask",
    "mem_per_gpu_mib": "MemPerTres",
}
PER_TASK, _IN_ALL, _MEMORY, _BINDING = "TresPerTask", "TresPerJob", "MemPerTres", "TresBind"
# Only the characters of Slurm's own words: what a field holds goes back to scontrol.
_LINE = re.compile(
    rf"^   ({'|'.join((*FIELDS.values(), _BINDING))})=([\w.:/,=\-]+)$", re.ASCII | re.MULTILINE
)
_OLD_PREFIX = "gres:"
# What precedes the count of GPUs, with their type if one was asked for, and the count.
_GPUS = re.compile(r"((?:gres[:/])?gpu(?::(?!\d+[:=])[\w.\-]+)?[:=])(\d{1,9})", re.ASCII)
# What precedes the count, also if there is none: `--gres=gpu` is one GPU.
_KIND = re.compile(r"((?:gres[:/])?gpu(?::(?!\d+(?:[:=]|$))[\w.\-]+)?)(?:[:=]\d{1,9})?", re.ASCII)
# An entry, with its type and its count if it names them.
_ENTRY = re.compile(r"(?:gres[:/])?gpu(?::(?!\d+(?:[:=]|$))([\w.\-]+))?(?:[:=](\d{1,9}))?", re.ASCII)
_CPUS = re.compile(r"(cpu[:=])\d+", re.ASCII)
# Clients from 24.05 derive this from --gpus-per-task.
_BOUND = re.compile(r"(gres/gpu:per_task:)\d+", re.ASCII)


def parse_gpu_fields(block: str) -> dict[str, str]:
    """Return those fields of one record of `scontrol show job`, by name; a field that occurs twice is left out."""
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


def most_per_gpu(request: str) -> int:
    """Return how much a field asks for with each GPU, `gres:gpu:8`; the most of any type, 0 if it asks for none."""
    return max(gpus_by_type(request).values(), default=0)


def amount(fields: Mapping[str, str], kind: str) -> int | None:
    """Return how many a record asks for in one way of asking; None if it does not, or in words that are not known."""
    entry = _gpu_entry(fields.get(FIELDS[kind], ""))
    return int(entry[2]) if entry else None


def gpu_words(fields: Mapping[str, str], change: GiveBack) -> list[str]:
    """Return the words that make a record ask for what a change says; empty if it does not ask that way."""
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
    """Return a request for each task (`cpu=2,gres/gpu=1`) with other CPUs; '' if it names no CPUs."""
    told = any(_CPUS.fullmatch(entry) for entry in request.split(","))
    return _edited(request, None, cpus_per_task) if told else ""


def _gpu_entry(request: str) -> re.Match[str] | None:
    """Return the one entry of a request that is about GPUs; None if there is none, or more than one."""
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
    """Return this much memory for each GPU, in an entry for each type of GPU that a record asks for."""
    names = (name for name in FIELDS.values() if name != _MEMORY)
    kinds = dict.fromkeys(kind for name in names for kind in _gpu_kinds(fields.get(name, "")))
    return ",".join(f"{kind}:{mib}" for kind in kinds) or _edited(fields[_MEMORY], mib, None)


def _edited(request: str, number: int | None, cpus_per_task: int | None) -> str:
    """Return a request with another number of GPUs, and of CPUs if it names them and they change."""
    return ",".join(_edited_entry(entry, number, cpus_per_task) for entry in request.split(","))


def _edited_entry(entry: str, number: int | None, cpus_per_task: int | None) -> str:
    gpus, cpus = _GPUS.fullmatch(entry), _CPUS.fullmatch(entry)
    if gpus and number is not None:
        return f"{gpus[1]}{number}"
    return f"{cpus[1]}{cpus_per_task}" if cpus and cpus_per_task else entry


def _beside_per_task(fields: Mapping[str, str], wanted: int, num_tasks: int) -> list[str]:
    """Return what accompanies another number of GPUs per task: their binding, or the number of GPUs in all."""
    words: list[str] = []
    bound, entry = _BOUND.fullmatch(fields.get(_BINDING, "")), _gpu_entry(fields[PER_TASK])
    if bound:
        words.append(f"{_BINDING}={bound[1]}{wanted}")
    if entry and entry[1].startswith(_OLD_PREFIX):
        words.append(f"{_IN_ALL}={entry[1]}{wanted * num_tasks}")
    return words
