"""A submission that was seen before gets the same answer, without asking the model again."""

import msgspec

from accounting.decisions import Decision
from models.demand.prediction import ChainSettings, Predictor
from models.history import History
from slurm_plugin.policy.facts import SiteFacts
from slurm_plugin.policy.submission import Submission, job_request
from slurm_plugin.service.decide import Answer
from slurm_plugin.service.remembered import Remembered
from tests.builders import submission


class Asked:
    """Decides nothing, and counts how often it is asked."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(
        self,
        one: Submission,
        _predictor: Predictor | None,
        _facts: SiteFacts,
        name: str,
        now_s: float,
        input_mib: float | None,
    ) -> Answer:
        self.times += 1
        request = msgspec.structs.replace(job_request(one), input_mib=input_mib)
        plain = Decision(id=name, time_s=now_s, mode="enforce", applied=False, reason="fits", request=request)
        return Answer(decision=plain, prediction=None, message=f"answer {self.times}")


FACTS = SiteFacts()


def model() -> Predictor:
    return Predictor("m", History(5), {}, ChainSettings())


def test_the_same_submission_is_decided_once_with_an_id_and_time_of_its_own() -> None:
    asked, predictor = Asked(), model()
    remembered = Remembered(asked)
    first = remembered.answer(submission(cpus_per_task=8), predictor, FACTS, "a", 1.0)
    second = remembered.answer(submission(cpus_per_task=8), predictor, FACTS, "b", 2.0)
    assert asked.times == 1
    assert first.message == second.message
    assert (first.decision.id, second.decision.id, second.decision.time_s) == ("a", "b", 2.0)


def test_any_difference_is_another_submission() -> None:
    asked, predictor = Asked(), model()
    remembered = Remembered(asked)
    for one in (
        submission(),
        submission(user="bob"),
        submission(script="#!/bin/sh\n"),
        submission(comment="x"),
    ):
        remembered.answer(one, predictor, FACTS, "a", 1.0)
    assert asked.times == 4


def test_the_same_submission_with_another_input_is_decided_anew() -> None:
    asked, predictor = Asked(), model()
    remembered = Remembered(asked)
    sizes = (None, 10.0, 20.0, 10.0, None)
    answers = [remembered.answer(submission(), predictor, FACTS, "a", 1.0, size) for size in sizes]
    assert asked.times == 3
    assert [answer.decision.request.input_mib for answer in answers] == list(sizes)
    assert answers[1].message == answers[3].message != answers[2].message


def test_a_new_model_forgets_all_answers() -> None:
    asked = Asked()
    remembered = Remembered(asked)
    for predictor in (model(), model(), None):
        remembered.answer(submission(), predictor, FACTS, "a", 1.0)
    assert asked.times == 3


def test_changed_facts_forget_all_answers() -> None:
    asked, predictor = Asked(), model()
    remembered = Remembered(asked)
    for facts in (FACTS, FACTS, SiteFacts()):
        remembered.answer(submission(), predictor, facts, "a", 1.0)
    assert asked.times == 2


def test_the_oldest_answer_is_dropped_when_there_are_too_many() -> None:
    asked, predictor = Asked(), model()
    remembered = Remembered(asked, most=2)
    for name in ("one", "two", "one", "three", "one", "two"):
        remembered.answer(submission(name=name), predictor, FACTS, "a", 1.0)
    assert asked.times == 4  # «two» was the one not used when «three» came
