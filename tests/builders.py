"""Builds rows, attempts and submissions with ordinary values, so that a test states only what it is about."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from accounting.decisions.decision import Decision
from accounting.decisions.token import format_token
from accounting.frames import JOBS, STEPS, Records, attempts_in
from accounting.labels.attempts import label
from accounting.records import Attempt, GpuUse, JobRow, Quality
from accounting.request import JobRequest
from accounting.slurm.sacct import DELIMITER, FIGURES, KEY, TEXTS, Answer
from models.past.attempts import past_job, request_of
from models.past.families import script_signature
from models.past.history import History
from slurm_plugin.policy.submission import Submission

DAY_S = 86400
T0 = 1_700_000_000
# Makes a decoder fail by recursion, unlike other invalid input.
DEEP = b'{"x":' + b"[" * 3000
SCRIPT = "#!/bin/sh\n#SBATCH -c 8\nsrun ./fit --all\n"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A row of STEPS (accounting/frames.py)."""

    step_id: str
    state: str
    start_s: int
    end_s: int
    tasks: int
    mem_max_task_mib: float | None
    mem_total_mib: float | None
    cpu_s: float | None
    cpu_max_task_s: float | None
    nodes: int = 1
    gpu_util_pct: float | None = None
    gpu_mem_mib: float | None = None
    read_mib: float | None = None
    written_mib: float | None = None
    energy_j: float | None = None
    alloc_cpus: int | None = None
    alloc_mem_mib: int | None = None


_ROW = JobRow(
    cluster="alpha",
    job_id=1,
    display_id="1",
    user="alice",
    account="phys",
    partition="main",
    qos="normal",
    job_name="fit",
    comment="",
    admin_comment="",
    state="COMPLETED",
    submit_s=T0,
    start_s=T0 + 10,
    end_s=T0 + 110,
    elapsed_s=100,
    limit_s=3600,
    nodes=1,
    req_cpus=8,
    req_mem_mib=8000,
    req_gpus=None,
    alloc_cpus=8,
    alloc_mem_mib=8000,
    alloc_gpus=None,
)
_STEP = Step(
    step_id="batch",
    state="COMPLETED",
    start_s=T0 + 10,
    end_s=T0 + 110,
    tasks=1,
    mem_max_task_mib=200.0,
    mem_total_mib=200.0,
    cpu_s=90.0,
    cpu_max_task_s=90.0,
)
_GPU_USE = GpuUse(
    job_id=1,
    node="n1",
    gpu=0,
    source="nvml",
    samples=3,
    first_s=T0 + 10,
    last_s=T0 + 100,
    util_max_pct=90.0,
    util_mean_pct=50.0,
    mem_max_mib=100.0,
)
_REQUEST = JobRequest(user="alice", account="phys", partition="main", job_name="fit", cpus_per_task=8)
_SUBMISSION = Submission(user="alice", uid=1000, batch=True, other=(), name="fit", script=SCRIPT)


def job_row(**changes: Any) -> JobRow:
    """Return an ended job of 100 s that requested 8 CPUs and 8000 MiB."""
    return msgspec.structs.replace(_ROW, **changes)


def step(**changes: Any) -> Step:
    """Return a job's batch step: 200 MiB, nine tenths of a core."""
    return msgspec.structs.replace(_STEP, **changes)


def srun(number: int, start_s: int, end_s: int, mem_mib: float | None, **changes: object) -> Step:
    """Return a step of srun, with times in seconds after T0, whose tasks together held `mem_mib`."""
    times = {"step_id": str(number), "start_s": T0 + start_s, "end_s": T0 + end_s}
    return step(**{**times, "mem_max_task_mib": mem_mib, "mem_total_mib": mem_mib, **changes})


def gpu_use(**changes: Any) -> GpuUse:
    """Return the use of one GPU that was busy while the job ran."""
    return msgspec.structs.replace(_GPU_USE, **changes)


def request(**changes: Any) -> JobRequest:
    """Return a request for eight CPUs."""
    return msgspec.structs.replace(_REQUEST, **changes)


def submission(**changes: Any) -> Submission:
    """Return a batch submission without requests."""
    return msgspec.structs.replace(_SUBMISSION, **changes)


def decision(**changes: Any) -> Decision:
    """Return a decision that changed nothing."""
    plain = Decision(id="d1", time_s=T0, mode="enforce", applied=False, reason="fits", request=request())
    return msgspec.structs.replace(plain, **changes)


def records_of(attempts: Iterable[tuple[JobRow, Sequence[Step]]]) -> Records:
    """Return rows and their steps as columns."""
    jobs: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    for row, of_row in attempts:
        steps += ({"job": len(jobs), **msgspec.structs.asdict(step)} for step in of_row)
        jobs.append({"slurm_release": "", "gather": "", **msgspec.structs.asdict(row)})
    return Records(pa.Table.from_pylist(jobs, JOBS), pa.Table.from_pylist(steps, STEPS))


def label_attempt(row: JobRow, steps: Sequence[Step], gpu_use: Sequence[GpuUse] = ()) -> Attempt:
    """Return what `label` concludes from one record."""
    [attempt] = attempts_in(label(records_of([(row, steps)]), {row.job_id: gpu_use}))
    return attempt


