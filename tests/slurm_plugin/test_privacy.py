"""An answer rests only on the user's own past, and no reply or metric names anybody else."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from accounting.decisions.decision import encode_decision
from accounting.pseudonyms import Pseudonyms
from accounting.request import JobRequest
from models.demand.prediction import ChainSettings, Predictor
from models.past.attempts import past_job, request_of
from models.past.families import cohort_key, family_keys
from models.past.history import History
from slurm_plugin.config.settings import Config
from slurm_plugin.doctor import metrics
from slurm_plugin.policy.facts import MemoryTerms, SiteFacts
from slurm_plugin.service.decide import Answer, decide, reply_to
from slurm_plugin.service.protocol import encode_reply
from tests.builders import past, submission

NAMES = st.text(min_size=1, max_size=12)
MINE = "alice"
OTHERS = ("bob", "carol")


def history_of(users: tuple[str, ...]) -> History:
    """Return the same jobs for each of these users; what the jobs used differs by user."""
    history = History(50)
    for number, user in enumerate(users):
        for attempt in past(30):
            job = past_job(attempt)
            used_mib = None if job.mem_mib is None else job.mem_mib * (1 + 7 * number)
            renamed = msgspec.structs.replace(request_of(attempt), user=user)
            history.add(renamed, msgspec.structs.replace(job, mem_mib=used_mib))
    return history


def decided(history: History, user: str) -> Answer:
    predictor = Predictor("v1", history, {}, ChainSettings())
    job = msgspec.structs.replace(
        submission(cpus_per_task=8, mem_per_node_mib=8000, gpus_per_node=4), user=user
    )
    return decide(job, predictor, Config(mode="enforce"), "d", 1.0, SiteFacts(memory=MemoryTerms()))


def answer_of(history: History, user: str) -> bytes:
    return encode_reply(reply_to("7", decided(history, user)))


@given(NAMES, NAMES, NAMES, NAMES)
def test_every_family_and_every_cohort_belongs_to_one_user(
    user: str, name: str, script: str, account: str
) -> None:
    request = JobRequest(user=user, account=account, job_name=name, script_signature=script)
    assert all(family[1] == user for family in (*family_keys(request), cohort_key(request)))


def test_an_answer_does_not_depend_on_jobs_of_others() -> None:
    alone, among_others = answer_of(history_of((MINE,)), MINE), answer_of(history_of((MINE, *OTHERS)), MINE)
    assert b"earlier jobs of alice" in alone
    assert among_others == alone


def test_a_user_without_a_past_is_told_nothing_from_the_jobs_of_others() -> None:
    reply = answer_of(history_of((MINE, *OTHERS)), "dave")
    assert b'"grant"' not in reply
    assert b'"message"' not in reply
    assert not any(name.encode() in reply for name in (MINE, *OTHERS))


def test_a_decision_under_pseudonyms_names_nobody() -> None:
    decision = decided(history_of((MINE,)), MINE).decision
    name = decision.request.job_name
    assert any(f"{MINE} named {name}" in one.reason for one in decision.dimensions)
    hidden = encode_decision(Pseudonyms(b"0123456789abcdef" * 2).decision(decision))
    assert not any(word.encode() in hidden for word in (MINE, f'"{name}"', f" {name}"))


def test_metrics_name_nobody() -> None:
    """Prometheus' file shows only figures of the whole site, or of one of its checks, resources or brakes."""
    labels = {
        value[2]
        for value in vars(metrics).values()
        if isinstance(value, tuple) and len(value) == 3 and all(isinstance(part, str) for part in value)
    }
    assert labels
    assert not labels & {"user", "account", "family", "job", "name", "path", "partition"}
