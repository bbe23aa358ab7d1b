"""What ingest makes of real jobs on every installed release, compared with what the tests made these jobs do.

The jobs themselves wrote down how much memory they held, when, and on how many CPUs (worker.py). What else Slurm
recorded is read from slurmdbd's own database, not from sacct.
"""

from __future__ import annotations

import pwd
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from accounting.records import Attempt
from accounting.store import schema
from tests.cluster.accounting import workload
from tests.cluster.accounting.facts import Fact, by_node, held_mib, largest_task_mib, read_facts
from tests.cluster.accounting.forgery import ADMIN_COMMENT, NO_SUCH_JOB, ODD_NAMES
from tests.cluster.accounting.played import Played

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# In addition to its workers a job has a shell, and an srun for each step.
OTHERS_MIB = 16.0
# jobacct_gather/linux adds up resident pages, so that pages shared by processes, Python's and srun's own, count for
# each: about 6 to 9 MiB for a worker, which itself counts only what is its own.
SHARED_MIB = 12.0
# What a worker counts for itself and what the kernel charges its cgroup with differ by some pages.
ROUNDING_MIB = 1.0
# Before 23.11.1, jobacct_gather/cgroup looked for a task on any node but the first under another number than
# task/cgroup had given it: most of the memory of such steps is not counted.
COUNTS_ALL_TASKS = (23, 11)
# From this release on jobacct_gather/cgroup asks for the kernel's own peak at the end; all others sample once a second.
ASKS_THE_KERNEL = (24, 11)
STATES = {
    3: "COMPLETED",
    4: "CANCELLED",
    5: "FAILED",
    6: "TIMEOUT",
    7: "NODE_FAIL",
    11: "OUT_OF_MEMORY",
    1024: "REQUEUED",
}
MEASURED = (
    "in-turn", "at-once", "at-once-in-turn", "in-batch", "tasks", "exit-code", "cancelled", "victim",
    *workload.TIMED_OUT,
)  # fmt: skip
OVER_NODES = ("two-nodes", "two-nodes-four-tasks")


def counts_processes(attempt: Attempt) -> bool:
    """Whether Slurm added up processes instead of reading what a cgroup was charged with."""
    return attempt.gather.startswith("jobacct_gather/linux")


def others_mib(attempt: Attempt, facts: Sequence[Fact]) -> float:
    """Return how much more memory than its workers' a job may have held, as Slurm counts it, in MiB."""
    return OTHERS_MIB + SHARED_MIB * len(facts) * counts_processes(attempt)


def is_near(measured_mib: float | None, true_mib: float, more_mib: float) -> bool:
    """Whether a measured peak is that of the workers, plus what else such a job holds."""
    return measured_mib is not None and true_mib - ROUNDING_MIB <= measured_mib <= true_mib + more_mib


def assert_peak(attempt: Attempt, facts: Sequence[Fact]) -> None:
    """Check an attempt's peaks, of the job and of its fullest node, against what its workers held."""
    use, true_mib, more = attempt.use, held_mib(facts), others_mib(attempt, facts)
    assert true_mib > 0
    assert is_near(use.peak_mem_mib, true_mib, more), (use.peak_mem_mib, true_mib, more)
    # Slurm gives the largest task and the sum, not the nodes: every other node may have just one task.
    node_mib = max(held_mib(node) for node in by_node(facts))
    most = (1 + sum(len(node) - 1 for node in by_node(facts))) * largest_task_mib(facts)
    assert use.peak_node_mib is not None
    assert node_mib - ROUNDING_MIB <= use.peak_node_mib <= max(node_mib, most) + more
    assert use.peak_node_mib <= (use.peak_mem_mib or 0.0)


# ---- every attempt, as Slurm has it


def test_every_attempt_is_there_once_and_none_that_no_job_made(played: Played) -> None:
    rows = played.site.database("SELECT * FROM {jobs}")
    recorded = Counter((row["id_job"], row["time_submit"], row["time_start"]) for row in rows)
    stored = Counter((one.row.job_id, one.row.submit_s, one.row.start_s) for one in played.attempts)
    assert not stored - recorded
    # sacct shows in no window what was never eligible, such as tasks that waited for others of their array.
    eligible = Counter(
        (row["id_job"], row["time_submit"], row["time_start"]) for row in rows if was_eligible(row)
    )
    assert not eligible - stored
    assert len(played.site.jobs) < len(stored)
    assert played.site.rows(schema.quarantine) == []


def was_eligible(row: dict[str, Any]) -> bool:
    """Whether an attempt could have started before it ended; if not, slurmdbd writes a time far in the future."""
    return bool(row["time_eligible"] <= row["time_end"])


