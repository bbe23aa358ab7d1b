"""Reads what `scontrol show job` prints, as records of the queue. Pure.

scontrol escapes nothing, and a user's text (a name, a comment, a path) may hold line ends and whole forged records.
So nothing here is believed by itself. Which user has which job comes from a call that prints no text of users
(`owners`). A record counts if its job is known, it belongs to the same user, it has each line that Slurm always
prints exactly once, and no line that is read here twice. A word counts only in its own line. If the records of a job
differ, or none is whole, the job is `doubtful`: it is asked for by itself, and if it is still odd then, it is left
alone (`salvage`).

The audit token is the one text that users may not write. Slurm prints AdminComment right after WorkDir, and it is
read nowhere else. A path, or the command line that the user typed (from 25.11), can still forge it here, so a caller
that is about to change a job asks squeue for the comment alone first (scontrol_queue.py). Whatever else users forge
about their own jobs concerns only them: nothing is done to such a job that its user could not do, and its SiteFactor
is read elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from accounting.tres import gpu_types, parse_tres, split_tres
from accounting.units import parse_duration_s, parse_memory_mib, whole
from slurm_plugin.slurm.array_tasks import count_tasks
from slurm_plugin.slurm.asked_besides import asked_else, asked_gpus, constraints, counted_gpus, types_in
from slurm_plugin.slurm.gpu_fields import most_per_gpu
from slurm_plugin.slurm.hostlist import expand_nodes
from slurm_plugin.slurm.queue import Dependent
from slurm_plugin.slurm.snapshot import QueuedJob

# No white space between the two line ends: a user's thousands of them would be scanned thousands of times.
_BETWEEN = re.compile(r"\n\n(?=JobId=\d)")
_LINE_END = "\n   "
_FIRST = re.compile(
    r"JobId=(?P<job>\d{1,10}) "
    r"(?:ArrayJobId=(?P<array>\d{1,10}) ArrayTaskId=(?P<tasks>\S+) (?:ArrayTaskThrottle=\d+ )?)?"
    r"(?:HetJobId=(?P<het>\d{1,10}) HetJobOffset=\d+ )?JobName=(?P<name>.*)\Z",
    re.ASCII | re.DOTALL,
)
_JOB_ID = re.compile(r"JobId=(\d{1,10})\s", re.ASCII)
_OWNER = re.compile(r"UserId=(.*)\((\d+)\) GroupId=", re.ASCII)
# The lines that every release prints for every job, by their first word: the same from 22.05 to 26.05.
ALWAYS = (
    "UserId", "Priority", "JobState", "Requeue", "RunTime", "SubmitTime", "StartTime", "SuspendTime", "Partition",
    "ReqNodeList", "NodeList", "NumNodes", "Socks/Node", "MinCPUsNode", "Features", "OverSubscribe", "Command",
    "WorkDir",
)  # fmt: skip
# The texts of users begin with the first of these lines; after the second comes what users may not write.
_TEXTS_FROM, _TOKEN_AFTER = "Command", "WorkDir"
# The words that are read, by the first word of their line: `--network='x EndTime=9'` is no end time.
_WORDS: Mapping[str, tuple[str, ...]] = {
    "Priority": ("Priority", "Nice", "Account", "QOS"), "JobState": ("JobState", "Reason", "Dependency"),
    "Requeue": ("Requeue", "BatchFlag", "Restarts"), "RunTime": ("TimeLimit", "TimeMin"),
    "SubmitTime": ("SubmitTime", "EligibleTime"), "AccrueTime": ("AccrueTime",),
    "StartTime": ("StartTime", "EndTime", "Deadline"), "SuspendTime": ("SuspendTime", "SecsPreSuspend"),
    "Partition": ("Partition",),
    "ReqNodeList": ("ReqNodeList", "ExcNodeList"), "NodeList": ("NodeList",),
    "FedOrigin": ("FedViableSiblings",),
    "NumNodes": ("NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "ReqB:S:C:T"),
    "TRES": ("TRES",), "ReqTRES": ("ReqTRES",), "AllocTRES": ("AllocTRES",),
    "Socks/Node": ("Socks/Node", "NtasksPerN:B:S:C", "CoreSpec", "ThreadSpec"),
    "MinCPUsNode": ("MinCPUsNode", "MinMemoryNode", "MinMemoryCPU", "MinTmpDiskNode"),
    "Features": ("Features",), "ClusterFeatures": ("ClusterFeatures",), "Reservation": ("Reservation",),
    "OverSubscribe": ("OverSubscribe", "Exclusive", "Contiguous", "Licenses", "LicensesAlloc"),
}  # fmt: skip
# Whatever is read from a record, here or in asked_besides.py, requeuing.py and gpu_fields.py, occurs at most once in
# it.
_AT_MOST_ONCE = (
    *_WORDS, "DerivedExitCode", "AdminComment", "Comment", "StdErr", "StdOut", "TresPerJob", "TresPerNode",
    "TresPerTask", "TresPerSocket", "TresBind", "MemPerTres", "CpusPerTres", "Switches",
)  # fmt: skip
# States in which a job waits or holds nodes; in all others it has ended.
ALIVE = frozenset({
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "STAGE_OUT", "SIGNALING", "RESIZING",
    "POWER_UP_NODE",
})  # fmt: skip
# Up to 25.11, `OverSubscribe=NO` says that a job wants whole nodes; 26.05 says so separately, and prints NO for all.
_EXCLUSIVE = {"NO": "NODE"}
# What Slurm calls a job that waits and is held for a reason of its own.
HELD = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
# The reason of a job that was requeued in order to be held; squeue prints it with spaces.
HELD_AGAIN = "job_requeued_in_held_state"
# The reason of a job that begins later: its user said so, or it was requeued a moment ago.
BEGINS_LATER = "BeginTime"
# The reason of a job whose dependency has failed.
GIVEN_UP = "DependencyNeverSatisfied"


def is_held_again(job: QueuedJob) -> bool:
    """Whether a job was requeued and is held: only the one that did so may change it before it is released."""
    return job.held and job.reason == HELD_AGAIN


class Listing(msgspec.Struct, frozen=True):
    """The jobs of an answer that can be believed, and the ids of those that must be asked for one by one.

    For each doubtful job with several records, `unsure` has one of them, marked as not to be touched: a forgery
    cannot hide another user's job, even if there are too many to ask for.
    """

    jobs: tuple[QueuedJob, ...]
    doubtful: tuple[int, ...]
    unsure: tuple[QueuedJob, ...] = ()


def parse_owners(text: str) -> dict[int, int]:
    """Read `job id|uid|state` lines (squeue, each task of an array on its own line): which user has which job."""
    owners: dict[int, int] = {}
    for line in text.splitlines():
        job, _, uid = line.partition("|")
        if job.isdecimal() and uid.isdecimal():
            owners[int(job)] = int(uid)
    return owners


def parse_failed_jobs(text: str) -> dict[int, str]:
    """Read `job id|state|start|restarts|priority|reason|uid|` lines of squeue; return what is seen of each job.

    Of waiting jobs, only requeued ones are included: a queue may be full of others. The expected start of a waiting
    job, and what it waits for, change all the time. So only whether it is held counts (priority 0), and for what
    reason.
    """
    found: dict[int, str] = {}
    for line in text.splitlines():
        job, state, _, restarts, priority, reason, uid = (*line.split("|"), *[""] * 6)[:7]
        if not job.isdecimal():
            continue
        if state != "PENDING":
            found[int(job)] = line
        elif restarts != "0":
            found[int(job)] = f"{job}|{state}|{restarts}|{reason if priority == '0' else ''}|{uid}|"
    return found


def waits_in(line: str) -> bool:
    """Whether a job waits, judged by its line from `parse_failed_jobs`."""
    return "|PENDING|" in line


def owner_in(line: str) -> str:
    """Return the uid of a job's user, from its line from `parse_failed_jobs`."""
    return line.rpartition("|")[0].rpartition("|")[2]


