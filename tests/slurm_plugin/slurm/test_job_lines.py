"""The output of scontrol, squeue and sprio of each release (tests/contract/queue), and what no user can forge in it."""

import re
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.slurm import cluster_lines, job_lines
from slurm_plugin.slurm.hostlist import expand_nodes
from slurm_plugin.slurm.nodes import parse_nodes
from slurm_plugin.slurm.scontrol_queue import problem_of
from slurm_plugin.slurm.snapshot import QueuedJob
from slurm_plugin.slurm.targets import target_of
from tests.slurm_plugin.slurm.captured import CAPTURED, RELEASES, Captured
from tests.slurm_plugin.slurm.queued import waiting


def test_a_running_job_is_read(captured: Captured) -> None:
    job = captured.job("filler")
    assert (job.state, job.cpus, job.mem_mib, job.num_nodes, job.num_tasks) == ("RUNNING", 32, 120_000, 2, 32)
    assert (job.limit_s, job.mem_per_node_mib, job.mem_per_cpu_mib, job.billing) == (3600, 60_000, None, 32)
    assert job.nodes == tuple(node.name for node in cluster_lines.parse_node_states(captured.text("nodes")))
    assert job.end_s - job.start_s == 3600
    assert not job.waits
    assert (job.user, job.uid, job.partitions, job.qos, job.batch) == ("root", 0, ("main",), "normal", True)


@pytest.mark.parametrize(("state", "ran_s"), [("RUNNING", 130.0), ("SUSPENDED", 100.0)])
def test_how_long_a_suspended_job_has_run(state: str, ran_s: float) -> None:
    text = (CAPTURED / "22.05" / "jobs.txt").read_text(encoding="utf-8")
    (block,) = [one for one in job_lines.blocks_of(text) if " JobName=filler\n" in one]
    suspended = block.replace(
        "SuspendTime=None SecsPreSuspend=0", "SuspendTime=1900000000 SecsPreSuspend=100"
    )
    found = job_lines.parse_job(suspended.replace("JobState=RUNNING", f"JobState={state}"))
    assert found is not None
    assert found.ran_s(1_900_000_030.0) == ran_s


def test_a_job_whose_nodes_power_up_has_not_run() -> None:
    """Its StartTime and EndTime look as if it ran; both are set again when its nodes are up (22.05, 24.11)."""
    text = (CAPTURED / "22.05" / "jobs.txt").read_text(encoding="utf-8")
    (block,) = [one for one in job_lines.blocks_of(text) if " JobName=filler\n" in one]
    found = job_lines.parse_job(block.replace("JobState=RUNNING", "JobState=CONFIGURING"))
    assert found is not None
    assert found.configuring
    assert not found.waits
    assert (found.nodes != (), found.ran_s(found.start_s + 20)) == (True, 0.0)


@pytest.mark.parametrize(("flag", "batch"), [(0, False), (1, True), (2, True), (5, True)])
def test_a_script_that_could_not_be_launched_at_once_is_a_batch_job(flag: int, batch: bool) -> None:
    """slurmctld counts failed launches in BatchFlag, as after a Prolog that failed (24.11, 26.05)."""
    text = (CAPTURED / "22.05" / "jobs.txt").read_text(encoding="utf-8")
    (block,) = [one for one in job_lines.blocks_of(text) if " JobName=filler\n" in one]
    found = job_lines.parse_job(block.replace("BatchFlag=1", f"BatchFlag={flag}"))
    assert found is not None
    assert found.batch is batch


@pytest.mark.parametrize(("viable", "has"), [("alpha", False), ("alpha,beta", True)])
def test_whether_other_clusters_of_a_federation_may_run_a_job(viable: str, *, has: bool) -> None:
    text = (CAPTURED / "26.05" / "jobs.txt").read_text(encoding="utf-8")
    (block,) = [one for one in job_lines.blocks_of(text) if " JobName=filler\n" in one]
    told = f"   FedOrigin=alpha FedViableSiblings={viable} FedActiveSiblings=alpha\n   NumNodes="
    found, alone = (job_lines.parse_job(one) for one in (block.replace("   NumNodes=", told), block))
    assert found is not None
    assert alone is not None
    assert (found.has_siblings, alone.has_siblings) == (has, False)


