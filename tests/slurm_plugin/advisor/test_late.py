"""Pending jobs sized again: which may be changed, what they get, and what their token then says. No Slurm."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.decisions.decision import Fixed
from accounting.decisions.token import PREFIX, find_token, format_token
from accounting.request import Grant, granted
from slurm_plugin.advisor.late import RECOVERED, SCRIPT_NOT_KNOWN, Again
from slurm_plugin.advisor.standing import (
    CHANGED,
    CPUS_STAY,
    MORE_OF_NODE,
    NOTHING_ASKED,
    as_it_waits,
    cpus_must_stay,
)
from slurm_plugin.config.settings import Config, Policy, Rule
from slurm_plugin.policy.facts import Minimum, SiteFacts
from slurm_plugin.service.decide import decide
from tests.slurm_plugin.advisor.queued_late import ENFORCING, NOW_S, Known, Queued, sized


def test_a_job_submitted_before_anything_was_known_is_cut_later() -> None:
    again = sized(Queued().again(Known(200.0)))
    assert (again.change.cpus_per_task, again.change.mem_per_node_mib) == (1, 224)
    assert not again.raises
    token = find_token(again.change.admin_comment or "")
    assert token is not None
    assert (token.decision_id, token.was, token.mode) == ("second", "first", "enforce")
    assert (token.asked, token.granted) == ({"tasks": 1, "cpus": 8, "mem": 8000}, {"cpus": 1, "mem": 224})
    assert (again.decision.replaces, again.decision.applied) == ("first", True)
    assert (again.decision.fixed, again.decision.reason) == (Fixed(), "resized")
    assert again.change.reason == (
        "gets 1 CPU (you asked for 8), 224 MiB per node (you asked for 7.8 GiB), based on 5 earlier jobs"
    )


def test_a_job_gets_the_same_later_as_at_submission() -> None:
    known = Known(700.0, 2.5)
    again = sized(Queued().again(known))
    at_submit = Queued(known).answer.decision
    assert again.decision.grant == at_submit.grant
    assert again.decision.dimensions == at_submit.dimensions


@pytest.mark.parametrize(
    ("script", "kept"),
    [
        ("java -Xmx4g -jar x\n", {"cpus_per_task": 1, "mem_per_node_mib": 5120}),
        ("OMP_NUM_THREADS=6 ./fit\n", {"cpus_per_task": 6, "mem_per_node_mib": 224}),
        ("./fit $SLURM_MEM_PER_NODE\n", {"cpus_per_task": 1, "mem_per_node_mib": None}),
    ],
)
def test_a_floor_from_the_script_holds_without_the_script(script: str, kept: dict[str, int | None]) -> None:
    queued = Queued(Known(None, None))
    queued.asked = msgspec.structs.replace(queued.asked, script=script)
    queued.answer = decide(queued.asked, None, ENFORCING, "first", NOW_S - 60)
    queued.decisions = {"first": queued.answer.decision}
    change = sized(queued.again(Known(200.0))).change
    assert {name: getattr(change, name) for name in kept} == kept


def test_the_minimum_of_a_qos_holds_later_too() -> None:
    least = SiteFacts(qos_minimums={"normal": Minimum(cpus=4, mem_mib=4096)})
    change = sized(Queued(facts=least).again(Known(200.0))).change
    assert (change.cpus_per_task, change.mem_per_node_mib) == (4, 4096)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"state": "RUNNING"}, "started"),
        ({"batch": False}, "not-a-batch-job"),
        ({"het_job_id": 7}, "het_job"),
        ({"exclusive": True}, "exclusive"),
        ({"admin_comment": ""}, "no-token"),
        ({"admin_comment": "somebody's own words"}, "no-token"),
        ({"admin_comment": f"{PREFIX};id=first;mode=enforce"}, NOTHING_ASKED),
        ({"comment": "please rightsize=off"}, "opted-out"),
        ({"held": True, "reason": "job_requeued_in_held_state"}, "held-again"),
        ({"has_siblings": True}, "federation"),
        ({"cpus_per_task": 4}, CHANGED),
        ({"min_cpus": 16}, CHANGED),
        ({"mem_per_node_mib": 9000}, CHANGED),
        ({"mem_per_node_mib": None, "mem_per_cpu_mib": 1000}, CHANGED),
        ({"num_tasks": 2}, CHANGED),
    ],
)
def test_a_job_that_may_not_be_changed_is_left_with_a_reason(changes: dict[str, Any], reason: str) -> None:
    assert Queued().again(Known(200.0), **changes) == reason


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (Config(mode="observe"), "mode-observe"),
        (
            msgspec.structs.replace(ENFORCING, rules=(Rule(name="r", partition=("main",), mode="advise"),)),
            "mode-advise",
        ),
        (msgspec.structs.replace(ENFORCING, rules=(Rule(name="r", percent=0),)), "mode-observe"),
    ],
)
def test_the_current_rules_hold(config: Config, reason: str) -> None:
    assert Queued().again(Known(200.0), config) == reason


@pytest.mark.parametrize(
    ("rule", "now"),
    [
        (Rule(name="r", account=("guests",), mode="advise"), {"account": "guests"}),
        (Rule(name="r", qos=("guests",), mode="advise"), {"qos": "guests"}),
        (Rule(name="r", partition=("guests",), mode="advise"), {"partitions": ("guests",)}),
    ],
)
def test_a_job_that_was_moved_is_under_the_rules_of_its_new_place(rule: Rule, now: dict[str, Any]) -> None:
    config = msgspec.structs.replace(ENFORCING, rules=(rule,))
    assert isinstance(Queued().again(Known(200.0), config), Again)
    assert Queued().again(Known(200.0), config, **now) == "mode-advise"


def test_a_job_that_was_only_observed_stays_so() -> None:
    assert Queued(config=Config(mode="observe")).again(Known(200.0), ENFORCING) == "mode-observe"


def test_a_job_that_opted_out_at_submission_stays_so_whatever_its_comment_says_now() -> None:
    assert Queued(comment="rightsize=off").again(Known(200.0), comment="budget 7") == "opted-out"


def test_a_grant_that_the_hook_refused_is_not_tried_again() -> None:
    queued = Queued(Known(3000.0))
    token = format_token(queued.answer.decision).replace(";granted=", ";would=") + ";refused=coupled_field"
    assert queued.again(Known(200.0), admin_comment=token) == "refused:coupled_field"


def test_a_job_that_came_back_with_its_original_request_keeps_it() -> None:
    queued = Queued(Known(3000.0))
    token = format_token(queued.answer.decision) + ";recovery=out_of_memory:0"
    assert queued.again(Known(200.0), admin_comment=token) == RECOVERED


def test_without_a_model_or_evidence_nothing_changes() -> None:
    assert Queued().again(None) == "no-model"
    assert Queued().again(Known(None, None)) == "no-evidence"


def test_a_small_saving_is_not_worth_a_write() -> None:
    assert sized(Queued().again(Known(660.0))).change.mem_per_node_mib == 672
    assert Queued(Known(700.0)).again(Known(660.0)) == "fits", "704 MiB become 672"
    assert isinstance(Queued(Known(700.0)).again(Known(500.0)), Again)
    assert sized(Queued(Known(700.0, 4.0)).again(Known(700.0, 3.0))).change.cpus_per_task == 3
    any_saving = msgspec.structs.replace(ENFORCING, policy=Policy(min_saving=0.0))
    assert Queued(Known(700.0), any_saving).again(Known(700.0)) == "fits", "nothing is no saving"
    assert isinstance(Queued(Known(700.0), any_saving).again(Known(660.0)), Again)


def test_our_own_cut_is_raised_if_similar_jobs_have_needed_more() -> None:
    again = sized(Queued(Known(200.0)).again(Known(1000.0, 3.0)))
    assert again.raises
    assert (again.change.cpus_per_task, again.change.mem_per_node_mib) == (3, 1024)


def test_cpus_are_raised_though_memory_stays() -> None:
    again = sized(Queued(Known(200.0)).again(Known(200.0, 3.0)))
    assert again.raises
    assert (again.change.cpus_per_task, again.change.mem_per_node_mib) == (3, None)


def test_a_raise_ends_at_the_original_request() -> None:
    again = sized(Queued(Known(200.0)).again(Known(50_000.0, 30.0)))
    assert (again.change.cpus_per_task, again.change.mem_per_node_mib) == (8, 8000)
    token = find_token(again.change.admin_comment or "")
    assert token is not None
    assert (token.granted, token.asked["mem"], token.reason) == ({}, 8000, "fits")
    assert not again.decision.applied
    assert again.change.reason == "gets what was asked for, based on 5 earlier jobs"


def test_a_job_without_its_decision_is_never_cut_but_may_be_raised() -> None:
    queued = Queued(Known(700.0))
    queued.decisions = {}
    assert queued.again(Known(200.0)) == SCRIPT_NOT_KNOWN
    again = sized(queued.again(Known(2000.0, 0.5)))
    assert (again.change.mem_per_node_mib, again.change.cpus_per_task) == (2016, None)
    assert again.decision.fixed is None
    assert again.decision.request.script_signature == queued.answer.decision.request.script_signature


def test_a_job_decided_by_an_earlier_release_or_for_another_user_is_never_cut_either() -> None:
    queued = Queued()
    for decision in (
        msgspec.structs.replace(queued.answer.decision, fixed=None),
        msgspec.structs.replace(
            queued.answer.decision,
            request=msgspec.structs.replace(queued.answer.decision.request, user="eve"),
        ),
    ):
        queued.decisions = {"first": decision}
        assert queued.again(Known(200.0)) == SCRIPT_NOT_KNOWN


def test_a_write_that_was_cut_off_after_its_token_is_repeated() -> None:
    queued = Queued()
    token = sized(queued.again(Known(200.0))).change.admin_comment
    again = sized(queued.again(Known(200.0), admin_comment=token))
    assert (again.change.cpus_per_task, again.change.mem_per_node_mib) == (1, 224)
    assert again.decision.replaces == "second"


def test_a_job_whose_user_restored_the_request_is_left_alone() -> None:
    assert Queued(Known(700.0)).again(Known(200.0), mem_per_node_mib=8000) == CHANGED


def test_words_of_other_tools_in_the_comment_are_kept() -> None:
    queued = Queued()
    ours = format_token(queued.answer.decision)
    comment = f"JS1:abc {ours} budget=7"
    again = sized(queued.again(Known(200.0), admin_comment=comment))
    assert again.change.admin_comment == f"JS1:abc {format_token(again.decision)} budget=7"


def test_gpus_stay_as_they_were_granted() -> None:
    queued = Queued(Known(700.0, 2.0, 2.0), gpus_per_node=4)
    again = sized(queued.again(Known(200.0, 1.0, 3.0)))
    assert again.decision.grant == Grant(cpus_per_task=1, mem_per_node_mib=224, gpus_per_node=2)
    gpus = next(one for one in again.decision.dimensions if one.dimension == "gpus")
    assert (gpus.asked, gpus.granted) == (4, 2)
    whole = sized(queued.again(Known(50_000.0, 30.0, 3.0))).decision
    assert (whole.grant, whole.applied, whole.reason) == (Grant(gpus_per_node=2), True, "resized")


def test_memory_that_comes_with_gpus_stays_as_it_was_granted() -> None:
    queued = Queued(Known(700.0, 4.0, 2.0), gpus_per_node=4, mem_per_node_mib=None, mem_per_gpu_mib=4000)
    at_submit = queued.answer.decision.grant
    assert at_submit.mem_per_gpu_mib is not None
    again = sized(queued.again(Known(200.0, 1.0, 1.0)))
    assert again.decision.grant == msgspec.structs.replace(at_submit, cpus_per_task=1)


def test_a_memory_share_above_the_limit_is_sized_with_the_cpus_that_slurm_makes_of_it() -> None:
    """MaxMemPerCPU is 2000: slurmctld has turned the request into 16 CPUs of 2000 MiB."""
    queued = Queued(mem_per_node_mib=None, mem_per_cpu_mib=4000)
    change = sized(queued.again(Known(3000.0), cpus_per_task=16, mem_per_cpu_mib=2000)).change
    assert (change.cpus_per_task, change.mem_per_cpu_mib) == (1, 3008)
    fewer = sized(queued.again(Known(3000.0, None), cpus_per_task=16, mem_per_cpu_mib=2000)).change
    assert (fewer.cpus_per_task, fewer.mem_per_cpu_mib) == (8, 376)
    assert queued.again(Known(3000.0), cpus_per_task=16, mem_per_cpu_mib=1999) == CHANGED


def test_a_request_for_memory_per_cpu_stays_per_cpu() -> None:
    queued = Queued(mem_per_node_mib=None, mem_per_cpu_mib=1000)
    again = sized(queued.again(Known(200.0)))
    assert again.change.mem_per_node_mib is None
    assert again.change.cpus_per_task == 1
    assert (again.change.mem_per_cpu_mib or 1000) <= 1000
    assert queued.again(Known(200.0), mem_per_cpu_mib=900) == CHANGED
    # A task without a number of CPUs has one.
    alone = sized(Queued(cpus_per_task=None, mem_per_node_mib=None, mem_per_cpu_mib=1000).again(Known(200.0)))
    assert (alone.change.cpus_per_task, alone.change.mem_per_cpu_mib) == (1, 224)


def test_a_job_is_sized_by_the_limit_account_and_qos_that_it_has_now() -> None:
    queued = Queued(time_limit_min=60, account="chem", qos="long")
    asked = queued.answer.decision.request
    as_asked = as_it_waits(asked, queued.job(account="", qos="", limit_s=None))
    assert (as_asked.account, as_asked.qos, as_asked.wall_s) == ("chem", "long", 3600)
    now = as_it_waits(asked, queued.job(account="phys", qos="short", limit_s=7200))
    assert (now.account, now.qos, now.wall_s) == ("phys", "short", 7200)


@given(
    first=st.none() | st.floats(1, 20_000),
    then=st.floats(1, 20_000),
    cores=st.floats(0.01, 20),
    asked_mib=st.integers(200, 16_000),
    asked_cpus=st.integers(1, 16),
    per_cpu=st.booleans(),
    tasks=st.integers(1, 4),
)
def test_no_size_is_above_the_request_or_below_the_floor(
    first: float | None, then: float, cores: float, asked_mib: int, asked_cpus: int, per_cpu: bool, tasks: int
) -> None:
    kind = "mem_per_cpu_mib" if per_cpu else "mem_per_node_mib"
    asked: dict[str, Any] = {
        "mem_per_node_mib": None,
        kind: asked_mib,
        "cpus_per_task": asked_cpus,
        "num_tasks": tasks,
    }
    queued = Queued(Known(first, cores / 2), **asked)
    again = queued.again(Known(then, cores))
    if isinstance(again, str):
        return
    request = queued.answer.decision.request
    after = granted(request, again.decision.grant)
    assert 1 <= (after.cpus_per_task or 1) <= asked_cpus
    assert after.mem_mib is not None
    assert min(Policy().memory_floor_mib, request.mem_mib or 0) <= after.mem_mib <= (request.mem_mib or 0)
    assert after.mem_mib >= min(then, request.mem_mib or 0)


@pytest.mark.parametrize(
    ("release", "stay"),
    [
        ((22, 5, 8), False),
        ((23, 11, 0), True),
        ((24, 11, 0), True),
        ((24, 11, 1), False),
        ((26, 5, 5), False),
    ],
)
def test_cpus_stay_on_some_releases(release: tuple[int, ...], stay: bool) -> None:
    assert cpus_must_stay(release) is stay


def test_memory_per_node_is_sized_alone_where_cpus_stay() -> None:
    again = sized(Queued(Known(700.0, 4.0)).again(Known(200.0, 1.0), cpus_stay=True))
    assert again.decision.grant == Grant(cpus_per_task=4, mem_per_node_mib=224)
    assert (again.change.cpus_per_task, again.change.mem_per_node_mib) == (None, 224)
    cores = next(one for one in again.decision.dimensions if one.dimension == "cores")
    assert (cores.granted, cores.reason) == (4, f"kept as asked: {CPUS_STAY}")
    per_cpu = Queued(mem_per_node_mib=None, mem_per_cpu_mib=1000)
    assert per_cpu.again(Known(200.0), cpus_stay=True) == f"form-not-handled:{CPUS_STAY}"


@pytest.mark.parametrize(
    ("tasks", "other", "least", "stay"),
    [
        (8, (), 8, True),
        (8, (), 4, False),
        (8, ("NtasksPerN:B:S:C=4:0:*:*",), 16, False),
        # Slurm itself sets it, for memory above MaxMemPerCPU.
        (1, (), 8, False),
    ],
)
def test_cpus_of_a_node_that_a_user_has_set_stay(
    tasks: int, other: tuple[str, ...], least: int, stay: bool
) -> None:
    """`-n 8 -c 4` waited with MinCPUsNode=8, and had 2 of them left (22.05)."""
    queued = Queued(num_tasks=tasks, cpus_per_task=4, ntasks_per_node=4 if other else None)
    again = sized(queued.again(Known(200.0, 1.0), other=other, min_cpus_per_node=least))
    cores = next(one for one in again.decision.dimensions if one.dimension == "cores")
    assert (cores.reason == f"kept as asked: {MORE_OF_NODE}") is stay
    assert (again.change.cpus_per_task, again.change.mem_per_node_mib) == (None if stay else 1, 224)
