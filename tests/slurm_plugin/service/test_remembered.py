"""A repeated submission gets the same answer without another call of the model; so does a submission like it."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from accounting.decisions.decision import Decision
from accounting.request import JobRequest
from models.demand.chain import Growth
from models.demand.features import FEATURES
from models.demand.prediction import ChainSettings, Predictor
from models.past.attempts import past_job, request_of
from models.past.history import History
from slurm_plugin.config.settings import Brakes, Config, Rule
from slurm_plugin.policy.braked import family_brake
from slurm_plugin.policy.facts import ANYBODY, MemoryTerms, SiteFacts
from slurm_plugin.policy.submission import Submission, job_request
from slurm_plugin.service.decide import Answer, decide, decide_request
from slurm_plugin.service.remembered import Remembered
from slurm_plugin.slurm.limits import parse_qos_maximums
from tests.builders import SCRIPT, attempt, past, submission


class Asked:
    """Decides nothing, and counts how often it is asked."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(
        self,
        _one: Submission,
        request: JobRequest,
        _predictor: Predictor | None,
        _facts: SiteFacts,
        name: str,
        now_s: float,
    ) -> Answer:
        self.times += 1
        plain = Decision(id=name, time_s=now_s, mode="enforce", applied=False, reason="fits", request=request)
        return Answer(decision=plain, prediction=None, message=f"answer {self.times}")


FACTS = SiteFacts()


def model() -> Predictor:
    return Predictor("m", History(5), {}, ChainSettings())


def test_the_same_submission_is_decided_once_but_with_its_own_id_and_time() -> None:
    asked, predictor = Asked(), model()
    remembered = Remembered(asked)
    first = remembered.answer(submission(cpus_per_task=8), predictor, FACTS, "a", 1.0)
    second = remembered.answer(submission(cpus_per_task=8), predictor, FACTS, "b", 2.0)
    assert asked.times == 1
    assert first.message == second.message
    assert (first.decision.id, second.decision.id, second.decision.time_s) == ("a", "b", 2.0)


def test_an_answer_is_remembered_when_nothing_waits_or_before_the_next_one() -> None:
    asked, predictor = Asked(), model()
    remembered = Remembered(asked)
    for name in ("one", "two", "one", "two"):
        remembered.answer(submission(name=name), predictor, FACTS, "a", 1.0)
        if name == "one":
            remembered.settle()
    remembered.settle()
    assert asked.times == 2


def test_an_answer_holds_until_a_job_like_it_has_ended() -> None:
    asked, predictor = Asked(), model()
    remembered, same = Remembered(asked), submission(user="alice", name="fit1", script=SCRIPT)
    for user, times in ((None, 1), ("eve", 1), ("alice", 2)):
        if user:
            ended = attempt(user=user, job_name="fit7")
            assert predictor.join(request_of(ended), past_job(ended))
        remembered.answer(same, predictor, FACTS, "a", 1.0)
        assert asked.times == times


def test_answers_without_a_model_are_remembered_too() -> None:
    asked = Asked()
    remembered = Remembered(asked)
    for _ in range(2):
        remembered.answer(submission(), None, FACTS, "a", 1.0)
    assert asked.times == 1


def test_an_answer_of_the_old_model_is_not_remembered_for_the_new_one() -> None:
    asked, predictors = Asked(), (model(), model())
    remembered = Remembered(asked)
    for predictor in (*predictors, predictors[0]):
        remembered.answer(submission(), predictor, FACTS, "a", 1.0)
        remembered.settle()
    assert asked.times == 3


def test_any_difference_makes_another_submission() -> None:
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


def test_an_answer_holds_for_ten_minutes_and_never_before_it_was_given() -> None:
    asked, predictor = Asked(), model()
    remembered = Remembered(asked)
    times = []
    for now_s in (1000.0, 1600.0, 1600.5, 1599.0):
        remembered.answer(submission(), predictor, FACTS, "a", now_s)
        times.append(asked.times)
    assert times == [1, 1, 2, 3]


def test_a_rehearsal_asks_anew_each_time_also_without_a_model() -> None:
    asked = Asked()
    remembered = Remembered(asked)
    for predictor in (None, None, model()):
        remembered.rehearse(submission(), predictor, FACTS, "a", 1.0)
    assert asked.times == 3


def test_the_oldest_answer_is_dropped_when_there_are_too_many() -> None:
    asked, predictor = Asked(), model()
    remembered = Remembered(asked, most=2)
    for name in ("one", "two", "one", "three", "one"):
        remembered.answer(submission(name=name), predictor, FACTS, "a", 1.0)
    assert asked.times == 3  # «two» was the one not used when «three» came
    for name in ("four", "one", "five", "six", "one"):
        remembered.answer(submission(name=name), predictor, FACTS, "a", 1.0)
    assert asked.times == 7


def test_a_number_in_the_name_and_the_time_limit_change_no_decision() -> None:
    asked, predictor = Asked(), model()
    remembered = Remembered(asked)
    ones = [submission(name=f"fit-{number}", time_limit_min=10 + number) for number in range(3)]
    answers = [
        remembered.answer(one, predictor, FACTS, f"{n}", 1.0 + n) for n, one in enumerate([*ones, ones[0]])
    ]
    assert asked.times == 1
    assert [answer.decision.request for answer in answers] == [job_request(one) for one in (*ones, ones[0])]
    assert [answer.decision.id for answer in answers] == ["0", "1", "2", "3"]