def test_how_often_a_job_was_requeued() -> None:
    for release in ("22.05", "26.05"):
        shown = (CAPTURED.parent / "failed" / release / "held.txt").read_text(encoding="utf-8")
        assert [job.restarts for job in job_lines.parse_plain(shown)] == [1]


def test_an_array_is_one_record(captured: Captured) -> None:
    arrays = {job.array_tasks: job for job in captured.listing.jobs if job.array_job_id}
    long = arrays["9-200%5"]
    assert (long.tasks, long.cpus, long.mem_mib, long.mem_per_cpu_mib) == (192, 2, 600, 300)
    assert target_of(long) == f"{long.job_id}_[9-200]"
    assert arrays["0,2,4,6"].tasks == 4
    # A task that was held has a record of its own.
    split = arrays["3"]
    assert split.held
    assert target_of(split) == f"{split.array_job_id}_3"
    assert arrays["1-2,4-6"].tasks == 5
    assert not arrays["1-2,4-6"].held


def test_components_of_a_het_job_are_distinguished(captured: Captured) -> None:
    first, second = [job for job in captured.listing.jobs if job.het_job_id]
    assert first.het_job_id == second.het_job_id == first.job_id
    assert (first.cpus_per_task, second.mem_per_node_mib) == (2, 100)
    assert [target_of(first), target_of(second)] == [f"{first.job_id}+0", str(second.job_id)]


def test_what_holds_a_job_back_is_read(captured: Captured) -> None:
    assert captured.job("held").held
    assert not captured.job("dep").held
    assert captured.job("dep").dependency.startswith("afterok:")
    assert captured.job("later").eligible_s > captured.job("later").submit_s
    assert captured.job("held").accrues_s == 0
    assert max(job.accrues_s for job in captured.listing.jobs if job.waits) > 0
    assert captured.job("resv").reservation == "talk"
    for name in ("held", "dep", "later"):
        assert captured.job(name).job_id not in captured.factors


def test_a_priority_that_was_set_directly_is_fixed(captured: Captured) -> None:
    for name in ("direct", "direct2", "bothdirect"):
        assert captured.job(name).fixed
        assert captured.job(name).site_factor == 0
        assert captured.job(name).fair_share is None
    for name in ("excl", "both", "sited"):
        assert not captured.job(name).fixed
        assert captured.job(name).fair_share == 0.0


def test_site_factors_and_comments_are_read(captured: Captured) -> None:
    job = captured.job("sited")
    assert (job.site_factor, job.admin_comment, job.cpus_per_task, job.min_cpus_per_node) == (
        -41,
        "rs1:x y",
        4,
        4,
    )
    tricky = captured.job("x JobId=1 UserId=root(0) SiteFactor=5")
    assert (tricky.comment, tricky.gpus, tricky.num_tasks, tricky.cpus) == ("hello world", 1, 2, 6)


def test_constraints_on_placement_are_read(captured: Captured) -> None:
    assert captured.job("excl").exclusive
    assert captured.job("excl").other == (f"ReqNodeList={captured.first_node}",)
    odd = captured.job("odd")
    assert [one.partition("=")[0] for one in odd.other] == ["Contiguous", "NtasksPerN:B:S:C"]
    assert (odd.gpus, odd.num_nodes, odd.exclusive) == (2, 2, False)
    assert captured.job("allmem").mem_per_node_mib == 0
    assert captured.job("inter").batch is False
    assert set(captured.job("both").partitions) == {"main", "side"}
    assert captured.job("both").other == ()


