"""Which limits of QOS, accounts and arrays apply to a job, and which jobs of a queue they hold up."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from models.planning.ledger import Due
from models.planning.problem import Problem
from models.planning.rollout import expected_starts
from slurm_plugin.advisor.problem import problem_of
from slurm_plugin.advisor.run_time import RunTime, by_limit
from slurm_plugin.advisor.shared_limits import SharedLimits, clock_of, counted_anew
from slurm_plugin.advisor.waiting import Needed, limit_in_words, variants
from slurm_plugin.slurm.snapshot import (
    RUN_MINUTES,
    AssociationState,
    NodeState,
    PartitionState,
    QosState,
    QueuedJob,
    Snapshot,
)
from tests.slurm_plugin.slurm.queued import TERMS, running, snapshot, waiting

HOLD = msgspec.structs.replace(TERMS, limits_hold=True)
TAKEN, LIMIT_S = (4000, 2000, 1000), 3600.0
ACCOUNTS = (
    AssociationState(account="root"),
    AssociationState(account="science", parent="root", together={"cpu": 64}),
    AssociationState(account="physics", parent="science", together={"gres/gpu": 2, "jobs": 9}),
    AssociationState(account="physics", user="ann", most_jobs=3),
    AssociationState(account="physics", user="ann", partition="debug", most_jobs=1),
)


def site(*jobs: QueuedJob, **fields: Any) -> Snapshot:
    return snapshot(*jobs, **{"terms": HOLD, **fields})


def told(
    of: Snapshot, job: QueuedJob | None = None, partitions: tuple[str, ...] = ("batch",)
) -> dict[str, tuple[int, bool]]:
    """Return how much a job counts for, by limit, and whether that limit binds it."""
    dues = SharedLimits(of).dues(job or waiting(1), partitions, TAKEN, LIMIT_S)
    assert len({due.limit for due in dues}) == len(dues)
    return {due.limit: (due.amount, due.binds) for due in dues}


def test_an_account_and_its_parents_limit_what_their_jobs_have() -> None:
    found = SharedLimits(site(associations=ACCOUNTS))
    assert set(found.dues(waiting(1), ("batch",), TAKEN, LIMIT_S)) == {
        Due("account physics ann: its user's jobs", 1),
        Due("account physics: gres/gpu", 1),
        Due("account physics: jobs", 1),
        Due("account science: cpu", 4),
    }
    assert found.most == {
        "account physics ann: its user's jobs": 3,
        "account physics: gres/gpu": 2,
        "account physics: jobs": 9,
        "account science: cpu": 64,
    }


def test_a_user_may_be_limited_in_one_partition_and_others_by_their_account() -> None:
    known = site(associations=ACCOUNTS)
    assert "account physics ann debug: its user's jobs" in told(known, partitions=("debug",))
    assert "account physics: jobs" in told(known, waiting(2, user="bob"))
    assert told(known, waiting(2, account="gone")) == {}


def test_a_qos_limits_all_its_jobs_and_those_of_a_user_and_of_an_account() -> None:
    qos = QosState(together={"jobs": 5}, of_user={"cpu": 8, "gres/gpu": 1}, of_account={"mem": 9000})
    assert told(site(qos={"normal": qos})) == {
        "qos normal: jobs": (1, True),
        "qos normal user ann: cpu": (4, True),
        "qos normal user ann: gres/gpu": (1, True),
        "qos normal account physics: mem": (2000, True),
    }


def test_a_limit_of_the_partition_qos_overrides_that_of_the_job_qos_and_of_the_account() -> None:
    own = QosState(of_user={"cpu": 8, "jobs": 4}, together={"gres/gpu": 3})
    batch = QosState(of_user={"cpu": 16})
    known = site(
        qos={"normal": own, "batch-qos": batch},
        partitions=(PartitionState(name="batch", qos="batch-qos"),),
        associations=ACCOUNTS,
    )
    binds = {limit: binds for limit, (_, binds) in told(known).items()}
    assert binds == {
        "qos batch-qos user ann: cpu": True,
        "qos normal user ann: cpu": False,
        "qos normal user ann: jobs": True,
        "qos normal: gres/gpu": True,
        # A limit for a user is another one than that for a whole account.
        "account science: cpu": True,
        "account physics: jobs": True,
        "account physics: gres/gpu": False,
        "account physics ann: its user's jobs": False,
    }
    over = msgspec.structs.replace(own, over_partition=True)
    first = told(msgspec.structs.replace(known, qos={"normal": over, "batch-qos": batch}))
    assert (first["qos batch-qos user ann: cpu"], first["qos normal user ann: cpu"]) == (
        (4, False),
        (4, True),
    )


def test_a_limit_factor_multiplies_what_an_account_may_have_at_a_time() -> None:
    """Jobs of all QOS count for each of the products; which one binds a job is told by its QOS (22.05, 26.05)."""
    known = site(
        qos={
            "normal": QosState(),
            "triple": QosState(account_factor=3.0),
            "half": QosState(account_factor=0.5),
        },
        partitions=(PartitionState(name="batch"), PartitionState(name="own", qos="half")),
        associations=(
            AssociationState(account="physics", together={"cpu": 6, "jobs": 9, f"cpu{RUN_MINUTES}": 600}),
        ),
    )
    others = {"account physics: jobs": (1, True), f"account physics: cpu{RUN_MINUTES}": (4 * 3600, True)}

    def counts(bound: str) -> dict[str, tuple[int, bool]]:
        names = ("account physics: cpu", "account physics: cpu times 0.5", "account physics: cpu times 3")
        return others | {name: (4, name.endswith(bound)) for name in names}

    assert told(known) == counts("cpu")
    assert told(known, waiting(1, qos="triple")) == counts("times 3")
    # The partition's QOS comes first.
    assert told(known, waiting(1, qos="triple"), ("own",)) == counts("times 0.5")
    found = SharedLimits(known)
    found.dues(waiting(1), ("batch",), TAKEN, LIMIT_S)
    most = {name: most for name, most in found.most.items() if "cpu" in name and RUN_MINUTES not in name}
    assert list(most.values()) == [3, 6, 18]


def test_the_qos_of_one_of_several_partitions_is_not_known_to_apply() -> None:
    known = site(
        qos={"part": QosState(together={"jobs": 1})},
        partitions=(PartitionState(name="batch", qos="part"), PartitionState(name="other")),
    )
    assert told(known, partitions=("batch", "other")) == {}
    assert told(known) == {"qos part: jobs": (1, True)}


def test_gpus_of_a_type_are_counted_if_they_are_requested_by_name() -> None:
    known = site(qos={"normal": QosState(of_user={"gres/gpu:a100": 2})})
    assert told(known) == {}
    assert told(known, waiting(1, gpu_types=(("a100", 1),))) == {
        "qos normal user ann: gres/gpu:a100": (1, True)
    }


def test_nodes_are_counted_for_a_job_that_has_them_to_itself() -> None:
    known = site(qos={"normal": QosState(of_user={"node": 4})})
    assert told(known, waiting(1, num_nodes=3, exclusive=True)) == {"qos normal user ann: node": (3, True)}
    assert told(known, waiting(1, num_nodes=3)) == {}


def test_run_minutes_are_counted_from_the_time_limit() -> None:
    limits = {"cpu RunMins": 300, "node RunMins": 90, "billing": 9}
    known = site(qos={"normal": QosState(of_user=limits)}, associations=ACCOUNTS[:2])
    found = SharedLimits(known)
    assert set(found.dues(waiting(1, num_nodes=2, billing=7), ("batch",), TAKEN, LIMIT_S)) == {
        Due("qos normal user ann: cpu RunMins", 4 * 3600, falls=4),
        Due("qos normal user ann: node RunMins", 2 * 3600, falls=2),
        Due("qos normal user ann: billing", 7),
    }
    # Because Slurm ignores seconds.
    assert found.most["qos normal user ann: cpu RunMins"] == 300 * 60 + 59


def test_a_run_minutes_limit_of_a_qos_overrides_that_of_the_account() -> None:
    accounts = (AssociationState(account="physics", together={"cpu RunMins": 90, "mem RunMins": 9000}),)
    known = site(qos={"normal": QosState(together={"cpu": 9, "cpu RunMins": 50})}, associations=accounts)
    assert {limit: binds for limit, (_, binds) in told(known).items()} == {
        "qos normal: cpu": True,
        "qos normal: cpu RunMins": True,
        "account physics: cpu RunMins": False,
        "account physics: mem RunMins": True,
    }


@pytest.mark.parametrize(
    ("factor", "asked", "counts"),
    [
        (2.0, False, (Due(RUN_MINUTES, 7200, falls=2.0, asks=3600),)),
        (2.0, True, (Due(RUN_MINUTES, 7200, falls=2.0),)),
        (1.0, False, (Due(RUN_MINUTES, 3600, falls=1.0),)),
        (0.0, False, ()),
    ],
)
def test_a_usage_factor_counts_for_run_minutes(factor: float, asked: bool, counts: tuple[Due, ...]) -> None:
    qos = QosState(usage_factor=factor, usage_factor_asked=asked)
    accounts = (AssociationState(account="physics", together={"node RunMins": 90}),)
    found = SharedLimits(site(qos={"normal": qos}, associations=accounts))
    assert [one._replace(limit=RUN_MINUTES) for one in found.dues(waiting(1), (), TAKEN, LIMIT_S)] == [
        *counts
    ]


def test_a_job_beyond_its_limit_has_no_run_minutes_to_count() -> None:
    known = site(qos={"normal": QosState(together={"cpu RunMins": 50})})
    late = running(1, start_s=known.time_s - 4000)
    assert told(known, late) == {}
    assert told(known, running(1, start_s=known.time_s - 3000)) == {
        "qos normal: cpu RunMins": (4 * 3600, True)
    }


def test_early_releases_ignore_run_minutes_of_a_user() -> None:
    early = msgspec.structs.replace(HOLD, counts_for_each=False)
    qos = QosState(
        of_user={"cpu RunMins": 50, "cpu": 9}, of_account={"mem RunMins": 9}, together={"cpu RunMins": 70}
    )
    assert set(told(site(qos={"normal": qos}, terms=early))) == {
        "qos normal user ann: cpu",
        "qos normal: cpu RunMins",
    }


def test_without_multifactor_slurm_counts_the_whole_limit_until_the_end() -> None:
    basic = msgspec.structs.replace(HOLD, priority_type="priority/basic")
    known = site(qos={"normal": QosState(together={"cpu RunMins": 50})}, terms=basic)
    assert SharedLimits(known).dues(waiting(1), (), TAKEN, LIMIT_S) == (
        Due("qos normal: cpu RunMins", 4 * 3600),
    )


SAFE = msgspec.structs.replace(HOLD, safe=True)
LEFT = {"account physics": {"cpu Mins": 90, "mem Mins": 9000}, "qos normal": {"cpu Mins": 50, "GrpWall": 70}}


def test_the_rest_of_a_budget_is_a_limit() -> None:
    found = SharedLimits(site(qos={"normal": QosState()}, associations=ACCOUNTS, left=LEFT, terms=SAFE))
    dues = found.dues(waiting(1), (), TAKEN, LIMIT_S)
    assert {due for due in dues if due.limit in found.most and due.limit.endswith(("Mins", "Wall"))} == {
        Due("qos normal: cpu Mins", 4 * 3600, spends=4.0),
        # Slurm does not consider what running jobs may still use of it.
        Due("qos normal: GrpWall", 0, asks=3600),
        Due("account physics: cpu Mins", 4 * 3600, binds=False, spends=4.0),
        Due("account physics: mem Mins", 2000 * 3600, spends=2000.0),
    }
    assert found.most["qos normal: cpu Mins"] == 50 * 60 + 59


@pytest.mark.parametrize(("left", "is_out"), [(1, False), (0, True), (-7, True)])
def test_any_time_left_in_a_budget_suffices_if_slurm_does_not_enforce_safe(
    left: int, *, is_out: bool
) -> None:
    known = site(waiting(1), waiting(2), associations=ACCOUNTS, left={"account physics": {"cpu Mins": left}})
    found = problem_of(known, lambda job: by_limit(job, "this is a test"))
    assert [span.start_s for span in expected_starts(found, samples=0)] == [math.inf if is_out else 0.0] * 2
    assert limit_in_words(found.pending[0], found) == (
        "it has reached a limit, account physics: cpu Mins: 0 minutes are left, and it would need 1"
        if is_out
        else ""
    )


def test_a_job_that_waits_for_a_budget_starts_once_running_jobs_leave_enough_of_it() -> None:
    # The first has a limit of an hour, of which 50 minutes are left; it is expected to end in ten.
    jobs = running(1), waiting(2, reason="AssocGrpCPUMinutesLimit"), waiting(3, limit_s=1800)

    def planned(left: int) -> Problem:
        known = site(*jobs, associations=ACCOUNTS, left={"account physics": {"cpu Mins": left}}, terms=SAFE)
        return problem_of(known, lambda _: RunTime(likely_s=1200, upper_s=1210, basis="a test", jobs=9))

    def starts(left: int) -> list[float]:
        return [span.start_s for span in expected_starts(planned(left), samples=0)]

    first, _ = planned(100).pending
    assert limit_in_words(first, planned(100)) == (
        "it has reached a limit, account physics: cpu Mins: 100 minutes are left, and running jobs may use 50 of them, "
        "and it would need 60"
    )
    assert starts(100) == [pytest.approx(600.0, abs=5.0), 0.0]
    assert starts(20) == [math.inf, math.inf]
    # When the first has run ten more minutes, 60 are left, and when the second has run for twenty, 40.
    assert starts(70) == [pytest.approx(600.0, abs=5.0), pytest.approx(1800.0, abs=5.0)]


def test_when_slurm_counts_again() -> None:
    terms = msgspec.structs.replace(HOLD, counts_from_s=1000.0, counts_each_s=300.0)
    assert clock_of(terms, 1500.0).next_s(0.0) == 101.0  # at 1,601
    assert clock_of(HOLD, 1500.0).next_s(7.0) == 7.0


def test_a_job_that_waits_for_run_minutes_starts_once_enough_of_them_are_used_up() -> None:
    # Each has one CPU for an hour; the first has 3,000 s left.
    terms = msgspec.structs.replace(HOLD, counts_from_s=1000.0, counts_each_s=1.0)
    jobs = running(1), waiting(2, reason="AssocGrpCPURunMinutesLimit")
    accounts = (AssociationState(account="physics", together={"cpu RunMins": 80}),)
    known = site(*jobs, associations=accounts, terms=terms)
    found = problem_of(known, lambda job: by_limit(job, "this is a test"))
    assert not found.pending[0].kept
    assert limit_in_words(found.pending[0], found) == (
        "it has reached a limit, account physics: cpu RunMins: 50 of 80 are in use, and it would need 60"
    )
    # The rest may be 20 minutes and 59 s.
    (span,) = expected_starts(found, samples=0)
    assert span.start_s == pytest.approx(3000.0 - 1259.0, abs=2.0)
    shorter = counted_anew(jobs[1], variants(found.pending[0], Needed(cpus=1, wall_s=1800.0)), known)
    assert [one.job.dues[0].amount for one in shorter] == [3600, 3600, 1800, 1800]


def test_without_enforcement_no_limit_applies_except_that_of_an_array() -> None:
    qos = {"normal": QosState(together={"jobs": 5})}
    array = waiting(7, array_job_id=7, array_tasks="3-9%2", tasks=7)
    known = snapshot(array, qos=qos, associations=ACCOUNTS)
    assert told(known, array) == {"array 7": (1, True)}
    assert told(known, running(8, array_job_id=7, array_tasks="1")) == {"array 7": (1, True)}
    assert told(known, running(9, array_job_id=6, array_tasks="1")) == {}


def test_an_ended_job_no_longer_counts() -> None:
    known = site(qos={"normal": QosState(together={"jobs": 5})})
    assert told(known, running(1, state="SUSPENDED"))
    assert told(known, running(1, state="COMPLETING")) == {}


def planned(*jobs: QueuedJob, most: int = 1, **fields: Any) -> Problem:
    known = site(*jobs, qos={"normal": QosState(of_user={"jobs": most})}, **fields)
    return problem_of(known, lambda job: by_limit(job, "this is a test"))


AT_LIMIT = "QOSMaxJobsPerUserLimit"


def test_a_job_that_waits_for_a_limit_is_foreseen_by_what_runs_and_may_be_moved() -> None:
    found = planned(running(1), waiting(2, reason=AT_LIMIT), waiting(3))
    assert [(one.kept, one.out) for one in found.pending] == [("", False)] * 2
    assert [span.start_s for span in expected_starts(found, samples=0)] == [3000.0, 6600.0]


def test_the_limit_that_holds_a_job_is_named() -> None:
    found = planned(running(1), waiting(2, reason=AT_LIMIT), waiting(3, user="bob"))
    assert [limit_in_words(one, found) for one in found.pending] == [
        "it has reached a limit, qos normal user ann: jobs: 1 of 1 are in use, and it would need 1",
        "",
    ]


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"reason": "QOSGrpNodeLimit"}, 2),  # nodes are not counted: as far as is known, it could start
        ({"reason": "AssocGrpCPUMinutesLimit"}, 1),  # a budget that is not known
        ({"reason": AT_LIMIT}, 0),  # it could never start
        ({"reason": "ReqNodeNotAvail"}, 1),  # it waits for more than a limit
        ({"reason": AT_LIMIT, "held": True}, 1),
        ({"reason": AT_LIMIT, "dependency": "afterok:1"}, 1),
    ],
)
def test_a_job_that_can_never_start_as_far_as_is_known_is_left_out(
    fields: dict[str, object], most: int
) -> None:
    found = planned(running(1), waiting(2, **fields), most=most)
    assert found.pending[0].out


def test_jobs_on_unavailable_nodes_count_too() -> None:
    nodes = tuple(
        NodeState(name=name, cpus=8, mem_mib=16_000, gpus=0, partitions=("batch",), away=name == "n1")
        for name in ("n1", "n2")
    )
    found = planned(running(1), waiting(2, reason=AT_LIMIT), nodes=nodes)
    assert found.running == ()
    assert [span.start_s for span in expected_starts(found, samples=0)] == [3000.0]


def test_a_smaller_request_counts_for_less() -> None:
    known = site(waiting(1, cpus=4), qos={"normal": QosState(of_user={"cpu": 6})})
    (as_it_is, *_) = problem_of(known, lambda job: by_limit(job, "this is a test")).pending
    found = counted_anew(known.jobs[0], variants(as_it_is, Needed(cpus=1)), known)
    assert [one.job.dues for one in found[:2]] == [
        (Due("qos normal user ann: cpu", 4),),
        (Due("qos normal user ann: cpu", 1),),
    ]


@pytest.mark.parametrize(
    ("asked", "counts"),
    [
        ("Licenses=matlab:2,ansys@db", {"licence matlab": 2, "licence ansys@db": 1}),
        ("Licenses=gone:1", {}),
        ("Licenses=matlab|ansys@db", {}),
        ("Features=matlab", {}),
    ],
)
def test_licences_are_a_limit_of_the_cluster(asked: str, counts: dict[str, int]) -> None:
    known = snapshot(licences={"matlab": 4, "ansys@db": 1})
    assert told(known, waiting(1, other=("Features=a100", asked))) == {
        name: (count, True) for name, count in counts.items()
    }


def test_a_job_that_waits_for_licences_is_foreseen_once_others_return_them() -> None:
    one = {"other": ("Licenses=matlab:1",)}
    known = snapshot(running(1, **one), waiting(2, reason="Licenses", **one), licences={"matlab": 1})
    found = problem_of(known, lambda job: by_limit(job, "this is a test"))
    assert [(each.kept, each.out) for each in found.pending] == [("", False)]
    assert [span.start_s for span in expected_starts(found, samples=0)] == [3000.0]
