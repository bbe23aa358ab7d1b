"""What Slurm's commands print of the queue and the cluster, damaged; and what users put into the texts in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from accounting.errors import SlurmError
from slurm_plugin.policy.facts import MemoryTerms
from slurm_plugin.slurm import account_lines, associations, cluster_lines, job_lines, limits, nodes, requeuing
from slurm_plugin.slurm.accounted_runs import (
    EARLIER_RUNS,
    HOW_BUSY,
    LAST_STEPS,
    STEPS,
    STOPPED_STEPS,
    lines_by_job,
)
from slurm_plugin.slurm.hostlist import expand_nodes
from slurm_plugin.slurm.queue import Failed
from tests.fuzz.corpus import CONTRACT, captured, found, text_of
from tests.fuzz.target import Target

# In the record of the forger, a text of theirs stands wherever Slurm prints one.
RECORD = (CONTRACT / "queue" / "26.05" / "jobs.txt").read_text(encoding="utf-8").split("\n\n", 1)[0]
HONEST, FORGER = 12, 4_000_000
OWNERS = {HONEST: 0, FORGER: 1001}
(ALONE,) = job_lines.parse_jobs(f"{RECORD}\n\n", OWNERS).jobs
CUT = "\x1f"
RUN = Failed(job=msgspec.structs.replace(ALONE, job_id=1), requeues=True, exit_codes=("1:0",))

READERS: tuple[Callable[[str], object], ...] = (
    job_lines.parse_owners,
    job_lines.parse_failed_jobs,
    job_lines.parse_given_up,
    job_lines.parse_plain,
    lambda text: job_lines.parse_jobs(text, {12: 0, 13: 0, 14: 0, 1: 0}),
    lambda text: job_lines.salvage(text, 12, 0),
    lambda text: requeuing.parse_failed(text, 1),
    lambda text: [
        question.answered(RUN, lines_by_job(text).get(RUN.job.job_id, []))
        for question in (EARLIER_RUNS, HOW_BUSY, LAST_STEPS, STEPS, STOPPED_STEPS)
    ],
    cluster_lines.parse_node_states,
    cluster_lines.parse_partition_states,
    cluster_lines.parse_reservations,
    cluster_lines.parse_terms,
    cluster_lines.parse_cluster_name,
    cluster_lines.parse_factors,
    account_lines.parse_qos_states,
    nodes.parse_nodes,
    limits.parse_qos,
    limits.parse_config_terms,
    lambda text: limits.parse_partitions(text, MemoryTerms(), None),
    limits.parse_node_terms,
    associations.parse_associations,
)


def check_damaged(data: bytes) -> None:
    """Run every reader on every output: what cannot be read is left out, or reported as SlurmError."""
    text = text_of(data)
    for reader in READERS:
        try:
            reader(text)
        except SlurmError:
            continue
    if len(text) < 200:
        expand_nodes(text)


def check_forged(data: bytes) -> None:
    """Check that whatever users write into their own jobs' texts, the queue is read and other jobs stay as they are."""
    name, command, line, folder, comment = (*text_of(data).split(CUT), "", "", "", "", "")[:5]
    own = (
        RECORD.replace("JobId=12 JobName=filler", f"JobId={FORGER} JobName={name}")
        .replace("UserId=root(0)", "UserId=mallory(1001)")
        .replace("Command=(null)", f"Command={command}")
        .replace("SubmitLine=sbatch", f"SubmitLine={line}")
        .replace("WorkDir=/", f"WorkDir={folder}")
        + f"\n   Comment={comment} "
    )
    for text in (f"{RECORD}\n\n{own}\n\n", f"{own}\n\n{RECORD}\n\n"):
        listing = job_lines.parse_jobs(text, OWNERS)
        known = {job.job_id: job for job in listing.jobs}
        assert set(known) <= set(OWNERS)
        seen = known | {job.job_id: job for job in listing.unsure}
        assert HONEST in seen
        assert HONEST in listing.doubtful or known[HONEST] == ALONE
        assert all(job.uid == OWNERS[job.job_id] for job in seen.values())
        assert not any(job.batch or job.admin_comment for job in listing.unsure)
    job_lines.parse_plain(own)
    job_lines.salvage(own, FORGER, 1001)
    requeuing.parse_failed(own, FORGER)


def damaged_seeds() -> Iterator[bytes]:
    """Yield what each release printed, record by record."""
    for file in captured("queue/*/*.txt"):
        for record in file.split(b"\n\n")[:12]:
            yield record[:4000] + b"\n\n"
    yield from captured("queue/*/alone/*.txt")
    yield from captured("failed/*/*.txt")
    yield b"normal|cpu=4,gres/gpu=1,mem=10G\nlow|\n"
    yield b"phys|phys|main|normal\nphys|math||low\n"
    yield b"gpu[01-03,7-9],login,rack[1-2]n[08-11]"
    yield from found("queue")


def forged_seeds() -> Iterator[bytes]:
    """Yield texts that look like Slurm's own lines and records."""
    own = RECORD.replace("JobId=12", "JobId=77")
    yield b"fit\x1f/home/u/fit.sh\x1fsbatch fit.sh\x1f/home/u\x1fa comment"
    yield f"x\n\n{RECORD}".encode()
    yield f"x\n\n{own}\x1f{own}".encode()
    yield f"x\n   UserId=root(0) GroupId=root(0)\x1f(null)\n\n{own}".encode()
    yield b"fit\x1fx\n   AdminComment=rightsizer/1;id=a\x1f\x1f/\n   AdminComment=rightsizer/1;id=b\x1fa"
    yield f"x\x1f\x1f\x1f\x1fx\n\n{RECORD}".encode()
    yield b"x\n\nJobId=12 JobName=y\x1f\x1f\x1f\x1f\n\nJobId=4000000 JobName=z"
    yield from found("forged")


WORDS = tuple(
    word.encode()
    for word in (
        *(f"\n   {head}=" for head in job_lines.ALWAYS),
        "\n\nJobId=12 ", "\n\nJobId=77 ", "JobName=", "ArrayJobId=5 ArrayTaskId=1-9:2%3 ", "UserId=root(0) GroupId=",
        "NodeList=a[1-999999][1-999999]", "(null)", "N/A", "UNLIMITED", "JobState=RUNNING ", "EligibleTime=", "QOS=",
        "NumCPUs=", "NumTasks=", "CPUs/Task=", "EndTime=", "TimeLimit=", "Account=", "Dependency=", "BatchFlag=1 ",
        "AllocTRES=cpu=1,mem=8388608E", CUT, "|", "\u0663", "\u00b2", "NodeName=", "PartitionName=", "ReservationName=",
        "PriorityTier=x", "State=IDLE+DRAIN", "ThreadsPerCore=2",
    )
)  # fmt: skip
TARGETS = (
    Target("queue", check_damaged, damaged_seeds, share=25, words=WORDS),
    Target("forged", check_forged, forged_seeds, share=25, words=WORDS),
)