def test_a_script_that_does_the_same_and_fixes_as_much_changes_no_decision() -> None:
    asked, predictor = Asked(), model()
    remembered = Remembered(asked)
    for options in ("-Xmx1g 1", "-Xmx1g 2", "-Xmx2g 1", "-Xmx2g 3", "-Xmx1g 3", "-Xmx1g x"):
        remembered.answer(submission(script=f"#!/bin/sh\njava {options}\n"), predictor, FACTS, "a", 1.0)
    assert asked.times == 3  # another heap, and another word


def test_a_name_that_differs_in_more_than_its_number_is_decided_anew() -> None:
    asked, predictor = Asked(), model()
    remembered = Remembered(asked)
    for name in ("fit-1", "fat-1", "fit", "fit-1.sh"):
        remembered.answer(submission(name=name), predictor, FACTS, "a", 1.0)
    assert asked.times == 3  # the last is the first without its ending


def learned(*, with_growth: bool) -> Predictor:
    """Return a predictor of settled families; its growth model depends only on the time limit."""
    history = History(100)
    for one in past(jobs=120):
        history.add(request_of(one), past_job(one))
    limit = FEATURES.index("log_limit")
    growth = Growth(lambda seen: seen[limit] / 100, 0.0)
    return Predictor(
        "m", history, {"memory": growth, "cores": growth} if with_growth else {}, ChainSettings()
    )


PREDICTORS = {told: learned(with_growth=told) for told in (False, True)}
SITE = Config(
    mode="enforce",
    rules=(Rule(name="half", user=("alice",), percent=50),),
    brakes=Brakes(control_share=0.2),
)
KNOWN = SiteFacts(memory=MemoryTerms(), brakes=frozenset({family_brake("alice", "plot")}))
# Everybody's QOS refuses more than 480 minutes of a CPU.
LIMITED = msgspec.structs.replace(
    KNOWN,
    qos_maximums=parse_qos_maximums("normal||DenyOnLimit||||||cpu=480\n"),
    given_qos={ANYBODY: frozenset({"normal"})},
)
# batchtools takes what sbatch says for a job's number.
DUMB = f"{SCRIPT}# batchtools::doJobCollection()\n"


def test_the_time_limit_counts_if_slower_jobs_are_accepted_or_a_qos_refuses_minutes() -> None:
    slower = Predictor("m", History(5), {}, ChainSettings(most_slowdown=0.1))
    for predictor, facts in ((slower, FACTS), (model(), LIMITED)):
        asked = Asked()
        remembered = Remembered(asked)
        for minutes in (10, 20, 10):
            remembered.answer(submission(time_limit_min=minutes), predictor, facts, "a", 1.0)
        assert asked.times == 2


def test_a_script_whose_tool_misreads_messages_is_decided_apart() -> None:
    asked, predictor = Asked(), model()
    remembered = Remembered(asked)
    for script in (SCRIPT, DUMB, SCRIPT):
        remembered.answer(submission(script=script), predictor, FACTS, "a", 1.0)
    assert asked.times == 2


SUBMISSIONS = st.builds(
    submission,
    user=st.sampled_from(["alice", "bob"]),
    name=st.sampled_from(
        ["fit", "fit-1", "fit-27", "sim.sh", "sim_3", "plot9", "run", "0c", "e3b0c44298fc1c14-7", ""]
    ),
    script=st.sampled_from(
        [
            SCRIPT,
            DUMB,
            *(f"#!/bin/sh\n./other -Xmx{heap}g {number}\n" for heap in (1, 2) for number in (3, 4)),
            "",
        ]
    ),
    comment=st.sampled_from(["", "rightsize=off"]),
    time_limit_min=st.sampled_from([None, 5, 60, 100_000]),
    cpus_per_task=st.sampled_from([None, 1, 8]),
    mem_per_node_mib=st.sampled_from([None, 900, 16_000]),
    other=st.sampled_from([(), ("exclusive",), ("threads_per_core",)]),
)


@given(
    with_growth=st.booleans(),
    site=st.sampled_from([KNOWN, LIMITED]),
    ones=st.lists(SUBMISSIONS, min_size=2, max_size=12),
)
def test_a_remembered_answer_is_what_would_be_decided(
    *, with_growth: bool, site: SiteFacts, ones: list[Submission]
) -> None:
    predictor = PREDICTORS[with_growth]
    remembered = Remembered(
        lambda one, request, model, facts, name, now_s: decide_request(
            one, request, model, SITE, name, now_s, facts
        )
    )
    for number, one in enumerate(ones):
        name, now_s = f"{number:012x}", float(number)
        assert remembered.answer(one, predictor, site, name, now_s) == decide(
            one, predictor, SITE, name, now_s, site
        )


def test_a_settled_family_with_a_growth_model_is_decided_by_its_time_limit() -> None:
    one = submission(user="alice", name="fit", mem_per_node_mib=15_000, cpus_per_task=8)
    grants = {
        told: [
            decide(
                msgspec.structs.replace(one, time_limit_min=minutes), predictor, SITE, "a", 1.0, KNOWN
            ).decision.grant
            for minutes in (5, 100_000)
        ]
        for told, predictor in PREDICTORS.items()
    }
    assert grants[False][0] == grants[False][1]
    assert grants[True][0] != grants[True][1]
