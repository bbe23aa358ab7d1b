"""Which jobs come first and which yield, given how Slurm is configured to preempt."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from models.planning.problem import Problem, Yields
from models.planning.rollout import expected_starts
from slurm_plugin.advisor.preemption import (
    BY_PARTITION,
    LEVEL,
    MAY_BE_PREEMPTED,
    MAY_SUSPEND,
    Ranks,
    levels_of,
    preemption_in_words,
)
from slurm_plugin.advisor.problem import problem_of
from slurm_plugin.advisor.run_time import by_limit
from slurm_plugin.slurm.snapshot import BY_QOS, PartitionState, QosState, QueuedJob, Snapshot
from tests.slurm_plugin.slurm.queued import NOW_S, TERMS, running, snapshot, waiting

QOS = {
    "scavenger": QosState(preempt_mode="CANCEL"),
    "normal": QosState(preempts=frozenset({"scavenger"}), exempt_s=600.0),
    "urgent": QosState(preempts=frozenset({"normal", "scavenger"})),
}
PARTITIONS = (
    PartitionState(name="batch", tier=2, preempt_mode="REQUEUE"),
    PartitionState(name="owners", tier=5),
    PartitionState(name="paused", tier=1, preempt_mode="GANG,SUSPEND"),
)


def site(*jobs: Any, by: str = BY_QOS, **fields: Any) -> Snapshot:
    terms = replace(TERMS, preempt_type=by, preempt_mode="REQUEUE", preempt_exempt_s=60.0)
    return snapshot(
        *jobs, **{"terms": terms, "partitions": PARTITIONS, "qos": QOS if by == BY_QOS else {}, **fields}
    )


def problem(of: Snapshot) -> Problem:
    return problem_of(of, lambda job: by_limit(job, "this is a test"))


def test_a_qos_comes_before_those_that_it_preempts_whatever_the_tier() -> None:
    ranks = Ranks(site())
    order = [
        ("urgent", "batch"),
        ("normal", "owners"),
        ("normal", "batch"),
        ("scavenger", "owners"),
        ("", "batch"),
    ]
    tiers = [ranks.tier(qos, (partition,)) for qos, partition in order]
    assert tiers == sorted(tiers, reverse=True)
    assert tiers == [2 * LEVEL + 2, LEVEL + 5, LEVEL + 2, 5, 2]


def test_a_cycle_of_qos_that_preempt_each_other_ends() -> None:
    ring = {"a": QosState(preempts=frozenset({"b", "gone"})), "b": QosState(preempts=frozenset({"a"}))}
    assert set(levels_of(ring)) == {"a", "b"}


@pytest.mark.parametrize(
    ("by", "qos", "partition", "yields"),
    [
        (BY_QOS, "scavenger", "batch", Yields(above=LEVEL - 1, exempt_s=60.0)),
        (BY_QOS, "normal", "owners", Yields(above=2 * LEVEL - 1, exempt_s=600.0)),
        (BY_PARTITION, "", "batch", Yields(above=2, exempt_s=60.0)),
        (BY_PARTITION, "", "owners", None),
        # It would be suspended, and keep its memory.
        (BY_PARTITION, "", "paused", None),
        ("preempt/none", "", "batch", None),
    ],
)
def test_to_which_jobs_a_job_yields(by: str, qos: str, partition: str, yields: Yields | None) -> None:
    assert Ranks(site(by=by)).yields(qos, (partition,)) == yields


def test_a_job_in_partitions_with_different_preemption_yields_to_none() -> None:
    assert Ranks(site(by=BY_PARTITION)).yields("", ("batch", "owners")) is None


def test_a_job_yields_to_none_if_a_higher_qos_may_not_preempt_it() -> None:
    other = QOS | {"other": QosState()}
    assert Ranks(site(qos=other)).yields("other", ("batch",)) == Yields(above=LEVEL - 1, exempt_s=60.0)
    assert Ranks(site(waiting(1, qos="urgent"), qos=other)).yields("other", ("batch",)) is None


@pytest.mark.parametrize(
    ("by", "fields"), [(BY_QOS, {"qos": "urgent"}), (BY_PARTITION, {"partitions": ("owners",)})]
)
def test_a_job_that_may_preempt_is_foreseen_to_do_so(by: str, fields: dict[str, Any]) -> None:
    full = running(1, cpus=8, qos="normal", start_s=NOW_S - 900)
    nodes = snapshot(nodes=1).nodes
    both = tuple(replace(node, partitions=("batch", "owners")) for node in nodes)
    found = problem(
        site(full, waiting(2, cpus=8, **fields), waiting(3, cpus=8, qos="normal"), by=by, nodes=both)
    )
    first, second = (span.start_s for span in expected_starts(found, samples=0))
    assert (first, second) == (0.0, 3600.0)


def test_a_job_that_may_preempt_waits_for_jobs_under_the_same_cap() -> None:
    full = running(1, cpus=8, gpus=2, start_s=NOW_S - 900)
    mixed = replace(
        snapshot(nodes=1).nodes[0],
        partitions=("batch", "owners"),
        gpus=4,
        gpu_types=(("a100", 2), ("h100", 2)),
    )
    capped = tuple(replace(one, most_cpus_per_node=4) if one.name == "owners" else one for one in PARTITIONS)
    urgent = [waiting(number, cpus=4, gpus=1, partitions=("owners",)) for number in (2, 3)]
    found = problem(site(full, *urgent, by=BY_PARTITION, nodes=(mixed,), partitions=capped))
    first, second = (span.start_s for span in expected_starts(found, samples=0))
    assert first == 0
    assert second >= 2700


@pytest.mark.parametrize("end_s", [0.0, NOW_S - 3])
def test_an_ended_job_holds_its_node_only_until_it_is_cleaned_up(end_s: float) -> None:
    ended = running(1, cpus=8, state="COMPLETING", start_s=NOW_S - 600, end_s=end_s)
    found = problem(site(ended, waiting(2, cpus=8), by=BY_PARTITION, nodes=1))
    assert [span.start_s for span in expected_starts(found, samples=0)] == [pytest.approx(0.0, abs=1.0)]


def test_a_job_in_its_grace_time_holds_its_node_until_that_is_over() -> None:
    ending = running(1, cpus=8, start_s=NOW_S - 600, end_s=NOW_S + 20)
    found = problem(site(ending, waiting(2, cpus=8), by=BY_PARTITION, nodes=1))
    assert [span.start_s for span in expected_starts(found, samples=0)] == [20.0]


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (waiting(9, partitions=("owners",)), "it may preempt 1 of the running jobs. "),
        (waiting(9, partitions=("batch",)), MAY_SUSPEND),
        (waiting(9, partitions=("paused",)), ""),
        (running(9, partitions=("batch",)), MAY_BE_PREEMPTED),
        (running(9, partitions=("owners",)), ""),
        (running(9, partitions=("paused",)), ""),
    ],
)
def test_the_words_about_preemption(job: QueuedJob, says: str) -> None:
    nodes = tuple(replace(node, partitions=("batch", "owners", "paused")) for node in snapshot(nodes=1).nodes)
    others = (
        running(1),
        running(2, partitions=("paused",)),
        running(3, partitions=("owners",)),
        running(4, nodes=("n9",)),
    )
    said = preemption_in_words(job, site(*others, job, by=BY_PARTITION, nodes=nodes))
    assert said.startswith(says)
    assert bool(said) == bool(says)


def test_a_running_job_of_the_highest_tier_is_not_said_to_be_preempted() -> None:
    partitions = tuple(replace(one, preempt_mode="REQUEUE") for one in PARTITIONS)
    jobs = [running(1, partitions=(name,)) for name in ("owners", "batch")]
    said = [preemption_in_words(job, site(job, by=BY_PARTITION, partitions=partitions)) for job in jobs]
    assert said == ["", MAY_BE_PREEMPTED]


def test_nothing_is_said_where_no_job_preempts() -> None:
    assert not preemption_in_words(waiting(9), snapshot(running(1), waiting(9)))
    assert not preemption_in_words(running(1), snapshot(running(1), waiting(9)))
    of_qos = site(running(1, qos="normal"), waiting(9, qos="urgent"))
    assert preemption_in_words(of_qos.jobs[1], of_qos).startswith("it may preempt 1 of")
    assert preemption_in_words(of_qos.jobs[0], of_qos) == MAY_BE_PREEMPTED
