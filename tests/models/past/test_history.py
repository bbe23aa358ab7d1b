"""What a predictor may look back on, and the features made of it."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.records import Attempt
from models.demand.features import FEATURES, features
from models.past.attempts import past_job, request_of
from models.past.beside import HAD_ALL, TELLS_S, kind_of
from models.past.columns import columns_of_attempts
from models.past.history import History
from models.past.jobs import LEARNED, PastJob
from models.past.kills import KILLED_BUMP
from models.past.likeness import likeness_of
from tests.builders import T0, attempt, cancelled_while_it_waited, replay, request

KNOWN = request_of(attempt())


def job(**changes: Any) -> PastJob:
    return msgspec.structs.replace(past_job(attempt()), **changes)


def filled(jobs: list[PastJob], recent_jobs: int = 50) -> History:
    history = History(recent_jobs)
    for one in jobs:
        history.add(KNOWN, one)
    return history


def test_a_family_is_at_rest_once_all_that_came_with_its_jobs_has_ended() -> None:
    other = msgspec.structs.replace(KNOWN, user="bob", job_name="other")
    history = History(50)
    # The last job began at 170, and the longest ran for 100 s.
    for number, (end_s, wall_s) in enumerate([(100, 100), (180, 10), *[(190, 90)] * 6]):
        history.join(KNOWN, job(job_id=number + 1, end_s=end_s, wall_s=wall_s))
    families = likeness_of(KNOWN).families

    def at_rest() -> bool:
        evidence = history.evidence(KNOWN, enough=1)
        assert evidence is not None
        return evidence.at_rest

    seen = [(at_rest(), history.joined(families))]
    for end_s in (469, 470, 471):
        history.join(other, job(end_s=end_s))
        seen.append((at_rest(), history.joined(families)))
    (before, early, later, latest) = seen
    assert before == early == (False, before[1])
    assert later == latest == (True, later[1])
    assert later[1] > before[1]
    history.join(KNOWN, job(job_id=9, end_s=480, wall_s=5))
    assert not at_rest()


def test_only_the_recent_jobs_of_a_family_are_kept() -> None:
    history = filled([job(end_s=n) for n in range(9)], recent_jobs=3)
    assert all([one.end_s for one in jobs] == [6, 7, 8] for _, jobs in history.items())
    evidence = history.evidence(KNOWN, enough=1)
    assert evidence is not None
    assert len(evidence.jobs) == 3


def test_each_added_job_changes_what_a_family_weighs_relative_to_the_site() -> None:
    def weight() -> float:
        evidence = history.evidence(KNOWN, enough=1)
        assert evidence is not None
        return evidence.weight("memory")

    history = filled([job(asked_mem_mib=8000, wall_s=10)])
    assert weight() == 1.0
    other = msgspec.structs.replace(KNOWN, user="bob", job_name="other")
    history.add(other, job(asked_mem_mib=2000, wall_s=10))
    assert weight() == pytest.approx(8000 / 5000)
    # What others ask for above that does not count.
    history.add(other, job(asked_mem_mib=100_000, wall_s=10))
    assert weight() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("used_mib", "asked_mib", "highest", "streak"),
    [
        ((3000.0, 1000.0, 900.0), 2000, 1000.0, 2),
        ((1000.0, 3000.0, 900.0), 2000, 1000.0, 2),
        ((1000.0, 900.0, 3000.0), 2000, 1000.0, 1),
        ((1000.0, 2000.0, 900.0), 2000, 2000.0, 2),
        ((1000.0, 3000.0, 900.0), 4000, 3000.0, 2),
        ((1000.0, 3000.0, 900.0), None, 3000.0, 2),
    ],
)
def test_more_use_than_is_requested_now_is_a_surprise_but_gives_no_amount(
    used_mib: tuple[float, ...], asked_mib: int | None, highest: float, streak: int
) -> None:
    history = filled([job(mem_mib=mib, asked_mem_mib=None, end_s=n) for n, mib in enumerate(used_mib)])
    evidence = history.evidence(msgspec.structs.replace(KNOWN, mem_per_node_mib=asked_mib), enough=1)
    past = None if evidence is None else evidence.use("memory")
    assert past is not None
    assert (max(past.needed), past.streak) == (highest, streak)


def test_memory_is_unknown_where_all_used_more_than_is_requested_unless_one_was_killed() -> None:
    more = job(mem_mib=3000.0, asked_mem_mib=None)
    little = msgspec.structs.replace(KNOWN, mem_per_node_mib=2000)
    evidence = filled([more]).evidence(little, enough=1)
    assert evidence is not None
    assert evidence.use("memory") is None
    assert evidence.use("cores") is not None
    killed = filled([more, msgspec.structs.replace(more, mem_at_least=True)]).evidence(little, enough=1)
    assert killed is not None
    past = killed.use("memory")
    assert past is not None
    assert past.needed == (3000 * KILLED_BUMP,)


def test_an_unknown_job_is_judged_by_its_user_and_an_unknown_user_by_the_time_limit() -> None:
    history = History(50)
    assert history.wide_evidence(KNOWN, 1) is None
    for number, user in enumerate(("ann", "ann", "bob", "eve")):
        asked = msgspec.structs.replace(KNOWN, user=user, wall_s=60 if user == "eve" else 3600)
        history.join(asked, job(job_id=number + 1, end_s=number))

    def ends(user: str, wall_s: int | None, enough: int = 1) -> list[int] | None:
        found = history.wide_evidence(
            request(user=user, job_name="new", cpus_per_task=64, wall_s=wall_s), enough
        )
        return None if found is None else [one.end_s for one in found.jobs]

    assert ends("ann", 60) == [0, 1]
    assert ends("ann", 3600, enough=3) == [0, 1, 2]
    assert ends("stranger", 3600) == [0, 1, 2]
    assert ends("stranger", 60) == [3]
    assert ends("stranger", None) is None


def test_the_narrowest_family_with_enough_jobs_is_used() -> None:
    other = msgspec.structs.replace(KNOWN, script_signature="another")
    history = filled([job(), job()])
    for number in range(5):
        history.add(other, job(script=f"another-{number}"))
    narrow, wide = history.evidence(KNOWN, enough=2), history.evidence(KNOWN, enough=3)
    assert narrow is not None
    assert wide is not None
    assert (narrow.family[0], len(narrow.jobs)) == ("user+name+script", 2)
    assert (wide.family[0], len(wide.jobs)) == ("user+name", 7)
    assert history.evidence(request(job_name="unknown"), enough=1) is None
    assert history.evidence(request(user="bob"), enough=1) is None


def test_the_last_jobs_of_each_kind_before_the_recent_ones_are_remembered_too() -> None:
    amounts = {"asked_cpus": 8, "given_cpus": 8}
    whole = [job(job_id=n, end_s=n, **amounts) for n in range(1, 31)]
    two = [job(job_id=n, end_s=n, **{**amounts, "given_cpus": 2}) for n in range(31, 51)]
    four = [job(job_id=n, end_s=n, **{**amounts, "given_cpus": 4}) for n in range(51, 71)]
    all_jobs = [*whole, *two, *four]
    added, joined, loaded = filled(all_jobs, recent_jobs=10), History(10), History(10)
    for one in all_jobs:
        joined.join(KNOWN, one)
    for family, jobs in added.items():
        loaded.load(family, jobs, added.beside(family))
    for history in (added, joined, loaded):
        found = history.evidence(KNOWN, enough=1)
        assert found is not None
        assert [one.job_id for one in found.jobs] == [*range(61, 71)]
        assert [one.job_id for one in found.beside] == [*range(21, 31), *range(41, 61)]
        assert found.compared == (*found.beside, *found.jobs)
        far_more = msgspec.structs.replace(KNOWN, cpus_per_task=17)
        assert history.evidence(far_more, enough=1) is None
        # For families of a user or of a time limit, nothing is compared.
        assert {len(family) for family, _ in history.items() if history.beside(family)} == {3, 4}
        assert not history.discard(10)
        assert not vars(history)["_beside"]


@pytest.mark.parametrize(("later_s", "beside"), [(TELLS_S - 1, 10), (TELLS_S, 5)])
def test_a_job_that_had_less_counts_for_a_month_and_then_cutting_is_tried_again(
    later_s: int, beside: int
) -> None:
    """A program may change, so that cutting has to be tried again."""
    cut = {"asked_cpus": 8, "given_cpus": 2}
    past = [*[job(asked_cpus=8, given_cpus=8)] * 5, *[job(**cut)] * 5]
    found = filled([*past, job(end_s=past[-1].end_s + later_s, **cut)], recent_jobs=1).evidence(
        KNOWN, enough=1
    )
    assert found is not None
    assert len(found.beside) == beside


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, HAD_ALL),
        ({"given_cpus": 9}, HAD_ALL),
        ({"asked_cpus": None}, HAD_ALL),
        ({"given_mem_mib": None}, HAD_ALL),
        ({"given_mem_mib": 3999}, 1),
        ({"given_cpus": 7}, 6),
        ({"given_cpus": 4}, 6),
        ({"given_cpus": 3}, 4),
        ({"given_cpus": 3, "num_tasks": 2}, 4),
        ({"given_cpus": 2, "num_tasks": 2}, 2),
        ({"given_cpus": 7, "given_mem_mib": 3999}, 7),
        ({"given_cpus": 7, "asked_mem_mib": None}, 7),
        ({"given_cpus": None}, None),
        ({"given_cpus": 0}, None),
        ({"cores_per_task": None}, None),
        ({"complete": False}, None),
    ],
)
def test_jobs_are_of_one_kind_by_what_they_had(changes: dict[str, Any], kind: int | None) -> None:
    amounts = {"asked_cpus": 8, "given_cpus": 8, "asked_mem_mib": 4000, "given_mem_mib": 4000}
    assert kind_of(job(**(amounts | changes))) == kind


def test_a_changed_script_is_new_work_whatever_its_name() -> None:
    changed = msgspec.structs.replace(KNOWN, script_signature="another")
    history = filled([job(), job()])
    assert history.evidence(changed, enough=1) is None
    assert history.evidence(msgspec.structs.replace(KNOWN, script_signature=""), enough=1) is not None


def test_cached_looks_are_bounded_and_a_forgotten_one_comes_out_the_same_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("models.past.history.MOST_LOOKS", 10)
    history = filled([job(asked_mem_mib=mib, end_s=mib) for mib in range(40)])
    for mib in (*range(78), *range(78)):
        seen = history.evidence(msgspec.structs.replace(KNOWN, mem_per_node_mib=mib), enough=1)
        assert seen is not None
        assert min(one.asked_mem_mib or 0 for one in seen.jobs) == (mib // 2 + 1 if mib else 0)
        assert sum(len(past.seen) for past in vars(history)["_pasts"].values()) <= 10


def test_a_past_job_stored_before_shares_of_steps_were_known_has_none() -> None:
    stored = msgspec.json.decode(msgspec.json.encode(job(step_mem_mib=7, failed=True)))
    assert stored[-2:] == [7, True]
    old = msgspec.json.decode(msgspec.json.encode(stored[:-2]), type=PastJob)
    assert old == job(step_mem_mib=None, failed=False)
    # A record of a newer release is read as far as it is known.
    newer = msgspec.json.decode(msgspec.json.encode([*stored, "more"]), type=PastJob)
    assert newer == job(step_mem_mib=7, failed=True)


@pytest.mark.parametrize(("asked_cpus", "cpus_per_task"), [(8, 4), (1, 1), (None, None)])
def test_cpus_that_tasks_share_come_back_per_task(asked_cpus: int | None, cpus_per_task: int | None) -> None:
    shared = msgspec.structs.replace(attempt(), num_tasks=2, asked_cpus=asked_cpus)
    assert request_of(shared).cpus_per_task == cpus_per_task


def test_a_users_request_comes_back_per_task() -> None:
    asked = request_of(attempt(req_cpus=8, req_gpus=2))
    assert (asked.cpus_per_task, asked.mem_per_node_mib, asked.gpus_per_node, asked.wall_s) == (
        8,
        8000,
        2,
        3600,
    )


@pytest.mark.parametrize(
    ("state", "complete", "at_least"),
    [
        ("COMPLETED", True, False),
        ("TIMEOUT", True, False),
        ("OUT_OF_MEMORY", False, True),
        ("CANCELLED by 5", False, False),
    ],
)
def test_the_end_of_a_job_says_whether_its_need_was_seen(state: str, complete: bool, at_least: bool) -> None:
    past = past_job(attempt(state=state))
    assert (past.complete, past.mem_at_least) == (complete, at_least)


@pytest.mark.parametrize(
    ("state", "nodes", "short", "at_least"),
    [
        ("COMPLETED", 4, True, False),
        # A step of the job was killed, and the job went on.
        ("COMPLETED", 1, False, True),
        ("OUT_OF_MEMORY", 4, False, True),
    ],
)
def test_memory_counted_on_one_of_several_nodes_is_no_evidence(
    state: str, nodes: int, short: bool, at_least: bool
) -> None:
    ran = attempt(state=state, nodes=nodes)
    in_part = msgspec.structs.replace(ran, use=msgspec.structs.replace(ran.use, memory_quality="censored"))
    past = past_job(in_part)
    assert (past.mem_short, past.mem_at_least) == (short, at_least)


TIMES = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 10), st.integers(0, 30), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(TIMES)
def test_no_job_sees_one_that_ended_at_or_after_its_own_submission(
    times: list[tuple[int, int, int, bool]],
) -> None:
    attempts = []
    for number, (submit, wait, run, started) in enumerate(times):
        made = attempt(job_id=number, submit_s=T0 + submit, start_s=T0 + submit + wait, elapsed_s=run)
        row = made.row if started else msgspec.structs.replace(made.row, start_s=0)
        attempts.append(msgspec.structs.replace(made, row=row))
    history = History(100)
    seen: list[Attempt] = []
    for one, asked in replay(attempts, history):
        seen.append(one)
        known = next(iter(history.items()), (None, ()))[1]
        ended = [a.row.end_s for a in attempts if a.row.start_s and a.row.end_s < one.row.submit_s]
        assert sorted(past.end_s for past in known) == sorted(ended)
        assert asked == request_of(one)
    assert sorted(one.row.job_id for one in seen) == list(range(len(times)))
    assert [one.row.submit_s for one in seen] == sorted(one.row.submit_s for one in attempts)


def test_jobs_cancelled_while_they_waited_push_no_job_out() -> None:
    ran = [attempt(job_id=number, submit_s=T0 + 1000 * number) for number in range(3)]
    waited = [cancelled_while_it_waited(job_id=10 + number, submit_s=T0 + 5000) for number in range(9)]
    history = History(3)
    assert len(list(replay([*ran, *waited], history))) == 12
    known = {past.job_id for _, jobs in history.items() for past in jobs}
    assert known == {0, 1, 2}
    assert columns_of_attempts(waited).by_end().tolist() == []
    assert columns_of_attempts(ran).by_end().tolist() == [0, 1, 2]


JOBS = st.lists(
    st.builds(
        job,
        mem_mib=st.none() | st.floats(0, 1e6),
        cores_per_task=st.none() | st.floats(0, 128),
        wall_s=st.integers(0, 10**6),
        asked_mem_mib=st.none() | st.integers(0, 10**6),
        complete=st.booleans(),
        mem_at_least=st.booleans(),
    ),
    min_size=1,
    max_size=6,
)
MAY_BE_UNKNOWN = {
    "asked_over_max",
    "log_asked",
    "log_limit",
    "user_use_of_asked",
}


@given(JOBS, st.none() | st.integers(0, 10**6), st.sampled_from(LEARNED))
def test_features_are_complete_and_unknown_only_where_they_may_be(
    jobs: list[PastJob], asked_mib: int | None, dimension: Any
) -> None:
    history = History(50)
    asked = msgspec.structs.replace(KNOWN, mem_per_node_mib=None)
    for one in jobs:
        history.add(asked, msgspec.structs.replace(one, asked_mem_mib=None))
    asked = msgspec.structs.replace(asked, mem_per_node_mib=asked_mib)
    evidence = history.evidence(asked, enough=1)
    assert evidence is not None
    if evidence.use(dimension) is None:
        return
    values = features(asked, evidence, history.user_habit(asked), dimension)
    assert len(values) == len(FEATURES)
    unknown = {name for name, value in zip(FEATURES, values, strict=True) if math.isnan(value)}
    assert unknown <= MAY_BE_UNKNOWN
    assert not any(math.isinf(value) for value in values)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_figure_that_is_not_a_finite_number_is_unknown(odd: float) -> None:
    plain = attempt()
    broken = msgspec.structs.replace(
        plain, use=msgspec.structs.replace(plain.use, peak_mem_mib=odd, cores_per_task=odd)
    )
    job = past_job(broken)
    assert (job.mem_mib, job.cores_per_task) == (None, None)
