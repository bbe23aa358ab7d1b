"""The past simulated again: what is counted, what fits, and what the service would change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy
import pytest

from accounting.labels.carbon import CarbonIntensity
from accounting.labels.energy import EnergySite, energy_of
from accounting.records import Attempt
from models.demand.prediction import ChainSettings
from models.judging.online import Learner, OnlineJob, follow
from models.past.attempts import past_job, request_of
from models.past.jobs import PastJob
from models.scheduling.room import MILLI, Amounts, Room
from models.simulation.fitting import placement_of, unfit, why_unfit, without
from models.simulation.hooks import AsAsked, Told
from models.simulation.learned import LearnedSizing, as_run
from models.simulation.nodes import Cluster, Node, cluster_of
from models.simulation.past import Past, past_of
from models.simulation.policies import POLICIES
from models.simulation.replayed import Comparison, compare, recorded, replay
from slurm_plugin.cli.models.sizing import enforced_grant
from slurm_plugin.config.settings import Config
from tests.builders import DAY_S, T0, attempt

SITE = EnergySite(carbon=CarbonIntensity((400.0,)))
HOUR_S = 3600


def stream(jobs: int, every_s: int = 60, **changes: Any) -> list[Attempt]:
    """A job every minute that runs for ten minutes and did not wait."""
    return [
        attempt(
            job_id=number + 1,
            submit_s=T0 + every_s * number,
            start_s=T0 + every_s * number,
            **{"elapsed_s": 600, "limit_s": HOUR_S, **changes},
        )
        for number in range(jobs)
    ]


def past(attempts: Iterable[Attempt], since_s: int = T0, window_s: int = DAY_S) -> Past:
    return past_of(list(attempts), since_s, since_s + window_s)


def nodes(*given: tuple[int, int, int]) -> Cluster:
    return cluster_of([Node(cpus=cpus, mem_mib=mem_mib, gpus=gpus) for cpus, mem_mib, gpus in given])


def learned(found: Past, config: Config | None = None) -> LearnedSizing:
    config = config or Config()
    learner = Learner(ChainSettings(), config.models.recent_jobs)
    follow(found.before, learner, found.since_s)
    return LearnedSizing(found.jobs, found.cases, learner, enforced_grant(config), found.keeps, found.since_s)


def both(found: Past, cluster: Cluster) -> tuple[Comparison, Comparison]:
    """The comparison as requested, and the one with the service."""
    ways = AsAsked(found.jobs), learned(found)
    first, second = (compare(found, replay(found, cluster, POLICIES["easy"], way), SITE) for way in ways)
    return first, second


def test_over_asking_jobs_wait_less_with_the_service() -> None:
    found = past(stream(120))
    asked, served = both(found, nodes((16, 16_000, 0)))
    assert asked.resized == 0
    assert served.resized > 100
    assert served.mean_wait_s < asked.mean_wait_s / 2
    assert served.p95_wait_s < asked.p95_wait_s
    assert served.slowdown < asked.slowdown
    assert served.makespan_h < asked.makespan_h
    assert served.unused_core_h < asked.unused_core_h / 2
    assert served.unused_gib_h < asked.unused_gib_h / 2
    assert served.energy_kwh < asked.energy_kwh
    assert served.completed == asked.completed == 120
    assert served.memory_failures == asked.memory_failures == 0


def test_jobs_that_use_what_they_request_are_as_before() -> None:
    found = past(stream(100, mem_mib=8000.0, cores=8.0))
    asked, served = both(found, nodes((16, 16_000, 0)))
    assert asked == served
    assert asked.mean_wait_s > 0


def test_jobs_of_unknown_use_are_as_before() -> None:
    unknown = [
        msgspec.structs.replace(
            one,
            use=msgspec.structs.replace(
                one.use, peak_mem_mib=None, memory_quality="absent", cores=None, cores_per_task=None
            ),
        )
        for one in stream(100)
    ]
    found = past([*stream(50), *(msgspec.structs.replace(one, row=shifted(one)) for one in unknown)])
    # What is known of the other jobs is no reason to promise anything for these.
    sized = replay(found, nodes((16, 16_000, 0)), POLICIES["easy"], learned(found))
    assert (sized.granted[found.keeps[:, 0]] == found.jobs.asked[found.keeps[:, 0]]).all()
    assert (sized.granted[~found.keeps[:, 0]] < found.jobs.asked[~found.keeps[:, 0]]).any()


def shifted(one: Attempt) -> Any:
    row = one.row
    return msgspec.structs.replace(
        row, job_id=row.job_id + 1000, submit_s=row.submit_s + 1, start_s=row.start_s + 1, end_s=row.end_s + 1
    )


def test_a_job_that_suddenly_needs_more_dies_is_requeued_and_is_counted() -> None:
    calm, rare = stream(60), stream(61, mem_mib=6000.0)[-1:]
    found = past([*calm, *rare])
    asked, served = both(found, nodes((64, 64_000, 0)))
    assert (asked.memory_failures, asked.lost_core_h) == (0, 0)
    assert (served.memory_failures, served.by_a_cut) == (1, 1)
    assert 0 < served.lost_core_h < 8 * 600 / HOUR_S
    assert served.completed == 61
    results = replay(found, nodes((64, 64_000, 0)), POLICIES["easy"], learned(found))
    assert results.granted[-1].tolist() == found.jobs.asked[-1].tolist()
    # Half of its run was lost.
    assert results.end_s[-1] - results.jobs.submit_s[-1] == pytest.approx(900)


def test_a_job_killed_with_its_whole_request_is_killed_again_and_not_by_a_cut() -> None:
    first, *rest = stream(5)
    killed = msgspec.structs.replace(
        first, use=msgspec.structs.replace(first.use, outcome="out_of_memory", memory_quality="censored")
    )
    found = past([killed, *rest])
    cluster = nodes((64, 64_000, 0))
    for row in (compare(found, recorded(found, cluster), SITE), both(found, cluster)[0]):
        assert (row.memory_failures, row.by_a_cut, row.completed) == (1, 0, 4)
        assert row.lost_core_h == pytest.approx(8 * 600 / HOUR_S)


def test_a_job_takes_longer_with_fewer_cores_than_its_tasks_keep_busy() -> None:
    """Many jobs keep one core busy; then one job of that family keeps eight busy."""
    found = past([*stream(60), *stream(61, cores=8.0)[-1:]])
    results = replay(found, nodes((800, 800_000, 0)), POLICIES["easy"], learned(found))
    cpus = results.granted[-1, 0] / MILLI
    assert cpus < 8
    assert results.end_s[-1] - results.start_s[-1] == pytest.approx(min(600 * 8 / cpus, HOUR_S))


def test_gpus_that_stay_idle_are_not_granted_again() -> None:
    found = past(stream(60, req_gpus=4, alloc_gpus=4, gpus=1))
    results = replay(found, nodes((800, 800_000, 400)), POLICIES["easy"], learned(found))
    assert results.granted[0, 2] == 4000
    assert results.granted[-1, 2] == 1000
    assert results.end_s[-1] - results.start_s[-1] == 600
    row = compare(found, results, SITE)
    assert row.allocated[2] < compare(found, recorded(found, nodes((800, 800_000, 400))), SITE).allocated[2]


def test_jobs_that_ended_before_the_window_are_learned_from() -> None:
    attempts = stream(60)
    late = past(attempts, since_s=T0 + 59 * 60)
    assert len(late.before) == 50
    results = replay(late, nodes((64, 64_000, 0)), POLICIES["easy"], learned(late))
    cpu_milli, mem_mib, _ = results.granted[late.counted][0].tolist()
    assert (cpu_milli, 200 <= mem_mib < 300) == (1000, True)
    # Jobs that still ran then are replayed as they were submitted.
    assert results.granted[~late.counted].tolist() == [[8000, 8000, 0]] * 9
    alone = past(attempts[-1:], since_s=T0 + 59 * 60)
    assert learned(alone).grant(0, 0.0) == (8000, 8000, 0)


def test_a_job_that_ends_in_the_very_second_is_not_known() -> None:
    found = past(stream(2, every_s=600))
    sizing = learned(found)
    assert sizing.grant(0, 0.0) == (8000, 8000, 0)
    sizing.ended(0, 600.0, 0.0, (8000, 8000, 0), enough=True)
    assert sizing.grant(1, 600.0) == (8000, 8000, 0)
    assert sizing.grant(1, 600.5) != (8000, 8000, 0)


def test_what_is_learned_is_what_would_have_been_measured() -> None:
    ran: PastJob = past_job(attempt(mem_mib=500.0, cores=3.0))
    granted: Amounts = (2000, 400, 0)
    cut = as_run(ran, granted, end_s=50.9, wall_s=20.0, enough=False)
    assert (cut.end_s, cut.wall_s, cut.given_cpus) == (50, 20, 2)
    assert (cut.mem_mib, cut.mem_at_least, cut.complete) == (400, True, False)
    assert cut.cores_per_task == 2.0
    whole = as_run(ran, (8000, 8000, 0), end_s=110.0, wall_s=100.0, enough=True)
    assert (whole.mem_mib, whole.cores_per_task, whole.complete) == (ran.mem_mib, ran.cores_per_task, True)


def test_following_knows_what_sizing_online_would_know() -> None:
    jobs = [
        OnlineJob(
            job_id=str(number),
            submit_s=float(one.row.submit_s),
            start_s=float(one.row.start_s),
            end_s=float(one.row.end_s),
            request=request_of(one),
            past=past_job(one),
        )
        for number, one in enumerate(stream(30))
    ]
    learner = Learner(ChainSettings(), 50)
    follow(jobs, learner, T0 + 700.0)
    evidence = learner._history.evidence(jobs[0].request, 1)
    assert evidence is not None
    # The jobs that came at 0 and at 60 s ended at 600 and 660 s.
    assert len(evidence.jobs) == 2


def test_jobs_under_rules_that_observe_are_left_alone() -> None:
    from slurm_plugin.config.settings import Rule

    found = past(stream(60))
    config = Config(rules=(Rule(name="careful", user=("alice",), mode="observe"),))
    results = replay(found, nodes((64, 64_000, 0)), POLICIES["easy"], learned(found, config))
    assert (results.granted == found.jobs.asked).all()
    others = Config(rules=(Rule(name="careful", user=("bob",), mode="observe"),))
    results = replay(found, nodes((64, 64_000, 0)), POLICIES["easy"], learned(found, others))
    assert (results.granted < found.jobs.asked).any()


def test_figures_of_one_recorded_job_are_those_worked_out_by_hand() -> None:
    one = attempt(submit_s=T0, start_s=T0 + 600, elapsed_s=1800, mem_mib=4000.0, cores=2.0)
    found = past([one], window_s=HOUR_S)
    cluster = nodes((16, 16_000, 0))
    row = compare(found, recorded(found, cluster), SITE)
    cost = energy_of(one, (), SITE)
    told = msgspec.structs.replace(row, energy_kwh=0.0, carbon_kg=0.0)
    assert row.energy_kwh == pytest.approx(cost.energy_j / 3.6e6)
    assert row.carbon_kg == pytest.approx(cost.carbon_kg)
    assert told == Comparison(
        jobs=1,
        resized=0,
        mean_wait_s=600,
        p95_wait_s=600,
        slowdown=2400 / 1800,
        completed=1,
        completed_in_window=1,
        memory_failures=0,
        by_a_cut=0,
        timeouts=0,
        lost_core_h=0,
        allocated=(0.25, 0.25, 0),
        busy=(0.0625, 0.125, 0),
        unused_core_h=3.0,
        unused_gib_h=4000 / 1024 / 2,
        energy_kwh=0,
        carbon_kg=0,
        makespan_h=2400 / HOUR_S,
    )


def test_only_the_window_counts_for_shares_and_only_its_jobs_for_the_rest() -> None:
    before = attempt(job_id=1, submit_s=T0 - 900, start_s=T0 - 900, elapsed_s=1800)
    long = attempt(job_id=2, submit_s=T0, start_s=T0 + 1800, elapsed_s=5400)
    found = past([before, long], window_s=HOUR_S)
    row = compare(found, recorded(found, nodes((16, 16_000, 0))), SITE)
    assert row.jobs == 1
    # Eight of sixteen CPUs: for a quarter of the hour, and for its second half.
    assert row.allocated[0] == pytest.approx(0.5 * 0.75)
    assert (row.completed, row.completed_in_window) == (1, 0)
    assert row.mean_wait_s == 1800


def test_the_time_for_which_a_job_was_suspended_is_no_part_of_what_it_held() -> None:
    one = attempt(submit_s=T0, start_s=T0, elapsed_s=1800, cores=2.0)
    suspended = msgspec.structs.replace(one, row=msgspec.structs.replace(one.row, end_s=T0 + 3600))
    cluster = nodes((16, 16_000, 0))
    plain, row = (
        compare(found, recorded(found, cluster), SITE)
        for found in (past([each], window_s=HOUR_S) for each in (one, suspended))
    )
    same = ("allocated", "busy", "unused_core_h", "unused_gib_h", "energy_kwh", "carbon_kg")
    assert [getattr(row, name) for name in same] == [getattr(plain, name) for name in same]
    assert (row.slowdown, row.makespan_h) == (2, 1)


def test_recorded_moments_add_up_to_nothing_at_the_end() -> None:
    found = past(stream(20, every_s=7))
    moments = recorded(found, nodes((16, 16_000, 0))).moments
    assert max(moment.running for moment in moments) == 20
    assert (moments[-1].allocated, moments[-1].waiting, moments[-1].running) == ((0, 0, 0), 0, 0)
    assert min(moment.waiting for moment in moments) >= 0


def test_a_calm_past_is_replayed_as_it_was() -> None:
    """Where no job had to wait, the simulation is what was recorded, to the second."""
    found = past(stream(50, every_s=300))
    cluster = nodes((64, 64_000, 0))
    told = replay(found, cluster, POLICIES["easy"], AsAsked(found.jobs))
    real = recorded(found, cluster)
    assert numpy.array_equal(told.end_s, real.end_s)
    assert compare(found, told, SITE) == compare(found, real, SITE)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"req_cpus": 32, "alloc_cpus": 32},
            "1 ask for up to 32 CPUs on one node, but no node has more than 16",
        ),
        ({"req_mem_mib": 20_000, "alloc_mem_mib": 20_000}, "up to 20,000 MiB of memory on one node"),
        ({"req_gpus": 1, "alloc_gpus": 1}, "up to 1 GPUs on one node, but no node has more than 0"),
        ({"req_cpus": 16, "alloc_cpus": 16, "req_mem_mib": 16_000, "alloc_mem_mib": 16_000}, "together"),
        ({"nodes": 9, "req_cpus": 256, "alloc_cpus": 256}, "1 multi-node jobs ask for more than all nodes"),
    ],
    ids=["CPUs", "memory", "GPUs", "together", "several nodes"],
)
def test_jobs_that_do_not_fit_are_reported_and_can_be_left_out(changes: dict[str, Any], said: str) -> None:
    found = past([attempt(job_id=1, **changes), attempt(job_id=2)])
    cluster = nodes((16, 8000, 0), (8, 16_000, 0))
    cannot = unfit(found, cluster)
    assert cannot.tolist() == [True, False]
    assert why_unfit(found, cluster, cannot).startswith("1 of 2 jobs cannot run on these nodes: ")
    assert said in why_unfit(found, cluster, cannot)
    left = without(found, cannot)
    assert (len(left.jobs), [case.past.job_id for case in left.cases]) == (1, [2])
    assert not unfit(left, cluster).any()


def test_only_jobs_that_no_node_holds_are_spread() -> None:
    wide = attempt(job_id=1, nodes=2, req_cpus=24, alloc_cpus=24)
    cluster = nodes((16, 16_000, 0), (16, 16_000, 0))
    found = past([wide, attempt(job_id=2)])
    place, room = placement_of(found, cluster).place, Room.of(cluster.capacity)
    parts = place(room, (24_000, 8000, 0))
    assert parts is not None
    assert len(parts) == 2
    room.take(((0, (10_000, 0, 0)), (1, (10_000, 0, 0))))
    # Six CPUs are free on each node: a job of eight on one node waits for one node to have them.
    assert place(room, (8000, 0, 0)) is None
    assert placement_of(past([attempt()]), cluster).spans is False


def test_two_replays_are_the_same_to_the_bit() -> None:
    found = past(stream(80))
    once, again = (replay(found, nodes((16, 16_000, 0)), POLICIES["easy"], learned(found)) for _ in range(2))
    assert numpy.array_equal(once.granted, again.granted)
    assert once.moments == again.moments
    assert once.runs == again.runs


def test_progress_is_reported_and_nothing_else_changes() -> None:
    found = past(stream(4))
    heard: list[float] = []
    cluster = nodes((16, 16_000, 0))
    told = replay(found, cluster, POLICIES["easy"], Told(AsAsked(found.jobs), found.jobs, heard.append))
    assert heard == [0.25, 0.5, 0.75, 1.0]
    assert told.runs == replay(found, cluster, POLICIES["easy"], AsAsked(found.jobs)).runs
