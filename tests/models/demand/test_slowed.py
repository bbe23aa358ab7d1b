"""Jobs that run longer with fewer CPUs than their means suggest, by the cores they keep busy compared with others."""

import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from bench.slowed import ASKED, ASKED_CPUS, ASKED_MIB, CHAINS, WITH, WITHOUT, Work, run
from models.demand.chain import Sight, Untold
from models.demand.explanation import explain
from models.demand.prediction import ChainSettings, Predictor
from models.demand.slowed import (
    A_CONTROL,
    A_CONTROL_OF_MEMORY,
    DRAWN,
    Shown,
    are_slowed,
    doubt_of_memory,
    is_drawn,
    lacks_control,
    shown_by,
    slowing_cpus,
    unslowed_cpus,
)
from models.past.attempts import past_job
from models.past.evidence import Evidence
from models.past.history import History
from models.past.jobs import PastJob
from slurm_plugin.cli.why import explained_rows
from slurm_plugin.policy.limits import Limits
from slurm_plugin.policy.sizing import UNTOLD, size
from tests.builders import T0, attempt

# One core, and eight for a tenth of the time: with eight CPUs 1.7 cores are busy, with two 1.31.
WHOLE, CUT = Shown(8, 1.7, False), Shown(2, 1.31, True)
# With less memory for its files it waits, whatever its CPUs.
THRASHING = Shown(2, 0.5, True, True)


def job(**changes: Any) -> PastJob:
    told = {
        "asked_cpus": 8,
        "given_cpus": 2,
        "cores_per_task": 1.3,
        "num_tasks": 1,
        "given_mem_mib": ASKED_MIB,
        "asked_mem_mib": ASKED_MIB,
    }
    return msgspec.structs.replace(past_job(attempt()), **(told | changes))


def evidence_of(past: list[PastJob]) -> Evidence:
    return Evidence(("user+name", "ann", "fit"), past)


@pytest.fixture
def always_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.demand.slowed.DRAWN", 1)


def history_of(past: list[PastJob]) -> History:
    history = History(100)
    for number, one in enumerate(past, start=1):
        history.join(
            ASKED, msgspec.structs.replace(one, asked_cpus=ASKED_CPUS, end_s=1000 * number, job_id=number)
        )
    return history


@pytest.mark.parametrize(
    ("shown", "cpus"),
    [
        ([WHOLE] * 3 + [CUT] * 5, 2),
        ([WHOLE] * 3 + [CUT] * 4, 0),
        ([CUT] * 50, 0),
        ([WHOLE] * 50, 0),
        # A tenth longer does not count.
        ([WHOLE] * 3 + [Shown(2, 1.6, True)] * 20, 0),
        # The others had more CPUs, but not twice as many.
        ([Shown(3, 1.7, True)] * 3 + [CUT] * 20, 0),
        ([Shown(3, 1.7, False)] * 3 + [CUT] * 20, 2),
        ([Shown(4, 1.7, True)] * 3 + [CUT] * 20, 2),
        # These jobs had requested two themselves.
        ([WHOLE] * 3 + [CUT._replace(cut=False)] * 20, 0),
        # With four CPUs they are slowed too, with eight of sixteen no more.
        ([Shown(16, 1.7, False)] * 3 + [CUT] * 9 + [Shown(4, 1.5, True)] * 9, 4),
        ([Shown(16, 1.7, False)] * 3 + [CUT] * 9 + [Shown(4, 1.5, True)] * 9 + [Shown(8, 1.68, True)] * 9, 4),
        # All have less memory: with twice the CPUs they are faster, though not as fast as they can be; or no faster.
        ([WHOLE] * 3 + [THRASHING._replace(busy=0.3)] * 5 + [THRASHING._replace(had=4)] * 5, 4),
        ([WHOLE] * 3 + [THRASHING] * 5 + [THRASHING._replace(had=4)] * 5, 0),
        ([WHOLE] * 9 + [THRASHING] * 5 + [THRASHING._replace(had=4)] * 4, 2),
        ([WHOLE] * 3 + [THRASHING] * 5 + [THRASHING._replace(had=4)] * 5 + [CUT] * 5, 2),
        # By chance: of three jobs that had all their CPUs, one kept as few busy.
        ([WHOLE, WHOLE, Shown(8, 1.2, False), *[Shown(2, 1.5, True), CUT] * 3], 0),
    ],
    ids=[
        "slowed", "too_few", "nobody_had_more", "nobody_is_cut", "hardly", "not_twice_as_many", "all", "twice_as_many",
        "as_asked", "the_most_that_slow", "and_no_more", "faster", "for_want_of_memory", "too_few_to_tell",
        "and_of_cpus", "by_chance",
    ],
)  # fmt: skip
def test_cpus_slow_jobs_that_keep_fewer_busy_than_those_with_twice_as_many(
    shown: list[Shown], cpus: float
) -> None:
    assert slowing_cpus(shown) == cpus