@pytest.mark.parametrize(
    ("line", "instead", "other"),
    [
        ("OverSubscribe=OK", "OverSubscribe=YES", ()),
        ("OverSubscribe=OK", "OverSubscribe=USER", ("OverSubscribe=USER",)),
        ("OverSubscribe=OK", "OverSubscribe=NO Exclusive=MCS", ("Exclusive=MCS",)),
        ("Licenses=(null)", "Licenses=a:4|b:2 LicensesAlloc=(null)", ("Licenses=a:4|b:2",)),
        ("Licenses=(null)", "Licenses=a:4|b:2 LicensesAlloc=a:4", ("Licenses=a:4",)),
        ("StdIn=/dev/null", "StdIn=/dev/null\n   Switches=1@00:05:00", ("Switches=1@00:05:00",)),
        ("StdIn=/dev/null", "StdIn=/dev/null\n   TresPerNode=gres:shard:2", ("GRES=shard",)),
        ("StdIn=/dev/null", "StdIn=/dev/null\n   TresPerNode=gres/gpu:a100:2", ()),
        ("StdIn=/dev/null", "StdIn=/dev/null\n   TresPerTask=cpu=2,gres/gpu=1,gres/fast=3", ("GRES=fast",)),
        (
            "StdIn=/dev/null",
            "StdIn=/dev/null\n   TresPerJob=gres:nvme:1,gres:gpu:2,fast",
            ("GRES=fast,nvme",),
        ),
    ],
)
def test_a_line_without_a_field_of_ours_is_a_constraint(
    line: str, instead: str, other: tuple[str, ...]
) -> None:
    text = (CAPTURED / "22.05" / "jobs.txt").read_text(encoding="utf-8")
    (block,) = [one for one in job_lines.blocks_of(text) if " JobName=filler\n" in one]
    found = job_lines.parse_job(block.replace(line, instead))
    assert found is not None
    assert found.other == other


@pytest.mark.parametrize(
    ("asked", "gpus", "types"),
    [
        ("TresPerJob=gres:gpu:6", 6, ()),
        ("TresPerNode=gres/gpu:a100:2", 4, (("a100", 4),)),
        ("TresPerNode=gres:gpu:h100", 2, (("h100", 2),)),
        ("TresPerNode=gres:gpu", 2, ()),
        ("TresPerNode=gres/gpu:1g.10gb:3,gres/gpu:1", 8, (("1g.10gb", 6),)),
        ("TresPerTask=cpu=1,gres/gpu=1", 32, ()),
        ("TresPerTask=cpu=1,gres/gpu:a100=1", 32, (("a100", 32),)),
        ("TresPerNode=gres:shard:2", 0, ()),
    ],
)
def test_gpus_are_read_where_the_site_does_not_account_for_them(
    asked: str, gpus: int, types: tuple[tuple[str, int], ...]
) -> None:
    text = (CAPTURED / "22.05" / "jobs.txt").read_text(encoding="utf-8")
    (block,) = [one for one in job_lines.blocks_of(text) if " JobName=filler\n" in one]
    found = job_lines.parse_job(block.replace("StdIn=/dev/null", f"StdIn=/dev/null\n   {asked}"))
    assert found is not None
    assert (found.gpus, found.gpu_types) == (gpus, types)
    assert found.tres_per_task == (asked.partition("=")[2] if "PerTask" in asked else "")


@pytest.mark.parametrize(
    ("fields", "cpus", "mem_mib"),
    [
        ("CpusPerTres=gres:gpu:3\n   MemPerTres=gres:gpu:700", 3, 700),
        ("CpusPerTres=gres/gpu:3", 3, 0),
        # What a partition says (DefCpuPerGPU, DefMemPerGPU).
        ("CpusPerTres=gpu:3\n   MemPerTres=gpu:2500", 3, 2500),
        ("MemPerTres=gres:gpu:a100:700,gres:gpu:h100:900", 0, 900),
        ("TresPerJob=gres:gpu:2", 0, 0),
    ],
)
def test_what_comes_with_each_gpu_is_read(fields: str, cpus: int, mem_mib: int) -> None:
    text = (CAPTURED / "22.05" / "jobs.txt").read_text(encoding="utf-8")
    (block,) = [one for one in job_lines.blocks_of(text) if " JobName=filler\n" in one]
    found = job_lines.parse_job(block.replace("StdIn=/dev/null", f"StdIn=/dev/null\n   {fields}"))
    assert found is not None
    assert (found.cpus_per_gpu, found.mem_per_gpu_mib) == (cpus, mem_mib)


