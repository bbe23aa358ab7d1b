"""The problem that the advisor makes of the queue that Slurm shows."""

from __future__ import annotations

import math

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.planning.ledger import Due
from models.planning.problem import Problem
from models.planning.rollout import expected_starts
from models.scheduling.availability import shortage
from models.scheduling.room import Room
from slurm_plugin.advisor.problem import problem_of
from slurm_plugin.advisor.room import numbers_of
from slurm_plugin.advisor.run_time import RunTime, by_limit
from slurm_plugin.advisor.unmoved import seen_of
from slurm_plugin.slurm.snapshot import NodeState, PartitionState, ReservedNodes, Snapshot
from tests.slurm_plugin.slurm.queued import NOW_S, TERMS, running, snapshot, waiting


def problem(of: Snapshot, **options: object) -> Problem:
    return problem_of(of, lambda job: by_limit(job, "this is a test"), **options)  # type: ignore[arg-type]


TASKS_A_NODE = {"num_nodes": 2, "cpus": 8, "other": ("NtasksPerN:B:S:C=4:0:*:*",)}


SEVERAL = (
    PartitionState(name="batch"),
    PartitionState(name="short", longest_s=1800.0, tier=5),
    PartitionState(name="closed", up=False, tier=9),
)


@pytest.mark.parametrize(
    ("fields", "kept", "out"),
    [
        ({}, "", False),
        ({"held": True, "priority": 0}, "it is held", True),
        ({"dependency": "afterok:7"}, "it waits for another job", True),
        ({"eligible_s": NOW_S + 60}, "it begins later", True),
        ({"reservation": "course"}, "it has a reservation", True),
        ({"reason": "QOSMaxCpuPerUserLimit"}, "a limit of its QOS holds it", True),
        ({"reason": "AssocGrpCpuLimit"}, "a limit of its account holds it", True),
        ({"het_job_id": 5}, "it is a part of a het job", False),
        ({"fixed": True}, "its priority was set directly", False),
        ({"other": ("features", "licenses")}, "it asks for features, licenses", False),
        ({"other": ("Features=fast&ib",)}, "it asks for Features=fast&ib", False),
        ({"other": ("Features=[fast|ib]",)}, "it asks for Features=[fast|ib]", False),
        ({"other": ("Features=fast*2",)}, "it asks for Features=fast*2", False),
        ({"other": ("Features=fast", "Licenses=x|y")}, "it asks for Licenses=x|y", False),
        ({"other": ("Features=fast",)}, "no node that it may use is up", False),
        ({"cpus": 17}, "equal parts of it do not fit on the nodes", False),
        ({"partitions": ("closed",)}, "its partition is down", True),
        ({"partitions": ("closed",), "held": True, "priority": 0}, "it is held", True),
        (TASKS_A_NODE | {"num_tasks": 8}, "", False),
        (TASKS_A_NODE | {"num_tasks": 7}, "it asks for NtasksPerN:B:S:C=4:0:*:*", False),
    ],
)
def test_which_jobs_keep_their_place_and_why(fields: dict[str, object], kept: str, out: bool) -> None:
    partitions = (PartitionState(name="batch"), PartitionState(name="closed", up=False))
    only = problem(snapshot(waiting(1, **fields), partitions=partitions)).pending[0]
    assert (only.kept, only.out) == (kept, out)


@pytest.mark.parametrize(
    ("reason", "listed", "kept"),
    [
        ("PartitionTimeLimit", ("batch",), "its partition does not accept it now"),
        ("PartitionTimeLimit", ("batch", "short"), ""),
        ("PartitionDown", ("batch", "closed"), ""),
        ("ReqNodeNotAvail,_UnavailableNodes:n9", ("batch", "short"), ""),
        ("AssocGrpCpuLimit", ("batch", "short"), "a limit of its account holds it"),
    ],
)
def test_the_reason_of_one_partition_does_not_hold_a_job_that_lists_others(
    reason: str, listed: tuple[str, ...], kept: str
) -> None:
    only = problem(snapshot(waiting(1, reason=reason, partitions=listed), partitions=SEVERAL)).pending[0]
    assert (only.kept, only.out) == (kept, bool(kept))