@pytest.mark.parametrize(("share", "slowed"), [(0.0, True), (0.29, True), (0.3, False)])
def test_a_slowdown_that_the_site_tolerates_counts_as_none(share: float, slowed: bool) -> None:
    assert (slowing_cpus([WHOLE] * 3 + [CUT] * 20, share) > 0) is slowed


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, [(2, 1.3, True, False)]),
        ({"num_tasks": 2, "given_cpus": 3}, [(1.5, 1.3, True, False)]),
        ({"given_cpus": 8}, [(8, 1.3, False, False)]),
        ({"given_mem_mib": ASKED_MIB - 1}, [(2, 1.3, True, True)]),
        # Memory comes with its CPUs.
        ({"asked_mem_mib": None}, [(2, 1.3, True, True)]),
        ({"asked_cpus": None}, [(2, 1.3, False, False)]),
        # How long starting takes only says something about the node.
        ({"cores_per_task": 0.0106}, [(2, 0.1, True, False)]),
        ({"given_cpus": None}, []),
        ({"cores_per_task": None}, []),
        ({"complete": False}, []),
    ],
)
def test_jobs_that_ran_to_their_end_show_what_they_had_and_kept_busy(
    changes: dict[str, Any], told: list[Shown]
) -> None:
    assert shown_by([job(**changes)]) == told


@pytest.mark.parametrize(("whole", "cut", "slowed"), [(0.02, 0.0106, False), (0.3, 0.16, True)])
def test_jobs_that_sleep_are_slowed_by_nothing(whole: float, cut: float, slowed: bool) -> None:
    """Forty jobs that start at once on a busy node take a second longer."""
    had_all = [job(cores_per_task=whole, given_cpus=8)] * 16
    fewer_cpus = shown_by([*had_all, *[job(cores_per_task=cut)] * 24])
    assert bool(slowing_cpus(fewer_cpus)) is slowed
    less_memory = [*had_all, *[job(cores_per_task=cut, given_cpus=8, given_mem_mib=128)] * 24]
    assert (doubt_of_memory(evidence_of(less_memory)) == "slowed") is slowed


@pytest.mark.parametrize(
    ("cut", "had", "more", "lacks"),
    [
        (A_CONTROL, 2, 0, True),
        (A_CONTROL - 1, 2, 0, False),
        (A_CONTROL, 3, 0, False),
        (A_CONTROL - 1, 2, 1, False),
        (A_CONTROL, 2, 1, True),
        (2 * A_CONTROL - 1, 2, 2, False),
        (2 * A_CONTROL, 2, 2, True),
    ],
)
def test_one_of_twenty_cut_jobs_must_have_had_twice_as_many_cpus(
    cut: int, had: int, more: int, lacks: bool
) -> None:
    shown = [Shown(had, 1.0, True)] * cut + [Shown(4, 1.0, True)] * more
    assert lacks_control(shown, 2) is lacks


def test_the_draw_for_comparison_depends_on_the_last_job_alone() -> None:
    drawn = sum(is_drawn([job(job_id=number, end_s=T0 + 60 * number)]) for number in range(4000))
    assert drawn == pytest.approx(4000 / DRAWN, rel=0.2)
    assert not is_drawn([])
    one, other = job(job_id=1), job(job_id=2)
    assert is_drawn([one, other]) == is_drawn([other])


