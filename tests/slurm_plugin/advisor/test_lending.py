"""Which jobs are let onto idle nodes of others, with hand-made queues: the rules, and what is learned of owners."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from accounting.errors import SlurmError
from models.planning import planning
from models.planning.problem import Bounds
from slurm_plugin.advisor.cycle import Advisor
from slurm_plugin.advisor.lending import Lending
from slurm_plugin.advisor.lent import why_not_lent
from slurm_plugin.advisor.problem import problem_of
from slurm_plugin.advisor.run_time import RunTime
from slurm_plugin.advisor.view import summary_of
from slurm_plugin.config.settings import Config, LentPartition
from slurm_plugin.policy.facts import MemoryTerms
from slurm_plugin.slurm.owners_past import Span
from slurm_plugin.slurm.queue import Relist, Written
from slurm_plugin.slurm.snapshot import NodeState, PartitionState, QueuedJob, Snapshot
from tests.slurm_plugin.advisor.conftest import MakeAdvisor
from tests.slurm_plugin.slurm.fake_queue import FakeQueue
from tests.slurm_plugin.slurm.queued import NOW_S, TERMS, running, snapshot, waiting

H = 3600.0
NODES = (
    NodeState(name="n1", cpus=8, mem_mib=16_000, gpus=0, partitions=("batch",)),
    NodeState(name="n2", cpus=8, mem_mib=16_000, gpus=0, partitions=("lent", "owner")),
    NodeState(name="n3", cpus=8, mem_mib=16_000, gpus=0, partitions=("lent", "owner")),
)
PARTITIONS = (
    PartitionState(name="batch"),
    PartitionState(name="lent", preempt_mode="REQUEUE"),
    PartitionState(name="owner", tier=10),
)
FULL = running(1, cpus=8, limit_s=40_000)
# Owners were away from both nodes for 10 h, nine times, and left them an hour ago.
TENS = {
    name: [(at_s, at_s + H) for at_s in (NOW_S - 2 * H - 11 * H * past for past in reversed(range(10)))]
    for name in ("n2", "n3")
}


def on(*jobs: QueuedJob, **fields: Any) -> Snapshot:
    preempts = replace(TERMS, preempt_type="preempt/partition_prio", preempt_mode="REQUEUE")
    return snapshot(FULL, *jobs, nodes=NODES, **{"partitions": PARTITIONS, "terms": preempts, **fields})


def terms(risk: float) -> Config:
    return Config(lent_partitions=(LentPartition(name="lent", jobs_of=("batch",), risk=risk),))


def told(had: Mapping[str, Sequence[Span]]) -> Any:
    return lambda _partitions, _from_s, _to_s: had


def lending(had: Mapping[str, Sequence[Span]] = TENS, risk: float = 0.2) -> Lending:
    return Lending(terms(risk), told(had))


def changes(
    of: Lending, now: Snapshot, ours: Mapping[int, str] | None = None, likely_s: float = math.inf
) -> dict[int, tuple[str, ...]]:
    """Return the partitions that jobs should list, as the advisor asks; by default all run to their limits."""
    problem = problem_of(
        now,
        lambda job: RunTime(
            likely_s=min(likely_s, job.limit_s or 1), upper_s=min(likely_s, job.limit_s or 1), basis="x"
        ),
    )
    plan = planning.plan(problem, Bounds())
    of.see(now)
    return {one.job_id: one.after for one in of.changes(now, problem, plan, ours or {})}


BOTH = ("batch", "lent")


def test_a_job_that_will_end_before_owners_are_back_is_let_in() -> None:
    short, long = waiting(2, limit_s=3600), waiting(3, limit_s=9 * 3600 + 1800)
    # Within an hour from now 1 of 10 owners is back; within nine and a half hours all of them are.
    assert changes(lending(), on(short, long)) == {2: BOTH}
    # If the owner has come every hour, no job would end in time.
    hourly = {
        name: [(at, at + 60.0) for at in (NOW_S - H * past - 60 for past in reversed(range(20)))]
        for name in ("n2", "n3")
    }
    assert changes(lending(hourly), on(short, long)) == {}


@pytest.mark.parametrize(("likely_h", "let_in"), [(5.9, {2: BOTH}), (6.1, {})])
def test_a_run_may_take_half_as_long_again_as_it_likely_does(
    likely_h: float, let_in: dict[int, tuple[str, ...]]
) -> None:
    # All owners are back within nine hours, and the job may run for longer.
    assert changes(lending(), on(waiting(2, limit_s=24 * 3600)), likely_s=likely_h * H) == let_in


def test_by_default_a_job_that_would_more_likely_than_not_be_interrupted_is_not_let_in() -> None:
    of = Lending(
        Config(lent_partitions=(LentPartition(name="lent", jobs_of=("batch",)),)),
        told(a_third_and_rest(2 * H, 10 * H)),
    )
    short, long = waiting(2, limit_s=1800), waiting(3, limit_s=9.5 * H)
    # A third of the owners are back in an hour, a risk that a job waiting 11 hours may take; in nine hours all are.
    assert changes(of, on(short, waiting(4, limit_s=3 * H), long)) == {2: BOTH, 4: BOTH}


def a_third_and_rest(first_s: float, second_s: float) -> dict[str, list[Span]]:
    """Return owners who stay away for `first_s` in a third of cases, else `second_s`, and left an hour ago."""
    spans, ends_s = list[Span](), NOW_S - H
    for past in range(20):
        spans.append((ends_s - 60, ends_s))
        ends_s -= 60 + (second_s if past % 3 else first_s)
    return dict.fromkeys(("n2", "n3"), spans[::-1])


@pytest.mark.parametrize(
    "fields",
    [
        {"requeues": False},
        {"comment": "nightly rightsize=off"},
        {"batch": False},
        {"restarts": 1},
        {"num_nodes": 2},
        {"held": True},
        {"dependency": "afterok:1"},
        {"reservation": "maint"},
        {"het_job_id": 2},
        {"other": ("Features=fast",)},
        {"other": ("ReqNodeList=n1",)},
        {"partitions": ("lent",)},
        {"partitions": BOTH},
        {"cpus": 9},
        {"mem_mib": 17_000},
    ],
)
def test_a_job_that_an_interruption_would_harm_is_not_let_in(fields: dict[str, Any]) -> None:
    assert changes(lending(), on(waiting(2, **fields))) == {}


def test_a_job_with_a_deadline_is_let_in_only_if_it_also_meets_it_after_an_interruption() -> None:
    soon = replace(on(), jobs=(running(1, cpus=8, limit_s=3600),))

    def let_in(deadline_s: float) -> bool:
        job = waiting(2, deadline_s=NOW_S + deadline_s)
        return bool(changes(lending(), replace(soon, jobs=(*soon.jobs, job))))

    # In its own partition it would start in 3,000 s, and it needs an hour.
    assert let_in(3 * H)
    assert not let_in(3000 + H + 60)
    # In its own partition it would be late anyway.
    assert let_in(3000 + H - 60)
    assert not let_in(H - 60)


def test_a_job_is_let_in_only_if_the_partition_accepts_it() -> None:
    job = waiting(2)
    for lent in (
        PartitionState(name="lent", preempt_mode="REQUEUE", longest_s=1800),
        PartitionState(name="lent", preempt_mode="REQUEUE", accounts=("chemistry",)),
        PartitionState(name="lent", preempt_mode="REQUEUE", up=False),
    ):
        assert changes(lending(), on(job, partitions=(PARTITIONS[0], lent, PARTITIONS[2]))) == {}


PLAIN_TERMS = MemoryTerms(default_per_cpu_mib=1000)
SPARSE = MemoryTerms(default_per_node_mib=500, max_per_cpu_mib=200)


@pytest.mark.parametrize(
    ("job", "there", "own", "is_let_in"),
    [
        # A job that asks for no memory would get that of the other partition, and one that asks for some keeps it.
        ({"mem_per_cpu_mib": 1000}, {"memory": SPARSE}, {}, False),
        ({"mem_per_node_mib": 0}, {"memory": SPARSE}, {"memory": MemoryTerms()}, False),
        ({"mem_per_node_mib": None}, {"memory": SPARSE}, {"memory": MemoryTerms()}, False),
        ({"mem_per_cpu_mib": 1000}, {"memory": MemoryTerms(default_per_node_mib=500)}, {}, False),
        ({"mem_per_cpu_mib": 100, "mem_mib": 100}, {"memory": SPARSE}, {}, True),
        ({"mem_per_node_mib": 200, "mem_mib": 200}, {"memory": SPARSE}, {}, True),
        ({"mem_per_cpu_mib": 1000}, {}, {}, True),
        # MaxMemPerCPU would give it more CPUs.
        ({"mem_per_cpu_mib": 500, "mem_mib": 500}, {"memory": SPARSE}, {}, False),
        ({"mem_per_node_mib": 500, "mem_mib": 500, "cpus": 2}, {"memory": SPARSE}, {}, False),
        ({"mem_per_node_mib": 500, "mem_mib": 500, "cpus": 3}, {"memory": SPARSE}, {}, True),
        ({"mem_per_node_mib": 500, "mem_mib": 500}, {"memory": MemoryTerms(max_per_node_mib=400)}, {}, False),
        # A job without a limit of its own would get that of the other partition.
        ({"limit_s": None}, {"default_s": 120.0}, {}, False),
        ({"limit_s": 7200}, {"default_s": 120.0}, {"longest_s": 7200.0}, False),
        ({"limit_s": 7200}, {"default_s": 120.0}, {"longest_s": 7200.0, "default_s": 7200.0}, True),
        ({"limit_s": 3600}, {"default_s": 120.0}, {"longest_s": 7200.0}, True),
        ({"limit_s": 7200}, {}, {"longest_s": 7200.0}, True),
    ],
)
def test_a_job_is_let_in_only_if_it_gets_the_same_time_memory_and_cpus_there(
    job: dict[str, Any], there: dict[str, Any], own: dict[str, Any], *, is_let_in: bool
) -> None:
    lent = PartitionState(name="lent", preempt_mode="REQUEUE", **{"memory": PLAIN_TERMS, **there})
    batch = PartitionState(name="batch", **{"memory": PLAIN_TERMS, **own})
    now = on(waiting(2, **job), partitions=(batch, lent, PARTITIONS[2]))
    assert bool(changes(lending(risk=1.0), now)) == is_let_in


def test_a_job_that_starts_at_once_or_almost_at_once_stays_where_it_is() -> None:
    assert changes(lending(), replace(on(waiting(2)), jobs=(waiting(2),))) == {}
    # An interruption costs an hour in a fiftieth of cases: more than 70 s of waiting, and less than 100.
    for limit_s, let_in in ((640, {}), (670, {}), (700, {2: BOTH})):
        soon = running(1, cpus=8, limit_s=limit_s)
        assert changes(lending(), replace(on(), jobs=(soon, waiting(2)))) == let_in


def test_jobs_are_let_in_while_nodes_of_their_own_are_away() -> None:
    away = (replace(NODES[0], away=True), *NODES[1:])
    assert changes(lending(), replace(on(waiting(2)), nodes=away)) == {2: BOTH}


def test_no_more_jobs_are_let_in_than_there_is_room_for() -> None:
    jobs = [waiting(number, cpus=5) for number in range(2, 6)]
    assert list(changes(lending(), on(*jobs))) == [2, 3]
    array = waiting(2, cpus=5, array_job_id=2, array_tasks="1-9", tasks=9)
    assert list(changes(lending(), on(array, *jobs[1:]))) == [2]
    held = running(9, cpus=8, partitions=("owner",), nodes=("n2",))
    assert list(changes(lending(), on(held, *jobs))) == [2]
    # One that was let in before has its place.
    let_in = waiting(2, cpus=5, partitions=BOTH)
    assert changes(lending(), on(held, let_in, *jobs[1:]), {2: "lent"}) == {}


def test_the_risk_is_that_of_all_nodes_with_room() -> None:
    often = {
        "n2": TENS["n2"],
        "n3": [(NOW_S - H * past - 120, NOW_S - H * past - 60) for past in reversed(range(11))],
    }
    assert changes(lending(often), on(waiting(2))) == {}
    assert changes(lending(often, risk=0.6), on(waiting(2))) == {2: BOTH}


def test_a_job_stays_let_in_until_an_owner_may_come_and_is_taken_out_then() -> None:
    job, ours = waiting(2, partitions=BOTH), {2: "lent"}
    of = lending()
    assert changes(of, on(job), ours) == {}
    taken = [running(7, cpus=8, partitions=("lent",), nodes=(name,)) for name in ("n2", "n3")]
    assert changes(of, on(job, *taken), ours) == {}
    later = replace(on(job, *taken), time_s=NOW_S + 8.5 * H)
    assert changes(of, later, ours) == {2: ("batch",)}
    assert changes(of, on(waiting(2, partitions=("lent", "batch"), restarts=1)), ours) == {2: ("batch",)}
    # If the partition no longer exists, no job is left in it.
    assert changes(of, on(job, partitions=PARTITIONS[:2]), ours) == {2: ("batch",)}


def test_owners_are_learned_from_the_queue_as_they_come_and_go() -> None:
    of = lending({})
    short = waiting(2, limit_s=600)
    # No owner was there for 28 days.
    assert changes(of, on(short)) == {2: BOTH}
    owners = [running(8, partitions=("owner",), nodes=("n2", "n3"))]
    assert changes(of, replace(on(short, *owners), time_s=NOW_S + 60)) == {}
    assert changes(of, replace(on(short), time_s=NOW_S + 120)) == {}
    assert changes(of, replace(on(short), time_s=NOW_S + 6 * H)) == {2: BOTH}


def test_without_accounting_owners_are_learned_from_now_on(caplog: pytest.LogCaptureFixture) -> None:
    def away(_partitions: Collection[str], _from_s: float, _to_s: float) -> dict[str, list[Span]]:
        raise SlurmError("sacct failed")

    of = Lending(terms(0.2), away)
    short = waiting(2, limit_s=600)
    assert changes(of, on(short)) == {}
    assert "learned from now on" in caplog.text
    assert changes(of, replace(on(short), time_s=NOW_S + 2 * H)) == {2: BOTH}


class Refusing:
    """A gateway whose slurmctld refuses everything."""

    def __init__(self) -> None:
        self.asked: list[Relist] = []

    def listed_by_us(self) -> dict[int, str]:
        return {}

    def relist(self, change: Relist) -> Written:
        self.asked.append(change)
        return Written(job_id=change.job_id, problem="Invalid account")


def test_a_change_that_slurmctld_refuses_is_tried_again_much_later() -> None:
    of, gateway, now = lending(), Refusing(), on(waiting(2))
    problem = problem_of(now, lambda _: RunTime(likely_s=3600, upper_s=3600, basis="x"))
    of.see(now)
    tried = []
    for after_s in (0, 60, 660):
        of.run(replace(now, time_s=NOW_S + after_s), problem, planning.plan(problem, Bounds()), gateway)
        tried.append(len(gateway.asked))
    assert tried == [1, 1, 2]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"partitions": PARTITIONS[:1]}, "there is no partition lent"),
        ({"terms": TERMS}, "PreemptType=preempt/partition_prio"),
        (
            {"partitions": (*PARTITIONS[:1], PartitionState(name="lent"), PARTITIONS[2])},
            "PreemptMode=REQUEUE",
        ),
        ({"partitions": PARTITIONS[:2]}, "a higher PriorityTier"),
        ({"partitions": (*PARTITIONS[:2], PartitionState(name="owner"))}, "a higher PriorityTier"),
    ],
)
def test_what_a_lent_partition_lacks_is_named_and_logged_once(
    fields: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    now = on(waiting(2), **fields)
    assert said in why_not_lent("lent", now)
    of = lending()
    assert changes(of, now) == changes(of, now) == {}
    assert caplog.text.count("nobody is let into the partition lent") == 1
    assert why_not_lent("lent", on()) == ""


@pytest.mark.parametrize(
    ("partitions", "said"),
    [(("lent",), "not all are"), (("lent", "batch"), "not all are"), (("lent", "batch", "owner"), "")],
)
def test_each_node_of_a_lent_partition_has_an_owner(partitions: tuple[str, ...], said: str) -> None:
    now = replace(on(), nodes=(*NODES[:2], replace(NODES[2], partitions=partitions)))
    assert why_not_lent("lent", now).endswith(said)
    assert bool(why_not_lent("lent", now)) == bool(said)


def in_cycles(make: MakeAdvisor, queue: FakeQueue, job: QueuedJob, **settings: Any) -> Advisor:
    """Return an advisor that lends, on a queue with one pending job."""
    queue.snapshot = on(job)
    queue.own = {one.job_id: one.priority for one in queue.snapshot.jobs}
    return make(lending=lending(), **settings)


def test_a_cycle_lets_a_job_in_and_undo_takes_it_out(make: MakeAdvisor, queue: FakeQueue) -> None:
    advisor = in_cycles(make, queue, waiting(2))
    outcome = advisor.cycle()
    assert [one.after for one in queue.relists] == [BOTH]
    assert summary_of(outcome, apply=True).endswith("other partitions listed by 1 job")
    assert advisor.cycle().relisted == ()
    advisor.means.gateway.undo()
    assert [one.after for one in queue.relists] == [BOTH, ("batch",)]


def test_a_dry_run_says_how_many_jobs_it_would_let_in(make: MakeAdvisor, queue: FakeQueue) -> None:
    outcome = in_cycles(make, queue, waiting(2), apply=False).cycle()
    assert queue.relists == []
    assert summary_of(outcome, apply=False).endswith("other partitions to be listed by 1 job")


def test_no_job_stays_let_in_during_a_control_block(make: MakeAdvisor, queue: FakeQueue) -> None:
    in_cycles(make, queue, waiting(2)).cycle()
    controlled = make(lending=lending(), control_share=1.0)
    assert controlled.cycle().relisted == ()
    assert [one.after for one in queue.relists] == [BOTH, ("batch",)]