@pytest.mark.parametrize(
    ("listed", "limit_s", "names", "tier"),
    [
        (("batch", "short"), 600, {"batch", "short"}, 5),
        (("batch", "short"), 3600, {"batch"}, 1),
        (("batch", "short"), None, {"batch"}, 1),
        (("batch", "closed"), 600, {"batch"}, 1),
        (("short",), 3600, {"short"}, 5),  # its QOS allows it
        (("closed",), 600, {"closed"}, 9),
    ],
)
def test_a_job_may_use_the_nodes_of_partitions_that_start_it(
    listed: tuple[str, ...], limit_s: int | None, names: set[str], tier: int
) -> None:
    found = snapshot(waiting(1, partitions=listed, limit_s=limit_s), partitions=SEVERAL)
    only = problem(found).pending[0]
    pools = numbers_of(found).pools
    assert (only.pools, only.tier) == (frozenset(pools[name] for name in names), tier)


@pytest.mark.parametrize(
    ("asked", "start_s"),
    [((), 0.0), (("Features=old",), 0.0), (("Features=new-2",), 3000.0), (("Features=new-2|old",), 0.0)],
)
def test_a_job_that_asks_for_a_feature_waits_for_nodes_that_have_it(
    asked: tuple[str, ...], start_s: float
) -> None:
    old, new = (
        NodeState(name=name, cpus=8, mem_mib=16_000, gpus=0, partitions=("batch",), features=features)
        for name, features in (("n1", ("old", "ib")), ("n2", ("new-2", "ib")))
    )
    held = running(9, cpus=8, nodes=("n2",))
    found = problem(snapshot(held, waiting(1, cpus=8, other=asked), nodes=(old, new)))
    assert found.pending[0].kept == ""
    assert [span.start_s for span in expected_starts(found, 0)] == [start_s]


def test_a_running_job_with_a_feature_is_seen_in_the_pool_of_nodes_that_have_it() -> None:
    nodes = tuple(
        NodeState(name=name, cpus=8, mem_mib=16_000, gpus=0, partitions=("batch",), features=(name,))
        for name in ("n1", "n2")
    )
    of = snapshot(running(9, other=("Features=n1",)), waiting(1), nodes=nodes)
    found = {one.job_id: one.pools for one in seen_of(of, problem(of), ())}
    pools = numbers_of(of).pools
    assert found == {9: {pools["batch n1"]}, 1: {pools["batch"]}}


@pytest.mark.parametrize(
    ("fields", "start_by_s"),
    [
        ({}, math.inf),
        ({"deadline_s": NOW_S + 5000}, 1400.0),
        ({"deadline_s": NOW_S + 5000, "least_limit_s": 600}, 4400.0),
        ({"deadline_s": NOW_S + 5000, "least_limit_s": 7200}, 1400.0),
        ({"deadline_s": NOW_S + 5000, "limit_s": None}, 5000.0),
        ({"deadline_s": NOW_S + 3000}, -600.0),
    ],
)
def test_a_deadline_says_until_when_a_job_has_to_start(fields: dict[str, object], start_by_s: float) -> None:
    only = problem(snapshot(waiting(1, **fields))).pending[0]
    assert (only.start_by_s, only.kept) == (start_by_s, "")


def test_slurms_own_priority_does_not_include_our_factor() -> None:
    moved, fixed, low = problem(
        snapshot(
            waiting(1, priority=5300, site_factor=300),
            waiting(2, priority=77, site_factor=300, fixed=True),
            waiting(3, priority=200, site_factor=300),  # Slurm has not counted all of it yet
        )
    ).pending
    assert (moved.priority, moved.factor, fixed.priority, low.priority) == (5000, 300, 77, 0)


def test_a_factor_set_by_somebody_else_is_part_of_slurms_order() -> None:
    mine, theirs = problem(
        snapshot(waiting(1, priority=5300, site_factor=300), waiting(2, priority=5300, site_factor=300)),
        ours={1: {300}, 2: {100, 200}},
    ).pending
    assert (mine.priority, mine.factor, mine.kept) == (5000, 300, "")
    assert (theirs.priority, theirs.factor, theirs.kept) == (
        5300,
        0,
        "its SiteFactor was set by somebody else",
    )


