"""What a job asks for besides CPUs and memory, in Slurm's words: GPUs by type, other GRES, where it may run. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from slurm_plugin.slurm.gpu_fields import gpus_by_type

# Constraints of placement for which a record has no field, each with the values that mean none.
_OTHER = {
    "ReqNodeList": ("(null)",), "ExcNodeList": ("(null)",), "Features": ("(null)",), "ClusterFeatures": ("(null)",),
    "Licenses": ("(null)",), "Contiguous": ("0",), "CoreSpec": ("*",), "ThreadSpec": (),
    "ReqB:S:C:T": ("0:0:*:*", "*:*:*:*"), "NtasksPerN:B:S:C": ("0:0:*:*", "0:0:*:1", "*:*:*:*"),
    "MinTmpDiskNode": ("0",), "Socks/Node": ("*",),
    # Nodes shared only among its own user's jobs, or those with its MCS label.
    "OverSubscribe": ("OK", "NO", "YES"), "Exclusive": ("NO", "NODE"),
}  # fmt: skip
_TASKS_ON = "NtasksPerN:B:S:C="
# What else a job asks for, `gres:gpu:2,gres/shard=1`; the CPUs and GPUs among it are read elsewhere.
_TRES_PER = ("TresPerJob", "TresPerNode", "TresPerSocket", "TresPerTask")
_TOLD = frozenset({"", "cpu", "mem", "gpu"})
_GRES_NAME = re.compile(r"(?:gres[:/])?([^:=,]*)", re.ASCII)


def asked_gpus(texts: Mapping[str, str], nodes: int, tasks: int) -> Counter[str]:
    """Return how many GPUs of each type a job asks for, '' for any: in all, of each node, or of each task."""
    for key, times in (("TresPerJob", 1), ("TresPerNode", nodes), ("TresPerTask", tasks)):
        if asked := gpus_by_type(texts.get(key, "")):
            return Counter({name: times * number for name, number in asked.items()})
    return Counter()


def counted_gpus(listed: str, counted: int | None, asked: Counter[str]) -> int:
    """Return a job's GPUs as listed or, if the site accounts for only some types or for none, as asked for."""
    all_count = "gres/gpu=" in listed
    return counted if counted is not None and all_count else max(counted or 0, asked.total())


def constraints(words: Mapping[str, str]) -> tuple[str, ...]:
    """Return the constraints of placement among a record's words, each as Slurm writes it.

    Of a job that runs, 26.05 also says which licences it holds, of several that would do (`-L 'a:4|b:2'`).
    """
    held = words.get("LicensesAlloc", "(null)")
    told = words if held == "(null)" else {**words, "Licenses": held}
    return tuple(
        f"{key}={told[key]}"
        for key, none in _OTHER.items()
        if told.get(key, "(null)") not in (*none, "(null)")
    )


def tasks_on_node(constraints: Iterable[str]) -> int:
    """Return how many tasks a job is to have on each node (--ntasks-per-node), 1 if its constraints do not say."""
    told = (one.removeprefix(_TASKS_ON) for one in constraints if one.startswith(_TASKS_ON))
    return next((int(count) for one in told if (count := one.partition(":")[0]).isdecimal()), 0) or 1


def asked_else(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return what is among the texts of users: GRES other than GPUs, and how few switches the job may span."""
    asked = [part for key in _TRES_PER for part in texts.get(key, "").split(",")]
    switches = texts.get("Switches")
    return (*other_gres(asked), *([f"Switches={switches}"] if switches else ()))


def types_in(listed: Mapping[str, int], asked: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return how many of each type a job was given or asks for; a list lacks types that are not accounted for.

    The list is wrong for waiting jobs: 26.05 says `gres/gpu:a100=3` for `--gres=gpu:3` if no other type is accounted
    for.
    """
    names = dict.fromkeys(name for name in (*listed, *asked) if name)
    return tuple((name, max(listed.get(name, 0), asked.get(name, 0))) for name in names)


def other_gres(asked: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds of what is asked (`gres:shard:2`) that are neither CPUs, memory nor GPUs, as one constraint."""
    kinds = {found[1] for part in asked if (found := _GRES_NAME.match(part))} - _TOLD
    return (f"GRES={','.join(sorted(kinds))}",) if kinds else ()