@pytest.mark.parametrize(
    ("allocated", "gpus", "types"),
    [
        ("gres/gpu=3", 3, ()),
        ("gres/gpu=3,gres/gpu:a100=2", 3, (("a100", 2),)),
        # If only some types are accounted for, one GPU is of another type.
        ("gres/gpu:a100=2", 4, (("a100", 2),)),
        ("", 4, ()),
    ],
)
def test_gpu_types_are_read_for_a_job_that_requested_no_type(
    allocated: str, gpus: int, types: tuple[tuple[str, int], ...]
) -> None:
    text = (CAPTURED / "22.05" / "jobs.txt").read_text(encoding="utf-8")
    (block,) = [one for one in job_lines.blocks_of(text) if " JobName=filler\n" in one]
    listed = re.sub(r"(?<=\n   TRES=)\S+", ",".join(filter(None, ("cpu=16", allocated))), block)
    found = job_lines.parse_job(
        listed.replace("StdIn=/dev/null", "StdIn=/dev/null\n   TresPerNode=gres:gpu:2")
    )
    assert found is not None
    assert (found.gpus, found.gpu_types) == (gpus, types)
    # For pending jobs 26.05 lists the accounted type, which nobody requested.
    waits = job_lines.parse_job(
        listed.replace("JobState=RUNNING", "JobState=PENDING").replace(
            "StdIn=/dev/null", "StdIn=/dev/null\n   TresPerNode=gres:gpu:2"
        )
    )
    assert waits is not None
    assert (waits.gpus, waits.gpu_types) == (gpus, ())


@pytest.mark.parametrize(
    ("words", "gpus", "types"),
    [
        ("Gres=gpu:a100:2(S:0),gpu:1,shard:16 CfgTRES=cpu=16", 3, (("a100", 2),)),
        ("Gres=gpu:4(S:0-1) CfgTRES=cpu=16,gres/gpu=4", 4, ()),
        ("Gres=gpu:1g.10gb:14(S:0),gpu:a100:6(S:0,1) CfgTRES=cpu=16", 20, (("1g.10gb", 14), ("a100", 6))),
        ("Gres=gpu:h100:4,gpu:a100:2 CfgTRES=cpu=16,gres/gpu:a100=2", 6, (("h100", 4), ("a100", 2))),
    ],
)
def test_the_gpus_of_a_node_are_read(words: str, gpus: int, types: tuple[tuple[str, int], ...]) -> None:
    line = f"NodeName=n1 CPUTot=16 RealMemory=64000 State=IDLE {words}"
    (found,) = cluster_lines.parse_node_states(line)
    assert (found.gpus, found.gpu_types, found.features) == (gpus, types, ())
    assert parse_nodes(line).nodes[0].gpus == gpus


@pytest.mark.parametrize(("said", "features"), [("(null)", ()), ("a100,ib", ("a100", "ib"))])
def test_the_features_of_a_node_are_read(said: str, features: tuple[str, ...]) -> None:
    line = f"NodeName=n1 AvailableFeatures={said} ActiveFeatures=ib Gres=(null) CPUTot=16 State=IDLE"
    (found,) = cluster_lines.parse_node_states(line)
    assert found.features == features


def test_a_deadline_and_the_minimum_time_limit_are_read(captured: Captured) -> None:
    odd = captured.job("odd")
    assert odd.deadline_s - odd.submit_s == 2 * 86_400
    assert odd.least_limit_s is None
    assert captured.job("filler").deadline_s == 0
    (shown,) = [one for one in captured.text("jobs").split("\n\n") if "JobName=odd\n" in one]
    content = job_lines.parse_job(shown.replace("TimeMin=N/A", "TimeMin=1-00:02:00"))
    assert content is not None
    assert content.least_limit_s == 86_520


def test_ended_jobs_are_left_out(captured: Captured) -> None:
    text = captured.text("jobs")
    assert {job.state for job in captured.listing.jobs} <= {"PENDING", "RUNNING"}
    assert {job.job_id for job in captured.listing.jobs} | set(captured.listing.doubtful) >= set(
        captured.owners
    )
    assert "JobState=CANCELLED" not in text or len(captured.listing.jobs) < text.count("JobState=")


def test_a_name_that_contains_records_affects_only_its_own_job(captured: Captured) -> None:
    (evil,) = [job for job in captured.listing.doubtful if job != 1]
    assert not any(job.name == "foo" or job.name.startswith("evil") for job in captured.listing.jobs)
    assert not any(job.name == "foo" or job.name.startswith("evil") for job in captured.alone().jobs)
    job = job_lines.salvage(captured.text(f"alone/{evil}"), evil, captured.owners[evil])
    assert job is not None
    assert (job.job_id, job.fixed, job.batch, job.cpus, job.mem_mib, job.uid) == (
        evil,
        True,
        False,
        3,
        4000,
        0,
    )