def test_tiers_are_kept_and_a_job_in_a_higher_tier_than_most_keeps_its_place() -> None:
    partitions = (PartitionState(name="batch"), PartitionState(name="urgent", tier=10))
    low, high, other = problem(
        snapshot(
            waiting(1, priority=4_000_000_000),
            waiting(2, partitions=("batch", "urgent"), priority=1),
            waiting(3),
            partitions=partitions,
        )
    ).pending
    assert (high.tier, low.tier) == (10, 1)
    assert (high.kept, low.kept, other.kept) == ("it is at the top of the queue", "", "")


def test_a_few_jobs_far_ahead_of_all_others_are_the_top() -> None:
    jobs = [waiting(number, priority=1000 + number) for number in range(20)]
    ahead = waiting(99, priority=50_000)
    kept = {each.job_id: each.kept for each in problem(snapshot(*jobs, ahead), reach=10_000).pending}
    assert kept.pop(99) == "it is at the top of the queue"
    assert set(kept.values()) == {""}
    assert not any(each.kept for each in problem(snapshot(*jobs, ahead), reach=100_000).pending)


def test_a_running_job_on_several_nodes_is_split_evenly_around_those_on_one() -> None:
    wide = running(1, cpus=8, mem_mib=8000, nodes=("n1", "n2"), num_nodes=2)
    narrow = running(2, cpus=6, mem_mib=1000, nodes=("n2",))
    parts = {each.job_id: each.parts for each in problem(snapshot(wide, narrow)).running}
    assert parts[2] == ((1, (6000, 1000, 0)),)
    assert dict(parts[1]) == {1: (2000, 4000, 0), 0: (6000, 4000, 0)}


def test_a_job_that_fits_the_nodes_only_in_unequal_parts_keeps_its_place() -> None:
    nodes = tuple(
        NodeState(name=f"n{cpus}", cpus=cpus, mem_mib=16_000, gpus=0, partitions=("batch",))
        for cpus in (4, 2)
    )
    jobs = [waiting(1, cpus=6), waiting(2, cpus=4), waiting(3, cpus=4, num_nodes=2)]
    found = problem(snapshot(*jobs, nodes=nodes)).pending
    assert [(one.kept, one.out) for one in found] == [
        ("equal parts of it do not fit on the nodes", False), ("", False), ("", False),
    ]  # fmt: skip


def test_an_exclusive_job_takes_whole_nodes() -> None:
    found = problem(snapshot(running(1, exclusive=True), waiting(2, exclusive=True, num_nodes=2)))
    assert found.running[0].parts == ((0, (8000, 16_000, 0)),)
    assert (found.pending[0].demand, found.pending[0].nodes) == ((16_000, 32_000, 0), 2)


def test_a_job_too_large_for_any_node_takes_several() -> None:
    assert problem(snapshot(waiting(1, cpus=20, num_nodes=1))).pending[0].nodes == 3


def test_an_array_runs_as_many_tasks_as_its_limit_allows() -> None:
    both = problem(
        snapshot(
            waiting(1, tasks=90, array_job_id=1, array_tasks="10-99%5"),
            waiting(2, tasks=90, array_job_id=2, array_tasks="10-99"),
        )
    )
    assert [each.tasks for each in both.pending] == [90, 90]
    assert both.limits == {"array 1": 5}
    assert [each.dues for each in both.pending] == [(Due("array 1", 1),), ()]


def test_an_unavailable_node_and_what_runs_on_it_are_left_out() -> None:
    away = NodeState(name="n1", cpus=8, mem_mib=16_000, gpus=0, partitions=("batch",), away=True)
    there = NodeState(name="n2", cpus=8, mem_mib=16_000, gpus=0, partitions=("batch",))
    wide = running(1, cpus=8, mem_mib=8000, nodes=("n1", "n2"), num_nodes=2)
    found = problem(snapshot(wide, nodes=(away, there)))
    assert len(found.machines) == 1
    assert [each.parts for each in found.running] == [((0, (4000, 4000, 0)),)]


