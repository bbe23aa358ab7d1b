"""A brake on jobs like a pending one gives it back its request: which job, how much, what is recorded. No Slurm."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from accounting.decisions.token import find_token
from accounting.request import Grant
from slurm_plugin.advisor.standing import CHANGED
from slurm_plugin.brakes.words import words_of
from slurm_plugin.policy.braked import ALL, Brake, family_brake, partition_brake
from slurm_plugin.policy.facts import SiteFacts
from tests.slurm_plugin.advisor.queued_late import Known, Queued, sized

FIT = family_brake("alice", "fit7")
BRAKES = (FIT, partition_brake("main"), ALL)


def stopped(queued: Queued, brake: Brake = FIT) -> Queued:
    """Return the same job, once a brake applies to it."""
    queued.facts = msgspec.structs.replace(queued.facts, brakes=frozenset({brake}))
    return queued


@pytest.mark.parametrize("brake", BRAKES)
@pytest.mark.parametrize("known", [Known(200.0), Known(None, None), None])
def test_a_brake_gives_back_what_was_cut_whatever_is_predicted(brake: Brake, known: Known | None) -> None:
    again = sized(stopped(Queued(Known(200.0)), brake).again(known))
    assert again.raises
    assert (again.change.cpus_per_task, again.change.mem_per_node_mib) == (8, 8000)
    assert again.change.reason == f"gets what was asked for, as cutting {words_of(brake)} is stopped"
    token = find_token(again.change.admin_comment or "")
    assert token is not None
    assert (token.decision_id, token.was, token.reason, token.granted) == ("second", "first", "braked", {})
    assert not again.decision.applied
    assert {one.dimension: (one.asked, one.granted) for one in again.decision.dimensions} == {
        "memory": (8000, 8000),
        "cores": (8, 8),
    }
    assert {one.reason for one in again.decision.dimensions} == {f"cutting {words_of(brake)} is stopped"}


def test_what_was_never_asked_for_is_not_said_to_be_given_back() -> None:
    again = sized(stopped(Queued(Known(200.0), cpus_per_task=None)).again(None))
    assert [one.dimension for one in again.decision.dimensions] == ["memory"]


def test_a_brake_gives_back_all_to_a_job_that_other_clusters_may_run() -> None:
    assert sized(stopped(Queued(Known(200.0))).again(Known(200.0), has_siblings=True)).raises


def test_a_brake_on_others_gives_nothing_back() -> None:
    for brake in (family_brake("eve", "fit1"), family_brake("alice", "sim"), partition_brake("gpu")):
        assert stopped(Queued(Known(200.0)), brake).again(Known(200.0)) == "fits"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"state": "RUNNING"}, "started"),
        ({"comment": "please rightsize=off"}, "opted-out"),
        ({"mem_per_node_mib": 9000}, CHANGED),
        ({"admin_comment": ""}, "no-token"),
    ],
)
def test_a_brake_gives_nothing_to_a_job_that_late_sizing_may_not_change(
    changes: dict[str, Any], reason: str
) -> None:
    assert stopped(Queued(Known(200.0))).again(None, **changes) == reason


def test_a_brake_leaves_a_job_alone_that_has_its_whole_request() -> None:
    assert stopped(Queued()).again(Known(200.0)) == "braked"


def test_a_brake_gives_back_cpus_and_memory_but_no_gpus_without_the_decision_too() -> None:
    queued = stopped(Queued(Known(700.0, 2.0, 1.0), gpus_per_node=4))
    for decisions in (queued.decisions, {}):
        queued.decisions = decisions
        again = sized(queued.again(None))
        assert again.decision.grant == Grant(gpus_per_node=1)
        assert again.decision.applied
        assert (again.change.cpus_per_task, again.change.mem_per_node_mib) == (8, 8000)


def test_giving_back_that_was_cut_off_after_its_token_is_repeated() -> None:
    queued = stopped(Queued(Known(200.0)))
    token = sized(queued.again(None)).change.admin_comment
    again = sized(queued.again(None, admin_comment=token))
    assert (again.change.cpus_per_task, again.change.mem_per_node_mib) == (8, 8000)
    assert again.decision.replaces == "second"


def test_a_job_is_sized_again_once_a_person_releases_the_brake() -> None:
    queued = stopped(Queued(Known(200.0)))
    token = sized(queued.again(None)).change.admin_comment
    whole: dict[str, Any] = {"admin_comment": token, "cpus_per_task": 8, "mem_per_node_mib": 8000}
    assert queued.again(Known(200.0), **whole) == "braked"
    queued.facts = SiteFacts()
    assert sized(queued.again(Known(200.0), **whole)).change.mem_per_node_mib == 224
