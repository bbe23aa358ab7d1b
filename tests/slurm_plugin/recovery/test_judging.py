"""Which jobs come back, which are only reported, and which are not ours: from slurmctld's record and our token."""

from typing import Any

import msgspec
import pytest

from accounting.decisions.token import find_token, format_token
from accounting.request import Grant, JobRequest
from accounting.wants import Said
from slurm_plugin.advisor.standing import CHANGED
from slurm_plugin.recovery import judging
from slurm_plugin.recovery.judging import Recovery, SiteTerms, judge
from slurm_plugin.slurm.queue import Failed, GiveBack
from tests.builders import decision
from tests.slurm_plugin.slurm.queued import waiting

ASKED = JobRequest(user="ann", num_tasks=2, cpus_per_task=8, mem_per_node_mib=8000)
GRANT = Grant(cpus_per_task=2, mem_per_node_mib=500)


def token(asked: JobRequest = ASKED, grant: Grant = GRANT, **fields: Any) -> str:
    return format_token(decision(request=asked, grant=grant, applied=True, **fields))


def failed(state: str = "OUT_OF_MEMORY", *codes: str, requeues: bool = True, **fields: Any) -> Failed:
    """Return a job that ran with what GRANT gave it, and failed."""
    job = waiting(
        7,
        uid=1000,
        state=state,
        num_tasks=2,
        cpus_per_task=2,
        mem_per_node_mib=500,
        admin_comment=f"old {token()} x",
    )
    return Failed(
        job=msgspec.structs.replace(job, **fields),
        requeues=requeues,
        exit_codes=codes or ("1:0",),
    )


def change_of(found: Recovery | str) -> GiveBack:
    assert isinstance(found, Recovery)
    assert found.requeue is not None
    return found.requeue.change


def test_a_job_comes_back_with_its_whole_request_and_a_mark() -> None:
    found = judge(failed())
    change = change_of(found)
    assert (change.cpus_per_task, change.mem_per_node_mib, change.mem_per_cpu_mib) == (8, 8000, None)
    assert (change.job_id, change.uid, change.num_tasks) == (7, 1000, 2)
    comment = change.admin_comment or ""
    marked = find_token(comment)
    assert marked is not None
    assert marked.recovered_at == 0
    assert comment.replace(";recovery=out_of_memory:0", "") == failed().job.admin_comment


@pytest.mark.parametrize(("nodes", "tasks"), [(4, 4), (3, 6), (2, 4)])
def test_a_job_that_ran_on_more_nodes_than_the_least_of_its_range_comes_back(nodes: int, tasks: int) -> None:
    """--nodes=2-4, and --nodes=1-3 with two tasks per node: slurmctld counts the tasks anew when such a job starts."""
    comment = token(grant=Grant(mem_per_node_mib=500))
    run = failed(num_nodes=nodes, num_tasks=tasks, cpus_per_task=8, admin_comment=comment)
    change = change_of(judge(run))
    assert (change.mem_per_node_mib, change.cpus_per_task) == (8000, None)