def parse_given_up(text: str) -> list[Dependent]:
    """Read `job id|uid|state|reason|array|tasks|dependency` lines of squeue: jobs given up because another failed.

    Of those that Slurm has cancelled, also include the ones that were requeued since and are held.
    """
    found = []
    for line in text.splitlines():
        job, uid, state, reason, array, tasks, dependency = (*line.split("|"), *[""] * 7)[:7]
        again = reason.replace(" ", "_") == HELD_AGAIN and "(failed)" in dependency
        if not (job.isdecimal() and uid.isdecimal()) or not (reason == GIVEN_UP or again):
            continue
        found.append(
            Dependent(
                job_id=int(job), uid=int(uid), dependency=dependency,
                array_job_id=int(array) if array.isdecimal() and array != job else 0,
                tasks="" if tasks == "N/A" else tasks, cancelled=again or state != "PENDING",
            )
        )  # fmt: skip
    return found


def parse_jobs(text: str, owners: Mapping[int, int]) -> Listing:
    """Read `scontrol show job`, times as unix seconds; jobs that have ended are left out.

    Whatever a user writes counts for nothing unless it is a whole record of a job with its true owner.
    """
    named: set[int] = set()
    records: dict[int, list[QueuedJob]] = {}
    for block in blocks_of(text):
        job_id = _id_of(block)
        named.add(job_id)
        job = parse_job(block) if job_id in owners else None
        if job is None or owners[job_id] != job.uid or job in records.get(job_id, ()):
            continue
        records.setdefault(job_id, []).append(job)
    sure = {job_id: found[0] for job_id, found in records.items() if len(found) == 1}
    return Listing(
        jobs=tuple(job for job in sure.values() if job.state in ALIVE),
        doubtful=tuple(job_id for job_id in owners if job_id in named and job_id not in sure),
        unsure=tuple(_untouchable(found[0]) for job_id, found in records.items() if job_id not in sure),
    )