def attempt(
    *,
    mem_mib: float = 200.0,
    cores: float = 0.9,
    gpus: int | None = None,
    gpu_mem_mib: float = 100.0,
    token: bool = True,
    **changes: Any,
) -> Attempt:
    """Return an attempt of `elapsed_s` (100) with this use; `changes` are those of its job row.

    With `token` it carries ours, as every job that passed the hook does.
    """
    row = job_row(**changes)
    row = msgspec.structs.replace(row, end_s=row.start_s + row.elapsed_s)
    if token:
        asked = request(
            user=row.user,
            job_name=row.job_name,
            cpus_per_task=row.req_cpus,
            mem_per_node_mib=row.req_mem_mib,
            gpus_per_node=row.req_gpus,
            script_signature=script_signature(SCRIPT),
        )
        row = msgspec.structs.replace(row, admin_comment=format_token(decision(request=asked)))
    cpu_s = cores * row.elapsed_s
    batch = step(
        start_s=row.start_s, end_s=row.end_s, mem_max_task_mib=mem_mib, mem_total_mib=mem_mib, cpu_s=cpu_s
    )
    count = range(gpus or 0)
    when = {"first_s": row.start_s, "last_s": row.end_s}
    uses = [gpu_use(job_id=row.job_id, gpu=n, mem_max_mib=gpu_mem_mib, **when) for n in count]
    return label_attempt(row, [batch], uses)


def without_memory(attempt: Attempt, memory_quality: Quality = "absent") -> Attempt:
    """Return the same attempt with its memory unknown, with the given quality."""
    use = msgspec.structs.replace(attempt.use, peak_mem_mib=None, memory_quality=memory_quality)
    return msgspec.structs.replace(attempt, use=use)


def cancelled_while_it_waited(**changes: Any) -> Attempt:
    """Return an attempt cancelled before it ran, as sacct shows it: started and ended at that moment, without steps."""
    row = job_row(state="CANCELLED by 1000", elapsed_s=0, alloc_cpus=0, alloc_mem_mib=0, **changes)
    return label_attempt(msgspec.structs.replace(row, end_s=row.start_s), [])


def past(jobs: int = 90, *, families: Sequence[str] = ("fit", "sim", "plot"), seed: int = 1) -> list[Attempt]:
    """Return a mixed past: a job every 1000 s, families in turn, each with its own typical memory and cores."""
    draw = random.Random(seed)
    made = []
    for number in range(jobs):
        family = number % len(families)
        start_s = T0 + 1000 * number + 10
        made.append(
            attempt(
                job_id=number + 1,
                display_id=str(number + 1),
                job_name=families[family],
                submit_s=start_s - 10,
                start_s=start_s,
                elapsed_s=draw.randint(60, 600),
                req_gpus=4,
                mem_mib=150.0 * (family + 1) * draw.uniform(0.6, 1.0),
                cores=(family + 1) * draw.uniform(0.5, 0.9),
                gpus=1,
                gpu_mem_mib=4000.0 + 1000 * family + draw.uniform(0, 500),
            )
        )
    return made


def replay(attempts: Sequence[Attempt], history: History) -> Iterator[tuple[Attempt, JobRequest]]:
    """Yield each attempt when it is submitted; `history` then holds exactly the attempts that ended before.

    A submission does not know of a job that ends in the same second.
    """
    submits = [(attempt.row.submit_s, 0, index) for index, attempt in enumerate(attempts)]
    ends = [(attempt.row.end_s, 1, index) for index, attempt in enumerate(attempts) if attempt.ran]
    for _, is_end, index in sorted(submits + ends):
        attempt = attempts[index]
        if is_end:
            history.add(request_of(attempt), past_job(attempt))
        else:
            yield attempt, request_of(attempt)


SacctRow = dict[str, str]
COLUMNS = (*FIGURES, *TEXTS)


def job_line(job_id: int = 1, start_s: int = T0 + 10, seconds: int = 100, **columns: str) -> SacctRow:
    """Return sacct's row of an ended job that requested 8 CPUs and 8000 MiB."""
    plain = {
        "JobIDRaw": str(job_id),
        "JobID": str(job_id),
        "Cluster": "alpha",
        "User": "alice",
        "Partition": "main",
        "QOS": "normal",
        "State": "COMPLETED",
        "Submit": str(start_s - 10),
        "Start": str(start_s),
        "End": str(start_s + seconds),
        "ElapsedRaw": str(seconds),
        "TimelimitRaw": "60",
        "NNodes": "1",
        "ReqTRES": "billing=8,cpu=8,mem=8000M,node=1",
        "AllocTRES": "billing=8,cpu=8,mem=8000M,node=1",
        "TotalCPU": "01:30.000",
        "Account": "phys",
        "JobName": "fit",
    }
    return sacct_row(plain, columns)