def test_every_column_is_as_slurm_stored_it(played: Played) -> None:
    stored = {(one.row.job_id, one.row.submit_s): one.row for one in played.attempts}
    for recorded in filter(was_eligible, played.site.database("SELECT * FROM {jobs}")):
        row = stored[recorded["id_job"], recorded["time_submit"]]
        assert (row.job_name, row.comment, row.admin_comment) == tuple(
            played.site.as_printed(recorded[name] or "")
            for name in ("job_name", "derived_es", "admin_comment")
        )
        assert (row.user, row.partition) == (pwd.getpwuid(recorded["id_user"]).pw_name, recorded["partition"])
        assert row.state.split()[0] == STATES[recorded["state"] & 1279]
        assert (row.start_s, row.end_s) == (recorded["time_start"], recorded["time_end"])
        assert row.elapsed_s == (row.end_s - row.start_s if row.start_s else 0)
        assert row.limit_s == recorded["timelimit"] * 60
        assert (row.req_cpus, row.nodes) == (recorded["cpus_req"], recorded["nodes_alloc"] or row.nodes)


def test_every_step_belongs_to_its_attempt(played: Played) -> None:
    query = """SELECT id_job, time_submit, step.id_step, step.time_start AS step_start, step.state AS step_state
               FROM {jobs} AS job JOIN {steps} AS step ON job.job_db_inx = step.job_db_inx"""
    names = {-5: "batch", -4: "extern"}
    recorded = Counter(
        (row["id_job"], row["time_submit"], names.get(row["id_step"], str(row["id_step"])), row["step_start"])
        for row in played.site.database(query)
    )
    steps = played.site.rows(schema.steps)
    stored = Counter((row["job_id"], row["submit_s"], row["step_id"], row["start_s"]) for row in steps)
    assert stored == recorded


def test_every_attempt_names_the_release_and_the_gather_plugin(played: Played) -> None:
    year, month = played.site.version
    assert {one.slurm_release for one in played.attempts} == {f"{year}.{month:02d}"}
    configured = dict(
        line.partition("=")[::2] for line in played.site.sandbox.layout.slurm_conf.read_text().splitlines()
    )
    plugin = configured["JobAcctGatherType"]
    assert all(one.gather.startswith(plugin) for one in played.attempts)


# ---- use


@pytest.mark.parametrize("name", MEASURED)
def test_the_peak_is_what_the_job_held(played: Played, name: str) -> None:
    attempt = played.only(name)
    assert_peak(attempt, played.site.facts(name))
    assert attempt.use.memory_quality in ("exact", "sampled")


@pytest.mark.parametrize("name", OVER_NODES)
def test_the_peak_over_nodes_is_what_all_tasks_held(played: Played, name: str) -> None:
    attempt, facts = played.only(name), played.site.facts(name)
    assert len(list(by_node(facts))) == attempt.row.nodes == 2
    assert_peak_of_all_tasks(played, attempt, facts)


@pytest.mark.parametrize("component", [0, 1])
def test_components_have_rows_and_use_of_their_own(played: Played, component: int) -> None:
    attempt = played.only(("het", "het-1")[component])
    assert attempt.row.display_id == f"{played.site.jobs['het']}+{component}"
    facts = [fact for fact in played.site.facts("het") if (fact.task > 0) == bool(component)]
    assert len(facts) == component + 1
    if component == 0:
        assert_peak(attempt, facts)
    else:
        assert_peak_of_all_tasks(played, attempt, facts)


def assert_peak_of_all_tasks(played: Played, attempt: Attempt, facts: Sequence[Fact]) -> None:
    """Check a peak of tasks on several nodes or of a second component: a lower bound if Slurm lost some tasks."""
    if played.site.version >= COUNTS_ALL_TASKS or counts_processes(attempt):
        assert_peak(attempt, facts)
        assert attempt.use.memory_quality in ("exact", "sampled")
        return
    assert attempt.use.memory_quality in ("censored", "absent")
    assert (attempt.use.peak_mem_mib or 0.0) <= held_mib(facts) + OTHERS_MIB


@pytest.mark.parametrize("index", range(4))
def test_tasks_of_an_array_have_rows_and_use_of_their_own(played: Played, index: int) -> None:
    attempt = played.of("array")[index]
    assert attempt.row.display_id == f"{played.site.jobs['array']}_{index}"
    assert_peak(attempt, [fact for fact in all_facts(played) if fact.job == attempt.row.job_id])
    failed = index == workload.ARRAY_FAILS
    assert (attempt.row.state, attempt.use.outcome) == (
        ("FAILED", "cut_short") if failed else ("COMPLETED", "completed")
    )


def all_facts(played: Played) -> list[Fact]:
    """Return what the workers of all tasks of the array wrote: each task has its own job id."""
    jobs = [one.row.job_id for one in played.of("array")]
    return [fact for job in jobs for fact in read_facts(played.site.facts_folder, job)]