def shared_out(doubtful: Sequence[int], owners: Mapping[int, int], most: int, most_of_one: int) -> list[int]:
    """Return which jobs to ask for one by one: at most `most`, and `most_of_one` per user, users with few first."""
    turns, times = list[tuple[int, int]](), Counter[int]()
    for job_id in doubtful:
        times[owners[job_id]] += 1
        turns.append((times[owners[job_id]], job_id))
    return [job_id for turn, job_id in sorted(turns) if turn <= most_of_one][:most]


def blocks_of(text: str) -> list[str]:
    """Return the parts of an answer that begin like a record."""
    return _BETWEEN.split(text)


def records_of(text: str) -> list[str]:
    """Return the records of an answer about one job (or one array).

    As long as the whole answer is one record, whatever begins like another is a user's text: from 25.11 the command
    line that the user typed precedes some of Slurm's own lines, and with it the user's comment.
    """
    return [text] if parse_job(text) else blocks_of(text)


def parse_plain(text: str) -> list[QueuedJob]:
    """Return the jobs of an answer about one job (or one array): its records that are as Slurm writes them."""
    return [job for job in map(parse_job, records_of(text)) if job is not None]


def parse_job(block: str) -> QueuedJob | None:
    """Return the job of one record; None if it is not as Slurm alone writes it."""
    lines = block.strip("\n").split(_LINE_END)
    first = _FIRST.match(lines[0])
    heads = [line.partition("=")[0] for line in lines]
    times = Counter(heads)
    if (
        first is None
        or any(times[head] != 1 for head in ALWAYS)
        or any(times[head] > 1 for head in _AT_MOST_ONCE)
    ):
        return None
    return _whole_job(first, lines, heads)


def salvage(block: str, job_id: int, uid: int) -> QueuedJob | None:
    """Return what can be read of a job whose texts look like Slurm's own lines, marked as not to be touched.

    The last line of each kind is used, as good as any other: the user misleads us only about that user's own job,
    whose owner is known. None if that gives no job either.
    """
    lines = block.strip("\n").split(_LINE_END)
    heads = [line.partition("=")[0] for line in lines]
    chosen = {
        head: line for head, line in zip(heads, lines, strict=True) if head in ALWAYS or head.endswith("TRES")
    }
    first = _FIRST.match(lines[0])
    if first is None or int(first["job"]) != job_id or any(head not in chosen for head in ALWAYS):
        return None
    ordered = [chosen[head] for head in sorted(chosen, key=lambda head: head in (_TEXTS_FROM, "WorkDir"))]
    job = _whole_job(first, ordered, [line.partition("=")[0] for line in ordered])
    if job is None:
        return None
    return _untouchable(msgspec.structs.replace(job, uid=uid, user=str(uid)))


def _untouchable(job: QueuedJob) -> QueuedJob:
    return msgspec.structs.replace(job, fixed=True, batch=False, admin_comment="", comment="")


def _id_of(block: str) -> int:
    found = _JOB_ID.match(block)
    return int(found[1]) if found else 0


def _whole_job(first: re.Match[str], lines: Sequence[str], heads: Sequence[str]) -> QueuedJob | None:
    """Return the job of lines with their heads; None if a line lacks a word, or a number is none.

    Such a record is damaged, or a user wrote it into a text: it must not keep us from reading the others.
    """
    try:
        return _job(first, lines, heads)
    except (KeyError, ValueError):
        return None