@pytest.mark.parametrize(
    ("state", "codes", "cause"),
    [
        ("OUT_OF_MEMORY", ("0:125",), "out_of_memory"),
        # An srun in the script was killed for memory, and so the script failed.
        ("FAILED", ("1:0", "0:125"), "out_of_memory"),
        ("FAILED", ("137:0",), "killed"),
        ("FAILED", ("0:9",), "killed"),
        ("TIMEOUT", ("0:0",), "timeout"),
        # A worker was killed for memory, and the others waited for it.
        ("TIMEOUT", ("0:125",), "out_of_memory"),
        ("TIMEOUT", ("0:0", "0:125"), "out_of_memory"),
    ],
)
def test_the_cause_is_what_slurmctld_says_of_the_run(state: str, codes: tuple[str, ...], cause: str) -> None:
    found = judge(failed(state, *codes))
    assert isinstance(found, Recovery)
    assert found.cause == cause


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (failed(admin_comment="jobstats"), judging.NOT_OURS),
        (failed("FAILED", "1:0"), judging.NOT_FOR_WANT),
        (failed("COMPLETED", "0:0", "0:125"), judging.NOT_FOR_WANT),
        # Submitted for a later time; requeued for another reason; held by its user.
        (failed("PENDING", "0:0", "0:125"), judging.NOT_FOR_WANT),
        (failed("PENDING", "0:0", "0:0", restarts=1), judging.NOT_FOR_WANT),
        (failed("PENDING", "0:0", "0:125", restarts=1, held=True), judging.NOT_FOR_WANT),
        (failed("CANCELLED", "0:15"), judging.NOT_FOR_WANT),
        (failed("NODE_FAIL", "0:9"), judging.NOT_FOR_WANT),
        (failed(admin_comment=token(mode="observe")), judging.NOT_CUT),
        (failed(admin_comment=token(grant=Grant())), judging.NOT_CUT),
        (failed(admin_comment=token().replace("granted=", "would=")), judging.NOT_CUT),
        # Nobody knows what it asked for.
        (failed(admin_comment="rightsizer/1;id=ab;mode=enforce;granted=mem:500"), judging.NOT_CUT),
        (failed(admin_comment=token(grant=Grant(cpus_per_task=2))), judging.NOT_WHAT_WE_CUT),
        (failed("TIMEOUT", admin_comment=token(grant=Grant(mem_per_node_mib=500))), judging.NOT_WHAT_WE_CUT),
        (
            failed("TIMEOUT", "0:125", admin_comment=token(grant=Grant(gpus_per_node=1))),
            judging.NOT_WHAT_WE_CUT,
        ),
        # The kill may be of a run before.
        (
            msgspec.structs.replace(failed("TIMEOUT", "0:125", restarts=1), busy_share=0.01),
            judging.WAS_IDLE,
        ),
        (failed(mem_per_node_mib=600), CHANGED),
        (failed("TIMEOUT", cpus_per_task=4), CHANGED),
        (failed(num_tasks=3), CHANGED),
        (failed(admin_comment=f"{token()};recovery=out_of_memory:0"), judging.BEFORE),
    ],
)
def test_a_job_that_did_not_fail_because_of_us_is_left(run: Failed, reason: str) -> None:
    assert judge(run) == reason


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (failed(requeues=False), judging.NO_REQUEUE),
        (failed(batch=False), judging.NOT_BATCH),
        (failed(het_job_id=6), judging.HET_JOB),
        (failed(priority=0), judging.HELD),
    ],
)
def test_a_job_that_failed_because_of_us_and_cannot_come_back_is_lost(run: Failed, reason: str) -> None:
    found = judge(run)
    assert isinstance(found, Recovery)
    assert (found.requeue, found.lost) == (None, reason)


@pytest.mark.parametrize(
    ("run", "cpus", "mem_mib"),
    [
        (failed(cpus_per_task=4), None, 8000),
        (failed("PENDING", "0:0", "0:125", restarts=1, min_cpus=8), None, 8000),
        (failed("TIMEOUT", mem_per_node_mib=600), 8, None),
        # By MinCPUsNode alone; and a job whose nodes have as many as its tasks there (--ntasks-per-node=2).
        (failed(min_cpus_per_node=4), None, 8000),
        (failed(min_cpus_per_node=4, other=("NtasksPerN:B:S:C=2:0:*:*",)), 8, 8000),
        (failed(min_cpus_per_node=5, other=("NtasksPerN:B:S:C=2:0:*:*",)), None, 8000),
    ],
)
def test_what_a_user_has_changed_since_stays_and_the_rest_comes_back(
    run: Failed, cpus: int | None, mem_mib: int | None
) -> None:
    found = judge(run)
    change = change_of(found)
    assert (change.cpus_per_task, change.mem_per_node_mib) == (cpus, mem_mib)
    assert isinstance(found, Recovery)
    assert judging.what_stays(found) == ""


@pytest.mark.parametrize("raised", [{"cpus_per_task": 4}, {"min_cpus_per_node": 4}])
def test_memory_by_cpu_is_not_ours_once_the_cpus_were_changed(raised: dict[str, int]) -> None:
    asked = JobRequest(user="ann", num_tasks=2, cpus_per_task=8, mem_per_cpu_mib=1000, gpus_per_node=4)
    comment = token(asked, Grant(cpus_per_task=2, mem_per_cpu_mib=500, gpus_per_node=1))
    own: dict[str, Any] = {
        "mem_per_node_mib": None,
        "mem_per_cpu_mib": 500,
        "admin_comment": comment,
        **raised,
    }
    run = msgspec.structs.replace(failed(**own), gpu_fields={"TresPerNode": "gres/gpu:1"})
    assert judge(run) == CHANGED
    said = judge(
        msgspec.structs.replace(failed("FAILED", **own), gpu_fields=run.gpu_fields), said="said_no_gpus"
    )
    change = change_of(said)
    assert (change.gpus_per_node, change.cpus_per_task, change.mem_per_cpu_mib) == (4, None, None)