def test_the_started_task_of_an_array_that_was_cancelled_has_its_row(played: Played) -> None:
    started = played.of("array-cancelled")[0]
    assert started.row.display_id == f"{played.site.jobs['array-cancelled']}_0"
    assert started.row.start_s > 0
    assert (started.use.outcome, started.use.wall_quality) == ("cut_short", "censored")


def test_tasks_of_an_array_that_never_started_have_one_row(played: Played) -> None:
    waiting = played.only("array-never-started")
    assert waiting.row.display_id == f"{played.site.jobs['array-never-started']}_[0-2]"
    assert (waiting.row.start_s, waiting.row.job_name) == (0, "never\nstarted")
    assert (waiting.use.peak_mem_mib, waiting.use.cores, waiting.use.wall_quality) == (None, None, "absent")


@pytest.mark.parametrize("name", ["sub-second", "sub-second-step"])
def test_a_use_too_short_to_be_sampled_is_never_taken_for_nothing(played: Played, name: str) -> None:
    attempt, facts = played.only(name), played.site.facts(name)
    use, true_mib, more = attempt.use, held_mib(facts), others_mib(attempt, facts)
    if played.site.version < ASKS_THE_KERNEL or counts_processes(attempt):
        # A sample may have been taken before the worker had grown; on a busy machine Slurm samples such a job twice.
        assert use.memory_quality in ("short", "absent", "sampled")
        assert (use.peak_mem_mib or 0.0) <= true_mib + more
    elif use.peak_mem_mib is None:
        assert use.memory_quality in ("short", "absent")
    else:
        assert is_near(use.peak_mem_mib, true_mib, more)
    assert use.outcome == "completed"


def test_busy_cores_are_those_that_the_job_kept_busy(played: Played) -> None:
    attempt, [fact] = played.only("busy"), played.site.facts("busy")
    assert attempt.use.cores is not None
    # Besides its worker, which burns four seconds, the shell and srun need some, and more on a slow machine.
    assert fact.cpu_s - 0.5 <= attempt.use.cores * attempt.row.elapsed_s <= fact.cpu_s + 1.5
    assert attempt.use.cores_quality == "exact"


# ---- ends


@pytest.mark.parametrize("name", ["oom-quick", "oom-slow", "oom-step"])
def test_the_peak_of_a_job_killed_for_memory_is_a_lower_bound_at_its_limit(played: Played, name: str) -> None:
    enforces_memory(played)
    use = played.only(name).use
    assert (use.outcome, use.memory_quality) == ("out_of_memory", "censored")
    assert use.peak_mem_mib is not None
    assert 100 <= use.peak_mem_mib <= 100 + OTHERS_MIB
    assert use.wall_quality == "censored"


def test_the_peak_of_a_job_that_survives_a_step_killed_for_memory_is_not_taken_for_its_need(
    played: Played,
) -> None:
    enforces_memory(played)
    attempt = played.only("oom-step-survived")
    assert (attempt.row.state, attempt.use.outcome) == ("COMPLETED", "completed")
    assert attempt.use.memory_quality in ("censored", "short", "absent")


def enforces_memory(played: Played) -> None:
    """Skip the test if memory is not limited."""
    if not played.site.sandbox.manifest.enforcement.memory:
        pytest.skip(f"memory is not limited here: {played.site.sandbox.manifest.enforcement.reason}")


@pytest.mark.parametrize("name", workload.TIMED_OUT)
def test_the_run_time_of_a_job_that_timed_out_is_a_lower_bound(played: Played, name: str) -> None:
    attempt = played.only(name)
    assert (attempt.use.outcome, attempt.use.wall_quality) == ("timeout", "censored")
    [fact] = played.site.facts(name)
    assert not fact.ended
    assert attempt.use.wall_s == attempt.row.end_s - attempt.row.start_s
    if name == "timeout":
        assert attempt.row.limit_s == 60
        assert attempt.use.wall_s >= 60
    else:
        # An administrator ended it before its limit (EndTime), which Slurm then lowers to whole minutes.
        assert attempt.use.wall_s < 60 * workload.FAR_MIN
        assert attempt.row.limit_s in range(60, 60 * workload.FAR_MIN + 1, 60)


@pytest.mark.parametrize("name", workload.REQUEUED)
def test_each_attempt_of_a_requeued_job_has_its_own_use(played: Played, name: str) -> None:
    first, second = played.of(name)
    assert first.row.submit_s < second.row.submit_s
    assert first.row.end_s <= second.row.start_s
    assert (first.use.outcome, second.use.outcome) == ("cut_short", "completed")
    assert second.use.wall_quality == "exact"
    assert_peak(second, played.site.facts(name, attempt=1))
    if name == "node-fail":
        # What its node had measured was lost with the node.
        assert first.row.state == "NODE_FAIL"
        assert first.use.peak_mem_mib is None
        assert first.use.memory_quality in ("short", "absent")
    else:
        assert first.row.state == "REQUEUED"
        assert_peak(first, played.site.facts(name, attempt=0))
        assert first.use.wall_quality == "censored"