def _job(first: re.Match[str], lines: Sequence[str], heads: Sequence[str]) -> QueuedJob | None:
    texts_from = heads.index(_TEXTS_FROM)
    words = _words(lines[:texts_from], heads)
    texts = dict(line.split("=", 1) for line in reversed(lines[texts_from:]) if "=" in line)
    owner = _OWNER.match(lines[heads.index("UserId")])
    if owner is None:
        return None
    state = "PENDING" if words["JobState"] in HELD else words["JobState"]
    pending = state == "PENDING"
    nodes = max(1, whole(words["NumNodes"].partition("-")[0]) or 1)
    listed = _tres(words, pending=pending)
    tres = parse_tres(listed)
    tasks, tasks_asked = first["tasks"] or "", whole(words["NumTasks"]) or 1
    gpus = asked_gpus(texts, nodes, tasks_asked)
    memory_mib = round(parse_memory_mib(words.get("MinMemoryNode", words.get("MinMemoryCPU", "0"))) or 0)
    return QueuedJob(
        job_id=int(first["job"]), user=owner[1], uid=int(owner[2]), account=_text(words["Account"]),
        partitions=tuple(words["Partition"].split(",")), qos=_text(words["QOS"]), name=first["name"], state=state,
        reason=words.get("Reason", ""), submit_s=_time_s(words["SubmitTime"]),
        eligible_s=_time_s(words["EligibleTime"]), accrues_s=_time_s(words.get("AccrueTime", "")),
        start_s=_time_s(words["StartTime"]),
        end_s=_time_s(words["EndTime"]), limit_s=_limit_s(words["TimeLimit"]),
        deadline_s=_time_s(words["Deadline"]), least_limit_s=_limit_s(words["TimeMin"]),
        priority=int(words["Priority"]), site_factor=0, nice=int(words.get("Nice", "0")),
        cpus=tres.cpus or whole(words["NumCPUs"].partition("-")[0]) or 1,
        mem_mib=tres.mem_mib or 0, gpus=counted_gpus(listed, tres.gpus, gpus),
        billing=whole(split_tres(listed).get("billing")) or 0,
        gpu_types=types_in({} if pending else gpu_types(listed), gpus),
        array_job_id=int(first["array"] or 0), array_tasks=tasks, tasks=count_tasks(tasks),
        het_job_id=int(first["het"] or 0), held=pending and (words["Priority"] == "0" or words["JobState"] in HELD),
        dependency=_text(words["Dependency"]), reservation=_text(words.get("Reservation", "")),
        num_tasks=tasks_asked, cpus_per_task=whole(words["CPUs/Task"]) or 1,
        tres_per_task=texts.get("TresPerTask", ""),
        mem_per_node_mib=memory_mib if "MinMemoryNode" in words else None,
        mem_per_cpu_mib=memory_mib if "MinMemoryCPU" in words else None,
        cpus_per_gpu=most_per_gpu(texts.get("CpusPerTres", "")),
        mem_per_gpu_mib=most_per_gpu(texts.get("MemPerTres", "")), num_nodes=nodes,
        min_cpus_per_node=whole(words["MinCPUsNode"]) or 1,
        min_cpus=(whole(words["NumCPUs"].partition("-")[0]) or 0) if pending else 0,
        nodes=() if pending else expand_nodes(words["NodeList"]),
        exclusive=words.get("Exclusive", _EXCLUSIVE.get(words["OverSubscribe"])) == "NODE",
        batch=words["BatchFlag"] != "0", requeues=words["Requeue"] == "1",
        has_siblings="," in words.get("FedViableSiblings", ""),
        other=(*constraints(words), *asked_else(texts)), comment=texts.get("Comment", "").rstrip(" "),
        admin_comment=_admin_comment(lines, heads), restarts=whole(words["Restarts"]) or 0,
        stopped_s=_time_s(words["SuspendTime"]), ran_before_s=whole(words.get("SecsPreSuspend", "")) or 0.0,
    )  # fmt: skip


def _words(lines: Sequence[str], heads: Sequence[str]) -> dict[str, str]:
    """Return the words of lines, each from its own line alone, the first occurrence."""
    words: dict[str, str] = {}
    for line, head in zip(lines, heads, strict=False):
        for word in line.split(" ") if head in _WORDS else ():
            name, equals, value = word.partition("=")
            if equals and name in _WORDS[head]:
                words.setdefault(name, value)
    return words


def _admin_comment(lines: Sequence[str], heads: Sequence[str]) -> str:
    """Return the admin comment, '' if there is none: a line of that name elsewhere is a user's."""
    at = heads.index(_TOKEN_AFTER) + 1
    if heads[at : at + 1] != ["AdminComment"]:
        return ""
    return lines[at].partition("=")[2].rstrip(" ")


def _tres(words: Mapping[str, str], *, pending: bool) -> str:
    """Return the list of what a job asks for or, once it runs, has: one line up to 22.05, two since."""
    allocated = "" if pending else _text(words.get("AllocTRES", ""))
    return allocated or words.get("TRES") or words.get("ReqTRES", "")


def _text(value: str) -> str:
    return "" if value in ("(null)", "N/A") else value


def _time_s(value: str) -> float:
    return float(value) if value.isdecimal() else 0.0


def _limit_s(value: str) -> int | None:
    seconds = parse_duration_s(value)
    return None if seconds is None else int(seconds)