def test_memory_that_came_with_fewer_cpus_counts_as_cut() -> None:
    """The request was 200 MiB for each of 16 CPUs, the grant 4 CPUs."""
    asked = JobRequest(user="ann", num_tasks=2, cpus_per_task=8, mem_per_cpu_mib=200)
    by_cpu = failed(
        mem_per_node_mib=None, mem_per_cpu_mib=200, admin_comment=token(asked, Grant(cpus_per_task=2))
    )
    assert change_of(judge(by_cpu)).cpus_per_task == 8
    stays = judge(by_cpu, SiteTerms(cpus_stay=True))
    assert isinstance(stays, Recovery)
    assert stays.lost == judging.CPUS_STAY


def test_default_memory_counts_as_cut_only_if_it_comes_with_cpus() -> None:
    """DefMemPerCPU gave each of the CPUs 1000 MiB; DefMemPerNode gives the same amount whatever the CPUs."""
    fewer = token(JobRequest(user="ann", num_tasks=2, cpus_per_task=8), Grant(cpus_per_task=2))
    by_cpu = failed(mem_per_node_mib=None, mem_per_cpu_mib=1000, admin_comment=fewer)
    assert change_of(judge(by_cpu)).cpus_per_task == 8
    assert judge(failed(mem_per_node_mib=6000, admin_comment=fewer)) == judging.NOT_WHAT_WE_CUT
    stays = judge(by_cpu, SiteTerms(cpus_stay=True))
    assert isinstance(stays, Recovery)
    assert stays.lost == judging.CPUS_STAY


def test_memory_per_cpu_comes_back_in_its_form_unless_somebody_has_changed_it() -> None:
    asked = JobRequest(user="ann", num_tasks=2, cpus_per_task=2, mem_per_cpu_mib=200)
    comment = token(asked, Grant(mem_per_cpu_mib=100))
    # Its CPUs were not cut, so it comes back where they stay too.
    for terms in (SiteTerms(), SiteTerms(cpus_stay=True)):
        run = failed(mem_per_node_mib=None, mem_per_cpu_mib=100, admin_comment=comment)
        change = change_of(judge(run, terms))
        assert (change.mem_per_cpu_mib, change.mem_per_node_mib, change.cpus_per_task) == (200, None, 2)
    assert judge(failed(mem_per_node_mib=None, mem_per_cpu_mib=150, admin_comment=comment)) == CHANGED


@pytest.mark.parametrize(
    ("asked_cpus", "grant", "cpus", "share_mib"),
    [
        (2, Grant(mem_per_cpu_mib=4000), 4, 2000),
        (None, Grant(mem_per_cpu_mib=4100), 3, 1367),
        (8, Grant(cpus_per_task=2), 8, 2000),
    ],
)
def test_a_memory_share_above_the_limit_is_recognised_as_slurm_changed_it(
    asked_cpus: int | None, grant: Grant, cpus: int, share_mib: int
) -> None:
    """MaxMemPerCPU is 2000: Slurm turns the share that we left into more CPUs, as it does with the requested share."""
    asked = JobRequest(user="ann", num_tasks=2, cpus_per_task=asked_cpus, mem_per_cpu_mib=8000)
    fields: dict[str, Any] = {
        "mem_per_node_mib": None,
        "cpus_per_task": cpus,
        "admin_comment": token(asked, grant),
    }
    change = change_of(judge(failed(**fields, mem_per_cpu_mib=share_mib)))
    assert (change.cpus_per_task, change.mem_per_cpu_mib) == (asked_cpus or 1, 8000)
    assert judge(failed(**fields, mem_per_cpu_mib=share_mib - 1)) == CHANGED


@pytest.mark.parametrize("share_mib", [None, 1000])
def test_where_cpus_stay_gpus_come_back_alone_to_a_job_short_of_gpu_memory(
    share_mib: int | None,
) -> None:
    """It requested no memory, or memory per CPU: what each CPU has does not matter to a GPU's memory."""
    asked = JobRequest(user="ann", num_tasks=2, cpus_per_task=8, gpus_per_node=4, mem_per_cpu_mib=share_mib)
    fewer = token(asked, Grant(cpus_per_task=2, gpus_per_node=2))
    run = failed("FAILED", mem_per_node_mib=None, mem_per_cpu_mib=1000, admin_comment=fewer)
    run = msgspec.structs.replace(run, gpu_fields={"TresPerNode": "gres/gpu:2"})
    change = change_of(judge(run, SiteTerms(cpus_stay=True), said="said_no_gpu_memory"))
    assert (change.gpus_per_node, change.cpus_per_task) == (4, 2 if share_mib else None)