@pytest.mark.parametrize(("counts", "starts"), [(True, [0.0, 3600.0]), (False, [0.0, 0.0])])
def test_memory_delays_no_job_if_slurm_does_not_count_it(*, counts: bool, starts: list[float]) -> None:
    terms = msgspec.structs.replace(TERMS, memory_counts=counts)
    found = problem(snapshot(waiting(1, mem_mib=9000), waiting(2, mem_mib=9000), nodes=1, terms=terms))
    assert [one.start_s for one in expected_starts(found, 0)] == starts


def test_a_reservation_of_a_part_of_its_nodes_leaves_the_rest() -> None:
    course = ReservedNodes(
        name="course", nodes=("n1", "n2"), start_s=NOW_S - 60, end_s=NOW_S + 86_400, cpus=4, gpus=0
    )
    later = msgspec.structs.replace(course, name="later", start_s=NOW_S + 60, cpus=6)
    ended = msgspec.structs.replace(course, name="ended", end_s=NOW_S - 1)
    found = problem(snapshot(running(1, cpus=6), reservations=(course, later, ended)))
    assert [one.amounts for one in found.machines] == [(6000, 16_000, 0)] * 2
    assert found.running[0].parts == ((0, (6000, 1000, 0)),)
    assert found.windows == ()
    whole = msgspec.structs.replace(course, cpus=16)
    assert [one.amounts[0] for one in problem(snapshot(reservations=(whole,))).windows] == [8000] * 2
    uneven = msgspec.structs.replace(course, cpus=10, cores=(("n1", 8), ("n2", 2)))
    assert [one.amounts[0] for one in problem(snapshot(reservations=(uneven,))).machines] == [0, 6000]


@pytest.mark.parametrize(("gpus", "taken_milli"), [(2, 0), (0, 2000)])
def test_a_job_in_a_reserved_part_of_a_node_takes_nothing_but_memory_from_the_rest(
    gpus: int, taken_milli: int
) -> None:
    nodes = (NodeState(name="n1", cpus=8, mem_mib=16_000, gpus=4, partitions=("batch",)),)
    course = ReservedNodes(name="course", nodes=("n1",), start_s=0, end_s=NOW_S + 9, cpus=4, gpus=gpus)
    inside = running(1, cpus=4, gpus=2, reservation="course")
    found = problem(snapshot(inside, running(2, cpus=3), nodes=nodes, reservations=(course,)))
    assert found.machines[0].amounts == (4000, 16_000, 4000 - 1000 * gpus)
    assert [one.parts for one in found.running] == [
        ((0, (0, 1000, taken_milli)),), ((0, (3000, 1000, 0)),),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "ran_s"),
    [
        ({}, 600.0),
        ({"state": "SUSPENDED", "stopped_s": NOW_S - 500, "ran_before_s": 100.0}, 100.0),
        ({"stopped_s": NOW_S - 50, "ran_before_s": 100.0}, 150.0),
        # Its nodes have been powering up for ten minutes, and Slurm will give it its full limit from then on.
        ({"state": "CONFIGURING"}, 0.0),
    ],
)
def test_the_time_while_a_job_was_suspended_or_its_nodes_powered_up_is_not_run_time(
    fields: dict[str, object], ran_s: float
) -> None:
    (only,) = problem(snapshot(running(1, **fields))).running
    assert (only.ran_s, only.limit_left_s, only.likely_left_s) == (ran_s, 3600 - ran_s, 3600 - ran_s)


def test_a_suspended_job_holds_only_the_cpus_that_running_jobs_leave() -> None:
    suspended = running(1, state="SUSPENDED", cpus=6, stopped_s=NOW_S - 5, ran_before_s=10.0)
    parts = {one.job_id: one.parts for one in problem(snapshot(suspended, running(2, cpus=8))).running}
    assert parts == {2: ((0, (8000, 1000, 0)),), 1: ((0, (0, 1000, 0)),)}