@pytest.mark.usefixtures("always_drawn")
def test_twice_as_many_cpus_are_granted_for_either_reason_and_none_without_one() -> None:
    whole, cut = [job(given_cpus=8, cores_per_task=1.7)] * 3, [job()] * 20
    both, alone = evidence_of([*whole, *cut]), evidence_of(cut)
    assert unslowed_cpus(both, 1.4) == 4
    assert unslowed_cpus(both, 1.4, 0.5) == 0
    assert unslowed_cpus(alone, 1.4) == 4
    assert unslowed_cpus(alone, 2.1) == 6
    assert unslowed_cpus(evidence_of(cut[1:]), 2.1) == 0
    assert unslowed_cpus(evidence_of(whole), 1.4) == 0


def test_the_comparisons_of_cpus_and_of_memory_gather_jobs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    history = history_of([job(given_cpus=ASKED_CPUS, cores_per_task=1.7)] * 3 + [job()] * 20)
    predictor, gathered = Predictor("m", history, {}, ChainSettings()), 0

    def gather(jobs: Iterable[PastJob]) -> list[Shown]:
        nonlocal gathered
        gathered += 1
        return shown_by(jobs)

    monkeypatch.setattr("models.demand.slowed.shown_by", gather)
    first, second = predictor.predict(ASKED), predictor.predict(ASKED)
    assert (first, gathered) == (second, 1)


# One CPU each, of which those with less memory than they requested keep a third busy.
WITH_ALL: dict[str, Any] = {"given_cpus": 1, "cores_per_task": 0.9}
WITH_LESS: dict[str, Any] = {"given_cpus": 1, "cores_per_task": 0.3, "given_mem_mib": 990}


@pytest.mark.usefixtures("always_drawn")
@pytest.mark.parametrize(
    ("past", "doubt"),
    [
        ([WITH_ALL] * 3 + [WITH_LESS] * 5, "slowed"),
        ([WITH_ALL] * 3 + [WITH_LESS] * 4, ""),
        ([WITH_ALL] * 3 + [WITH_LESS | {"cores_per_task": 0.61}] * 5, ""),
        ([WITH_ALL] * 3 + [WITH_LESS | {"cores_per_task": 0.59}] * 5, "slowed"),
        ([WITH_LESS] * (A_CONTROL_OF_MEMORY - 1), ""),
        ([WITH_LESS] * A_CONTROL_OF_MEMORY, "compared"),
        ([WITH_LESS] * A_CONTROL_OF_MEMORY + [WITH_LESS | {"given_mem_mib": ASKED_MIB}], "compared"),
        ([WITH_LESS] * A_CONTROL_OF_MEMORY + [WITH_LESS | {"given_mem_mib": ASKED_MIB}] * 2, ""),
        ([WITH_LESS | {"cores_per_task": 0.91}] * 99, ""),
        # They have fewer CPUs too, which slows them: what memory does is unknown.
        ([{"given_cpus": 8, "cores_per_task": 1.7}] * 3 + [WITH_LESS | {"given_cpus": 2}] * 5, ""),
    ],
    ids=[
        "slowed", "too_few", "hardly", "by_more_than_half", "fewer_than_fifty", "nobody_had_all", "one_had_all",
        "two_had_all", "nobody_waits", "for_want_of_cpus",
    ],
)  # fmt: skip
def test_memory_slows_jobs_that_keep_fewer_cores_busy_than_those_that_had_all(
    past: list[dict[str, Any]], doubt: str
) -> None:
    assert doubt_of_memory(evidence_of([job(**changes) for changes in past])) == doubt


@pytest.mark.usefixtures("always_drawn")
@pytest.mark.parametrize(
    ("past", "untold"),
    [([WITH_ALL] * 3 + [WITH_LESS] * 5, "slowed"), ([WITH_LESS] * A_CONTROL_OF_MEMORY, "compared")],
)
def test_memory_that_slows_stays_as_requested_with_the_reason(
    past: list[dict[str, Any]], untold: Untold
) -> None:
    predictor = Predictor("m", history_of([job(**changes) for changes in past]), {}, ChainSettings())
    told = predictor.predict(ASKED)
    assert (told.memory, told.untold) == (None, untold)
    assert told.cores is not None
    limits = Limits(memory_floor_mib=1, memory_step_mib=1, min_saving=0.1, def_mem_per_cpu_mib=0)
    sized = size(ASKED, told, limits)
    assert sized.grant.mem_per_node_mib is None
    assert {one.dimension: one.reason for one in sized.reasons}["memory"] == UNTOLD[untold]
    [memory] = [one for one in explain(predictor, ASKED, {}) if one.dimension == "memory"]
    assert f"{UNTOLD[untold]}: the request is kept" in [row["what"] for row in explained_rows(memory)]