TEXTS = ("JobName=", "Comment=", "WorkDir=", "Command=", "AdminComment=", "StdOut=")
LINES = st.sampled_from(
    [
        "\n", "\n   ", "\n\n", "x", " ", "JobId=1 ", "JobId=999 JobName=y",
        "UserId=bob(7) GroupId=bob(7) MCS_label=N/A",
        "Priority=9 Nice=0 Account=a QOS=b", "JobState=RUNNING Reason=None Dependency=(null)", "Comment=a",
        "NodeList=n[1-9]", "Command=x", "WorkDir=/", "\x1f", "|", "SiteFactor=3", "TRES=cpu=999",
    ]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(where=st.sampled_from(TEXTS), parts=st.lists(LINES, max_size=12), copied=st.booleans())
def test_no_text_forges_another_job(where: str, parts: list[str], copied: bool) -> None:
    """A text of the job `sited` contains anything, and whole records: no other job changes, and no owner."""
    captured = Captured(RELEASES[0])
    blocks = captured.text("jobs").split("\n\nJobId=")
    at = next(index for index, block in enumerate(blocks) if "JobName=sited" in block)
    victim = next(block for block in blocks if "JobName=direct\n" in block)
    own = int(blocks[at].partition(" ")[0])
    evil = "".join(parts) + (f"\n\nJobId={victim}" if copied else "")
    lines = blocks[at].split("\n   ")
    blocks[at] = "\n   ".join(
        f"{line}{evil}" if line.startswith(where) or where in line.partition(" ")[2] else line
        for line in lines
    )
    listing = job_lines.parse_jobs("\n\nJobId=".join(blocks), captured.owners)
    before = {job.job_id: job for job in captured.listing.jobs}
    for job in listing.jobs:
        assert job.uid == captured.owners[job.job_id]
        assert job.job_id == own or job == before[job.job_id]
    (block,) = [block for block in blocks if block.startswith(f"{own} ")]
    salvaged = job_lines.salvage(f"JobId={block}", own, 4321)
    assert salvaged is None or (salvaged.job_id, salvaged.uid, salvaged.fixed) == (own, 4321, True)
    missing = before.keys() - {job.job_id for job in listing.jobs}
    assert missing <= set(listing.doubtful)


def test_the_nodes_of_ended_jobs_are_not_kept_in_memory() -> None:
    tracemalloc.start()
    try:
        assert all(len(expand_nodes(f"n[{first}-{first + 999}]")) == 1000 for first in range(1000, 1100))
        # A hundred jobs with a thousand nodes each: 6 MB of names.
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("job", "target"),
    [
        (waiting(7), "7"),
        (waiting(7, array_job_id=7, array_tasks="1-5%2"), "7_[1-5]"),
        (waiting(7, array_job_id=7, array_tasks="0-12:4,15%2"), "7_[0,4,8,12,15]"),
        (waiting(7, array_job_id=7, array_tasks="0-4000000000:2"), "7_[0-4000000000:2]"),
        (waiting(7, array_job_id=7, array_tasks="5"), "7_5"),
        (waiting(9, array_job_id=7, array_tasks="3"), "7_3"),
        (waiting(7, het_job_id=7), "7+0"),
        (waiting(8, het_job_id=7), "8"),
    ],
)
def test_the_name_by_which_a_job_is_changed(job: QueuedJob, target: str) -> None:
    assert target_of(job) == target


@pytest.mark.parametrize(
    ("complaint", "is_array", "problem"),
    [
        ("", False, ""),
        ("Invalid job id specified for job 99999", False, "gone"),
        ("Access/permission denied for job 3", False, "Access/permission denied for job 3"),
        ("7_1: Job is no longer pending execution; 7_2: Job/step already completing or completed", True, ""),
        ("7_1: Job is no longer pending execution; 7_2: Denied", True, "7_2: Denied"),
        ("7_1-5: Invalid job id specified", True, ""),
        ("Invalid job id specified for job 7_[0-9:9]", True, "Invalid job id specified for job 7_[0-9:9]"),
        ("Job is no longer pending execution", False, "Job is no longer pending execution"),
    ],
)  # fmt: skip
def test_complaints_are_put_into_words(complaint: str, is_array: bool, problem: str) -> None:
    assert problem_of(complaint, is_array=is_array) == problem
