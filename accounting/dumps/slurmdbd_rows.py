"""Rows of slurmdbd's tables as sacct prints them: columns of text, each job followed by its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from sqlalchemy import RowMapping

from accounting.states import state_of_number
from accounting.tres import name_tres
from accounting.unnamed import user_name

_NO_VAL = 2**32 - 2  # INFINITE is the number after it.
# id_step is signed: slurm.h counts these down from 2^32. (slurmdbd has renumbered the steps of releases before 20.11.)
_STEPS = {-4: "extern", -5: "batch", -6: "interactive"}
_PENDING_STEP = -3
# The database's latin1 is Windows' cp1252, except where cp1252 has no character.
_BYTES_OF = {
    ord(character): byte
    for byte in range(0x80, 0xA0)
    if (character := bytes((byte,)).decode("cp1252", "ignore"))
}
COLUMNS = (
    "JobIDRaw", "JobID", "Cluster", "User", "Account", "Partition", "QOS", "State", "Submit", "Start", "End",
    "ElapsedRaw", "TimelimitRaw", "NNodes", "NTasks", "ReqTRES", "AllocTRES", "MaxRSS", "TotalCPU", "TRESUsageInMax",
    "TRESUsageInTot", "TRESUsageOutTot", "ConsumedEnergyRaw", "JobName", "Comment", "AdminComment",
)  # fmt: skip


class Names(msgspec.Struct, frozen=True):
    """What the database's numbers stand for."""

    tres: dict[int, str]
    qos: dict[int, str]
    users: dict[int, str]


def printed(
    jobs: Sequence[RowMapping], steps: Sequence[RowMapping], names: Names, cluster: str
) -> list[tuple[str, ...]]:
    """Return rows of jobs, each followed by its steps, in the columns that sacct would print."""
    of_job: dict[object, list[RowMapping]] = {}
    for step in steps:
        of_job.setdefault(step["job_db_inx"], []).append(step)
    rows = []
    for job in jobs:
        rows.append(_job(job, names, cluster))
        rows += [
            _step(step, job, names)
            for step in of_job.get(job["job_db_inx"], ())
            if step["id_step"] != _PENDING_STEP
        ]
    return rows


def _job(job: RowMapping, names: Names, cluster: str) -> tuple[str, ...]:
    start_s, end_s = _int(job["time_start"]), _int(job["time_end"])
    elapsed_s = max(0, end_s - start_s - _int(job["time_suspended"])) if start_s else 0
    limit_min = _int(job["timelimit"])
    tres = {name: name_tres(_text(job[name]), names.tres) for name in ("tres_req", "tres_alloc")}
    printed = {
        "JobIDRaw": str(job["id_job"]),
        "JobID": _display_id(job),
        "Cluster": cluster,
        "User": names.users.get(_int(job["id_assoc"])) or user_name(_int(job["id_user"])),
        "Account": _text(job["account"]),
        "Partition": _text(job["partition"]),
        "QOS": names.qos.get(_int(job["id_qos"]), "Unknown"),
        "State": _state(job),
        "Submit": str(job["time_submit"]),
        "Start": str(start_s) if start_s else "None",
        "End": str(end_s),
        "ElapsedRaw": str(elapsed_s),
        "TimelimitRaw": "" if limit_min >= _NO_VAL else str(limit_min),
        "NNodes": str(job["nodes_alloc"]) if job["nodes_alloc"] else _nodes(tres),
        "ReqTRES": tres["tres_req"],
        "AllocTRES": tres["tres_alloc"],
        "JobName": _text(job["job_name"]),
        "Comment": _text(job["derived_es"]),
        "AdminComment": _text(job["admin_comment"]),
    }
    return tuple(printed.get(name, "") for name in COLUMNS)


def _step(step: RowMapping, job: RowMapping, names: Names) -> tuple[str, ...]:
    usage = {name: _usage(_text(step[name]), names) for name in _USAGE}
    cpu_us = (
        (_int(step["user_sec"]) + _int(step["sys_sec"])) * 10**6
        + _int(step["user_usec"])
        + _int(step["sys_usec"])
    )
    # A step that ended with its node has no end time of its own.
    last = step if _int(step["time_end"]) else job
    printed = {
        "JobIDRaw": f"{job['id_job']}.{_step_id(step)}",
        "State": _state(last),
        "Submit": str(step["time_start"]),
        "Start": str(step["time_start"]),
        "End": str(last["time_end"]),
        "NNodes": str(step["nodes_alloc"]),
        "NTasks": str(step["task_cnt"]),
        "AllocTRES": name_tres(_text(step["tres_alloc"]), names.tres),
        "MaxRSS": dict(pair.split("=") for pair in usage["tres_usage_in_max"].split(",") if pair).get(
            "mem", ""
        ),
        "TotalCPU": f"{cpu_us // 10**6}.{cpu_us % 10**6 // 1000:03}",
        "TRESUsageInMax": usage["tres_usage_in_max"],
        "TRESUsageInTot": usage["tres_usage_in_tot"],
        "TRESUsageOutTot": usage["tres_usage_out_tot"],
        "ConsumedEnergyRaw": str(step["consumed_energy"]),
        "JobName": _text(step["step_name"]),
    }
    return tuple(printed.get(name, "") for name in COLUMNS)


_USAGE = ("tres_usage_in_max", "tres_usage_in_tot", "tres_usage_out_tot")


def _usage(listed: str, names: Names) -> str:
    """Return a usage list as sacct prints it; the database counts CPU time in milliseconds."""
    pairs = (pair.partition("=") for pair in listed.split(",") if pair)
    seconds = (
        f"1={int(value) // 1000}" if number == "1" else f"{number}={value}" for number, _, value in pairs
    )
    return name_tres(",".join(seconds), names.tres)


def _display_id(job: RowMapping) -> str:
    if _int(job["id_array_job"]) and _int(job["id_array_task"]) < _NO_VAL:
        return f"{job['id_array_job']}_{job['id_array_task']}"
    if _int(job["het_job_id"]) and _int(job["het_job_offset"]) < _NO_VAL:
        return f"{job['het_job_id']}+{job['het_job_offset']}"
    return str(job["id_job"])


def _step_id(step: RowMapping) -> str:
    number = _int(step["id_step"])
    name = _STEPS.get(number, str(number))
    component = _int(step["step_het_comp"])
    return name if component >= _NO_VAL else f"{name}+{component}"


def _state(row: RowMapping) -> str:
    word = state_of_number(_int(row["state"])) or str(row["state"])
    by = row["kill_requid"]
    return f"{word} by {by}" if word == "CANCELLED" and by is not None and _int(by) < _NO_VAL else word


def _nodes(tres: Mapping[str, str]) -> str:
    listed = tres["tres_alloc"] or tres["tres_req"]
    return dict(pair.split("=") for pair in listed.split(",") if pair).get("node", "0")


def _int(value: object) -> int:
    return int(str(value)) if value is not None else 0


def _text(value: object) -> str:
    decoded = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value or "")
    return _as_written(decoded).replace("\x00", "\\x00")


def _as_written(read: str) -> str:
    """Return a text as its user wrote it if slurmdbd told its database that UTF-8 was latin1; else unchanged.

    MySQL's client library does so with a MariaDB in latin1 (Ubuntu 24.04): ö is stored as Ã¶.
    """
    if read.isascii():
        return read
    try:
        return read.translate(_BYTES_OF).encode("latin1").decode("utf-8")
    except UnicodeError:
        return read