@pytest.mark.parametrize("name", ["exit-code", "killed-by-itself", "cancelled"])
def test_a_job_that_failed_or_was_cancelled_was_cut_short(played: Played, name: str) -> None:
    attempt = played.only(name)
    assert (attempt.use.outcome, attempt.use.wall_quality) == ("cut_short", "censored")
    assert attempt.row.state.split()[0] == ("CANCELLED" if name == "cancelled" else "FAILED")


def test_a_job_cancelled_while_pending_never_started_and_used_nothing(played: Played) -> None:
    attempt = played.only("cancelled-pending")
    assert (attempt.row.start_s, attempt.row.elapsed_s) == (0, 0)
    assert attempt.use.outcome == "cut_short"
    assert (attempt.use.peak_mem_mib, attempt.use.cores) == (None, None)
    assert attempt.use.memory_quality in ("short", "absent")
    assert attempt.use.wall_quality == "absent"


# ---- texts


@pytest.mark.parametrize("number", range(len(ODD_NAMES)), ids=lambda number: repr(ODD_NAMES[number][:24]))
def test_odd_texts_come_out_as_slurm_stored_them(played: Played, number: int) -> None:
    named, commented = played.only(f"odd-{number}"), played.only(f"odd-comment-{number}")
    plain = ODD_NAMES[number].isascii() and b'"' not in ODD_NAMES[number]
    if plain:  # for other texts Slurm itself stores something else
        text = ODD_NAMES[number].decode()
        assert named.row.job_name == text[:255]
        assert commented.row.comment == text
    for attempt in (named, commented):
        assert (attempt.row.state, attempt.decision_id) == ("COMPLETED", "")


def test_a_step_cannot_forge_rows_by_its_name(played: Played) -> None:
    attempt = played.only("odd-step")
    assert attempt.row.state == "COMPLETED"
    steps = [row for row in played.site.rows(schema.steps) if row["job_id"] == attempt.row.job_id]
    assert {row["step_id"] for row in steps} - {"extern"} == {"batch", "0"}


def test_forgers_do_not_change_the_attempt_of_their_victim(played: Played) -> None:
    victim = played.only("victim")
    assert (victim.row.job_name, victim.row.comment, victim.row.admin_comment) == (
        "victim",
        "",
        ADMIN_COMMENT,
    )
    assert victim.decision_id == "f0f0f0f0f0f0"
    steps = [row for row in played.site.rows(schema.steps) if row["job_id"] == victim.row.job_id]
    assert {row["step_id"] for row in steps} - {"extern"} == {"batch", "0"}


def test_forgers_gain_nothing(played: Played) -> None:
    forgers = [name for name in played.site.jobs if name.startswith("forged-")]
    assert len(forgers) > 20
    for name in forgers:
        attempt = played.only(name)
        assert (attempt.row.admin_comment, attempt.decision_id) == ("", "")
        assert (attempt.row.user, attempt.row.alloc_mem_mib) == (
            played.site.stranger or attempt.row.user,
            20,
        )
    assert NO_SUCH_JOB not in {one.row.job_id for one in played.attempts}
    assert [one.row.job_id for one in played.attempts if one.decision_id] == [played.site.jobs["victim"]]


# ---- runs


def test_an_ingest_while_jobs_run_takes_those_that_have_ended(played: Played) -> None:
    ended = {one.row.job_id for one in played.first_half}
    assert played.site.jobs[workload.RUNS_ON] not in ended
    early = set(workload.EARLY) & played.site.jobs.keys()
    assert {played.site.jobs[name] for name in early} <= ended
    # What slurmdbd received about their steps only later, the next run has added.
    kept = {(one.row.job_id, one.row.submit_s, one.row.state) for one in played.attempts}
    assert {(one.row.job_id, one.row.submit_s, one.row.state) for one in played.first_half} <= kept


def test_two_partial_ingests_make_the_same_store_as_one(played: Played) -> None:
    assert played.site.attempts("halves") == list(played.attempts)
    halves = played.site.rows(schema.steps, "halves")
    whole = played.site.rows(schema.steps)
    assert sorted(halves, key=repr) == sorted(whole, key=repr)


def test_a_second_run_finds_nothing_new(played: Played) -> None:
    assert played.second.found_new > 0
    assert played.again.status == 0
    assert played.again.found_new == 0