def test_where_cpus_stay_memory_comes_back_alone() -> None:
    change = change_of(judge(failed(), SiteTerms(cpus_stay=True)))
    assert (change.cpus_per_task, change.mem_per_node_mib) == (None, 8000)
    # Memory does not help a job that ran out of time for lack of CPUs.
    late = judge(failed("TIMEOUT", "0:0"), SiteTerms(cpus_stay=True))
    assert isinstance(late, Recovery)
    assert (late.requeue, late.lost) == (None, judging.CPUS_STAY)


def by_gpu(*codes: str, grant: Grant, **fields: str) -> Failed:
    """Return a job that requested two GPUs per node and 4000 MiB for each; `fields` are what its record shows now."""
    asked = JobRequest(user="ann", num_tasks=2, gpus_per_node=2, mem_per_gpu_mib=4000)
    run = failed("FAILED", *codes, admin_comment=token(asked, grant))
    return msgspec.structs.replace(run, gpu_fields=fields)


LESS_BY_GPU = Grant(gpus_per_node=1, mem_per_gpu_mib=500)
AS_LEFT = {"TresPerNode": "gres/gpu:1,gres/nic:1", "MemPerTres": "gres/gpu:500"}


def test_gpus_and_memory_per_gpu_come_back_whichever_was_missing() -> None:
    change = change_of(judge(by_gpu("0:125", grant=LESS_BY_GPU, **AS_LEFT)))
    assert (change.gpus_per_node, change.mem_per_gpu_mib) == (2, 4000)
    assert (change.gpus_per_job, change.gpus_per_task, change.mem_per_node_mib) == (None, None, None)
    # Its script was killed too, or no step was: what an srun takes from its environment did not matter.
    both = judge(by_gpu("0:125", "0:125", grant=LESS_BY_GPU, **AS_LEFT))
    none = judge(by_gpu("1:0", grant=LESS_BY_GPU, **AS_LEFT), said="said_no_gpus")
    assert [change_of(found).mem_per_gpu_mib for found in (both, none)] == [4000, 4000]


@pytest.mark.parametrize(
    "fields",
    [
        {**AS_LEFT, "TresPerNode": "gres/gpu:2"},
        {**AS_LEFT, "MemPerTres": "gres/gpu:600"},
        # Another form of request: what the user wants now is their own.
        {"TresPerJob": "gres/gpu:1", "MemPerTres": "gres/gpu:500"},
    ],
)
def test_a_job_whose_gpus_somebody_changed_is_left(fields: dict[str, str]) -> None:
    assert judge(by_gpu("0:125", grant=LESS_BY_GPU, **fields)) == CHANGED


def test_gpus_by_node_are_not_ours_once_its_tasks_were_changed() -> None:
    run = by_gpu("0:125", grant=LESS_BY_GPU, **AS_LEFT)
    assert judge(msgspec.structs.replace(run, job=msgspec.structs.replace(run.job, num_tasks=3))) == CHANGED


def test_a_step_that_takes_exported_options_would_be_killed_again() -> None:
    found = judge(by_gpu("1:0", "0:125", grant=LESS_BY_GPU, **AS_LEFT))
    assert isinstance(found, Recovery)
    assert (found.requeue, found.lost) == (None, judging.STEP_BY_GPU)
    # `--gres` is not exported: an srun takes all the GPUs that the job then has, and the memory that comes with them.
    fewer = judge(by_gpu("1:0", "0:125", grant=Grant(gpus_per_node=1), TresPerNode="gres/gpu:1"))
    assert change_of(fewer).gpus_per_node == 2
    # Memory per node is not exported either; in this job no memory came with the GPUs.
    asked, grant = (
        msgspec.structs.replace(ASKED, gpus_per_job=4),
        msgspec.structs.replace(GRANT, gpus_per_job=2),
    )
    by_node = failed("FAILED", "1:0", "0:125", admin_comment=token(asked, grant))
    by_node = msgspec.structs.replace(by_node, gpu_fields={"TresPerJob": "gres/gpu:2"})
    assert change_of(judge(by_node)).gpus_per_job == 4