def step_line(
    job_id: int = 1, step_id: str = "batch", start_s: int = T0 + 10, seconds: int = 100, **columns: str
) -> SacctRow:
    """Return sacct's row of a step that used 200 MiB and 90 s of CPU."""
    plain = {
        "JobIDRaw": f"{job_id}.{step_id}",
        "JobID": f"{job_id}.{step_id}",
        "Cluster": "alpha",
        "State": "COMPLETED",
        "Submit": str(start_s),
        "Start": str(start_s),
        "End": str(start_s + seconds),
        "ElapsedRaw": str(seconds),
        "NNodes": "1",
        "NTasks": "1",
        "AllocTRES": "cpu=8,mem=8000M,node=1",
        "MaxRSS": str(200 * 1024**2),
        "TotalCPU": "01:30.000",
        "TRESUsageInMax": f"cpu=00:01:30,mem={200 * 1024**2}",
        "TRESUsageInTot": f"cpu=00:01:30,mem={200 * 1024**2}",
        "Account": "phys",
        "JobName": step_id,
    }
    return sacct_row(plain, columns)


def sacct_row(plain: SacctRow, changes: SacctRow) -> SacctRow:
    """Return a row with changes; columns for which sacct is never asked are a mistake."""
    assert set(changes) <= set(COLUMNS)
    return {**dict.fromkeys(COLUMNS, ""), **plain, **changes}


# Stands for a delimiter drawn for one call: no text contains it.
DRAWN = "|0123456789abcdef|"


def answer_of(rows: Iterable[SacctRow]) -> Answer:
    """Return sacct's answer for a window with exactly these rows."""
    rows = list(rows)
    jobs = [row for row in rows if "." not in row["JobIDRaw"]]

    def one_text(display_id: str, column: str) -> bytes:
        return "".join(f"{row[column]}\n" for row in jobs if row["JobID"] == display_id).encode()

    return Answer(
        figures=printed(FIGURES, rows),
        texts=printed((*KEY, *TEXTS), jobs, DRAWN),
        texts_delimiter=DRAWN,
        one_text=one_text,
    )


def printed(columns: Sequence[str], rows: Iterable[SacctRow], delimiter: str = DELIMITER) -> bytes:
    """Return rows as sacct prints them, without escapes."""
    lines = [delimiter.join(row[name] for name in columns) for row in rows]
    return "".join(f"{line}\n" for line in [delimiter.join(columns), *lines]).encode(errors="surrogateescape")


_FAKE_SACCT = """#!/usr/bin/python3 -IS
# Prints the recorded jobs that ran in the window asked for, with the steps that ran in it, as slurmdbd tells them.
# Fails at the call whose number is in `fail_at`.
import json, os, sys
folder = os.path.dirname(os.path.abspath(sys.argv[0]))
given = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
with open(folder + "/recorded", encoding="utf-8", errors="surrogateescape") as file:
    rows = json.load(file)
columns = given.get("format", "").split(",")
if "--helpformat" in sys.argv:
    print(*rows["columns"])
    sys.exit()
begin, end = (int(given.get(name, "uts" + else_)[3:]) for name, else_ in (("starttime", "0"), ("endtime", "9" * 10)))
if "starttime" in given and "--noheader" not in sys.argv and "--allocations" not in sys.argv:
    with open(folder + "/calls", "a+") as calls:
        calls.write("%d %d\\n" % (begin, end))
        calls.seek(0)
        count = len(calls.readlines())
    if os.path.exists(folder + "/fail_at") and count == int(open(folder + "/fail_at").read()):
        sys.exit("sacct: error: slurmdbd: Connection refused")
keep, lines = False, [] if "--noheader" in sys.argv else [columns]
for row in rows["rows"]:
    is_told = row["Start"] <= str(end) and row["End"] >= str(begin)
    if "." not in row["JobIDRaw"]:
        wanted = "jobs" not in given or {row["JobID"], row["JobIDRaw"]} & set(given["jobs"].split(","))
        keep = is_told and wanted
    if keep and is_told and not ("--allocations" in sys.argv and "." in row["JobIDRaw"]):
        lines.append([row[name] for name in columns])
text = "".join(given.get("delimiter", "|").join(line) + "\\n" for line in lines)
sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
"""


class FakeSacct:
    """A command that answers like sacct, from a recording, window by window."""

    def __init__(self, folder: Path, rows: Iterable[SacctRow]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.command = str(folder / "sacct")
        text = json.dumps({"columns": COLUMNS, "rows": list(rows)})
        (folder / "recorded").write_text(text, encoding="utf-8")
        executable(folder / "sacct", _FAKE_SACCT)

    def fail_at(self, call: int | None) -> None:
        """Count windows from now on, and fail at this one; None for never."""
        (self._folder / "calls").unlink(missing_ok=True)
        (self._folder / "fail_at").unlink(missing_ok=True)
        if call is not None:
            (self._folder / "fail_at").write_text(str(call))

    def calls(self) -> list[tuple[int, int]]:
        """Return the windows that were asked for."""
        file = self._folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(begin), int(end)) for begin, end in (line.split() for line in lines)]


def executable(file: Path, text: str) -> Path:
    """Write an executable script."""
    # A file that is being executed cannot be written to.
    file.unlink(missing_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file
