"""Rows, attempts and submissions with ordinary values, so that a test writes down only what it is about."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from accounting.decisions import Decision
from accounting.labels import label_attempt
from accounting.records import Attempt, GpuUse, JobRow, Step
from accounting.request import JobRequest
from accounting.sacct import COLUMNS, DELIMITER
from accounting.token import format_token
from models.families import script_signature
from slurm_plugin.policy.submission import Submission

DAY_S = 86400
T0 = 1_700_000_000
SCRIPT = "#!/bin/sh\n#SBATCH -c 8\nsrun ./fit --all\n"

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
    """An ended job of 100 s that asked 8 CPUs and 8000 MiB."""
    return msgspec.structs.replace(_ROW, **changes)


def step(**changes: Any) -> Step:
    """Its batch step: 200 MiB, nine tenths of a core."""
    return msgspec.structs.replace(_STEP, **changes)


def gpu_use(**changes: Any) -> GpuUse:
    """One GPU that was busy while the job ran."""
    return msgspec.structs.replace(_GPU_USE, **changes)


def request(**changes: Any) -> JobRequest:
    """A request of eight CPUs."""
    return msgspec.structs.replace(_REQUEST, **changes)


def submission(**changes: Any) -> Submission:
    """A batch submission that asks nothing."""
    return msgspec.structs.replace(_SUBMISSION, **changes)


def decision(**changes: Any) -> Decision:
    """A decision that changed nothing."""
    plain = Decision(id="d1", time_s=T0, mode="enforce", applied=False, reason="fits", request=request())
    return msgspec.structs.replace(plain, **changes)


def attempt(
    *, mem_mib: float = 200.0, cores: float = 0.9, gpus: int | None = None, token: bool = True, **changes: Any
) -> Attempt:
    """An attempt of `elapsed_s` (100) that used so much of each; `changes` are those of its job row.

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
    uses = [gpu_use(job_id=row.job_id, gpu=n, first_s=row.start_s, last_s=row.end_s) for n in count]
    return label_attempt(row, [batch], uses)


def past(jobs: int = 90, *, families: Sequence[str] = ("fit", "sim", "plot"), seed: int = 1) -> list[Attempt]:
    """A mixed past: one job every 1000 s, the families in turn, each around its own need of memory and cores."""
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
            )
        )
    return made


def sacct_line(**columns: str) -> str:
    """One line of sacct in the order of COLUMNS; columns that are not given are empty."""
    assert set(columns) <= set(COLUMNS)
    return DELIMITER.join(columns.get(name, "") for name in COLUMNS)


def job_line(job_id: int = 1, start_s: int = T0 + 10, seconds: int = 100, **columns: str) -> str:
    """The line of an ended job that asked 8 CPUs and 8000 MiB."""
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
    return sacct_line(**{**plain, **columns})


def step_line(
    job_id: int = 1, step_id: str = "batch", start_s: int = T0 + 10, seconds: int = 100, **columns: str
) -> str:
    """The line of a step that used 200 MiB and 90 s of CPU."""
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
    return sacct_line(**{**plain, **columns})


HEADING = DELIMITER.join(COLUMNS)

_FAKE_SACCT = """#!/bin/sh
# Prints the recorded jobs that ran in the window asked for; fails at the call whose number is in `fail_at`.
cd "$(dirname "$0")" || exit 9
for argument in "$@"; do
    case $argument in
        --starttime=uts*) begin=${argument#--starttime=uts} ;;
        --endtime=uts*) end=${argument#--endtime=uts} ;;
    esac
done
echo "$begin $end" >> calls
if [ -f fail_at ] && [ "$(wc -l < calls)" -eq "$(cat fail_at)" ]; then
    echo 'sacct: error: slurmdbd: Connection refused' >&2
    exit 1
fi
awk -F '\\037' -v begin="$begin" -v end="$end" \\
    'NR == 1 { print; next } NF > 9 && $1 !~ /[.]/ { keep = ($9 <= end && $10 >= begin) } keep' recorded
"""


class FakeSacct:
    """A command that answers like sacct from a recording, window by window."""

    def __init__(self, folder: Path, lines: Iterable[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.command = str(folder / "sacct")
        (folder / "recorded").write_text("\n".join([HEADING, *lines]) + "\n", encoding="utf-8")
        executable(folder / "sacct", _FAKE_SACCT)

    def fail_at(self, call: int | None) -> None:
        """Count calls anew and fail at that one; None for never."""
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
    """Write a script that can be run."""
    file.write_text(text)
    file.chmod(0o755)
    return file