def test_equal_jobs_are_rarely_called_slowed() -> None:
    random_ = random.Random(3)

    def alarm(fewer: int, more: int) -> bool:
        busy = [random_.lognormvariate(0, 0.5) for _ in range(fewer + more)]
        return are_slowed(busy[:fewer], busy[fewer:], 0.1)

    for fewer, more in ((5, 3), (20, 3), (20, 20), (90, 10)):
        assert sum(alarm(fewer, more) for _ in range(2000)) <= 2000 * 0.04


@pytest.mark.parametrize("waits_s", [0.0, 900.0])
def test_programs_of_one_thread_keep_their_cuts(waits_s: float) -> None:
    random_ = random.Random(5)
    families = [
        [Work(600 * random_.lognormvariate(0, 0.3), 0, 1, waits_s * random_.random()) for _ in range(200)]
        for _ in range(10)
    ]
    before, now = (
        sum(sum(run(family, CHAINS[name]).cpus) for family in families) for name in (WITHOUT, WITH)
    )
    assert before < now <= 1.15 * before


def test_a_program_whose_threads_are_busy_at_times_is_no_longer_slowed() -> None:
    random_ = random.Random(5)
    family = [Work(540 * random_.lognormvariate(0, 0.1), 480, 8, 0) for _ in range(200)]
    before, now = (run(family, CHAINS[name]).times[50:] for name in (WITHOUT, WITH))
    assert sum(before) / len(before) > 1.2
    assert sum(now) / len(now) < 1.1


@pytest.mark.parametrize(
    "work", [Work(540, 480, 8, 0), Work(600, 0, 1, 60, 600)], ids=["by_turns", "reads_again"]
)
def test_of_arrays_larger_than_what_is_remembered_only_the_first_are_slowed(work: Work) -> None:
    before, now = (run([work] * 1500, CHAINS[name], 150).times for name in (WITHOUT, WITH))
    assert sum(each > 1.1 for each in before) == 1350
    # One array shows how CPUs slow these jobs and, where they do not, another shows how memory does.
    assert sum(each > 1.1 for each in now) <= 300
    assert not any(each > 1.1 for each in now[450:])


def test_a_program_that_reads_its_files_again_is_slowed_only_until_that_is_seen() -> None:
    family = [Work(600, 0, 1, 60, 600)] * 300
    before, now = (run(family, CHAINS[name]) for name in (WITHOUT, WITH))
    assert sum(each > 1.1 for each in before.times) > 0.95 * len(family)
    assert sum(each > 1.1 for each in now.times) < 0.5 * len(family)


@pytest.mark.usefixtures("always_drawn")
@pytest.mark.parametrize(("whole", "step"), [(3, "slowed"), (0, "compared")])
@pytest.mark.parametrize("bears", [0.0, 0.2])
def test_the_step_is_explained_and_no_tolerated_slowdown_goes_below_it(
    whole: int, step: str, bears: float
) -> None:
    history = history_of(
        [job(given_cpus=ASKED_CPUS, cores_per_task=1.7)] * whole + [job(cores_per_task=1.3)] * A_CONTROL
    )
    predictor = Predictor("m", history, {}, ChainSettings(most_slowdown=bears))
    told = predictor.predict(ASKED)
    assert told.cores is not None
    assert told.cores.upper == 4
    assert told.fewest_cpus in ((None, 4.0) if not bears else (4.0,))
    [cores] = [one for one in explain(predictor, ASKED, {}) if one.dimension == "cores"]
    assert (cores.steps[-1].name, cores.steps[-1].upper) == (step, 4)
    assert any(
        "twice as many" in str(row["what"]) or "half as many" in str(row["what"])
        for row in explained_rows(cores)
    )
    evidence = history.evidence(ASKED, 1)
    assert evidence is not None
    below = CHAINS[WITHOUT].cores(Sight(ASKED, evidence, history.user_habit(ASKED)))
    assert below is not None
    assert below.upper < 4