def test_a_current_reservation_takes_its_nodes_until_it_ends() -> None:
    course = ReservedNodes(name="course", nodes=("n1",), start_s=NOW_S - 100, end_s=NOW_S + 900)
    found = problem(snapshot(running(1), reservations=(course,)))
    (window,) = found.windows
    assert (window.node, window.from_s, window.to_s, window.amounts) == (0, 0, 900, (8000, 16_000, 0))
    assert found.running == ()


def test_a_reservation_within_another_ends_neither_early() -> None:
    course = ReservedNodes(name="course", nodes=("n1",), start_s=NOW_S + 100, end_s=NOW_S + 900)
    inside = ReservedNodes(name="inside", nodes=("n1",), start_s=NOW_S + 200, end_s=NOW_S + 300)
    after = ReservedNodes(name="after", nodes=("n1",), start_s=NOW_S + 900, end_s=NOW_S + 950)
    (window,) = problem(snapshot(reservations=(course, inside, after))).windows
    assert (window.from_s, window.to_s) == (100, 950)


@given(
    st.lists(
        st.tuples(
            st.integers(-500, 5000), st.integers(1, 5000), st.lists(st.sampled_from(["n1", "n2", "n3"]))
        ),
        max_size=5,
    ),
    st.lists(
        st.tuples(st.integers(1, 30), st.lists(st.sampled_from(["n1", "n2", "n3"]), min_size=1, unique=True)),
        max_size=6,
    ),
)
def test_no_node_ever_holds_or_lacks_more_than_it_has(
    reserved: list[tuple[int, int, list[str]]], jobs: list[tuple[int, list[str]]]
) -> None:
    reservations = tuple(
        ReservedNodes(
            name=str(number),
            nodes=tuple(names),
            start_s=NOW_S + start,
            end_s=NOW_S + start + length,
        )
        for number, (start, length, names) in enumerate(reserved)
    )
    held = [
        running(number, cpus=cpus, nodes=tuple(names), num_nodes=len(names))
        for number, (cpus, names) in enumerate(jobs)
    ]
    found = problem(snapshot(*held, nodes=3, reservations=reservations))
    capacity = numpy.array([machine.amounts for machine in found.machines], dtype=numpy.int64).T
    room = Room.of(capacity)
    for holding in found.running:
        room.take(holding.parts)
    for window in found.windows:
        still = [holding.parts for holding in found.running if holding.limit_left_s > window.from_s]
        then = shortage(window.from_s, capacity, (24_000, 48_000, 0), found.windows).room
        for parts in still:
            then.take(tuple(part for part in parts if part[0] == window.node))


@pytest.mark.parametrize(
    ("of_cluster_s", "of_partition_s", "left_s"),
    [
        (0.0, None, 0),
        (300.0, None, 180),
        (60.0, None, 0),
        (300.0, 0.0, 0),
        (0.0, 240.0, 120),
        (math.inf, None, 360),
    ],
)
def test_a_job_beyond_its_limit_runs_on_as_long_as_it_may(
    of_cluster_s: float, of_partition_s: float | None, left_s: float
) -> None:
    terms = msgspec.structs.replace(TERMS, over_limit_s=of_cluster_s)
    partitions = (PartitionState(name="batch", over_limit_s=of_partition_s),)
    over = running(1, limit_s=480, end_s=NOW_S - 120)
    (held,) = problem(snapshot(over, terms=terms, partitions=partitions)).running
    assert (held.limit_left_s, held.likely_left_s) == (left_s, left_s)
    within = running(1, limit_s=660, end_s=NOW_S + 60)
    (held,) = problem(snapshot(within, terms=terms, partitions=partitions)).running
    assert held.limit_left_s == 60


def test_a_running_job_is_expected_to_last_as_long_as_those_that_ran_as_long() -> None:
    found = problem_of(
        snapshot(running(1, start_s=NOW_S - 600)),
        lambda _job: RunTime(likely_s=900, upper_s=1000, basis="", jobs=9),
    )
    (holding,) = found.running
    assert (holding.ran_s, holding.limit_left_s) == (600, 3000)
    assert 290 < holding.likely_left_s < 310