@pytest.mark.parametrize(
    ("waited_s", "points"), [(0.0, 0), (-5.0, 0), (1800.0, 500), (3600.0, 1000), (9e9, 1000)]
)
def test_a_job_that_comes_back_gets_the_age_points_that_it_loses(waited_s: float, points: int) -> None:
    run = failed(accrues_s=1e9, start_s=1e9 + waited_s)
    found = judge(run, SiteTerms(age_points=1000, most_age_s=3600.0))
    assert isinstance(found, Recovery)
    assert found.requeue is not None
    assert found.requeue.site_factor == points
    # Queued again by others, it has lost them already, and its start is in the future.
    fields: dict[str, Any] = {"restarts": 1, "min_cpus": 8, "accrues_s": 1e9, "start_s": 1e9 + waited_s}
    waits = judge(failed("PENDING", "0:0", "0:125", **fields), SiteTerms(age_points=1000, most_age_s=3600.0))
    assert isinstance(waits, Recovery)
    assert waits.requeue is not None
    assert waits.requeue.site_factor == 0
    # A limit on how many jobs grow old at a time (MaxJobsAccruePU) kept it young.
    unknown = judge(
        failed(accrues_s=0.0, eligible_s=1e9 - 1800, start_s=1e9),
        SiteTerms(age_points=1000, most_age_s=3600.0),
    )
    assert isinstance(unknown, Recovery)
    assert unknown.requeue is not None
    assert unknown.requeue.site_factor == 0
    without = judge(run)
    assert isinstance(without, Recovery)
    assert without.requeue is not None
    assert without.requeue.site_factor == 0


@pytest.mark.parametrize(
    ("said", "comes_back"),
    [("said_no_cpus", True), ("said_waits", True), ("said_no_memory", False), (None, False)],
)
def test_a_job_that_says_it_waits_for_cpus_was_not_a_server(said: Said | None, comes_back: bool) -> None:
    found = judge(msgspec.structs.replace(failed("TIMEOUT"), busy_share=0.01), said=said)
    if comes_back:
        assert change_of(found).cpus_per_task == 8
        assert isinstance(found, Recovery)
        assert found.cause == "timeout"
    else:
        assert found == judging.WAS_IDLE


def test_a_job_that_says_it_waits_for_gpus_which_somebody_changed_since_is_left() -> None:
    asked, grant = msgspec.structs.replace(ASKED, gpus_per_node=4), Grant(cpus_per_task=2, gpus_per_node=1)
    late = failed("TIMEOUT", mem_per_node_mib=8000, admin_comment=token(asked, grant))
    for gpus, found in ((1, Recovery), (2, str)):
        fields = {"TresPerNode": f"gres/gpu:{gpus}"}
        run = msgspec.structs.replace(late, busy_share=0.01, gpu_fields=fields)
        assert isinstance(judge(run, said="said_no_gpus"), found)


def test_a_job_that_says_it_had_too_few_cpus_comes_back_if_they_were_cut() -> None:
    found = judge(failed("FAILED", "1:0"), said="said_no_cpus")
    assert change_of(found).cpus_per_task == 8
    assert isinstance(found, Recovery)
    assert found.cause == "said_no_cpus"
    # Its steps waited for each other, but it failed for a reason of its own.
    assert judge(failed("FAILED", "1:0"), said="said_waits") == judging.NOT_FOR_WANT
    less_memory = failed(
        "FAILED", "1:0", cpus_per_task=8, admin_comment=token(grant=Grant(mem_per_node_mib=500))
    )
    assert judge(less_memory, said="said_no_cpus") == judging.NOT_WHAT_WE_CUT
    assert judge(failed("FAILED", admin_comment="jobstats"), said="said_no_cpus") == judging.NOT_OURS
    stays = judge(failed("FAILED", "1:0"), SiteTerms(cpus_stay=True), "said_no_cpus")
    assert isinstance(stays, Recovery)
    assert (stays.requeue, stays.lost) == (None, judging.CPUS_STAY)


@pytest.mark.parametrize(
    ("share", "comes_back"), [(None, True), (1.0, True), (0.25, True), (0.24, False), (0.0, False)]
)
def test_a_server_that_runs_until_its_limit_did_not_lack_cpus(share: float | None, comes_back: bool) -> None:
    for state, spared in (("TIMEOUT", not comes_back), ("OUT_OF_MEMORY", False)):
        found = judge(msgspec.structs.replace(failed(state), busy_share=share))
        assert (found == judging.WAS_IDLE) is spared
        assert isinstance(found, Recovery) is not spared
