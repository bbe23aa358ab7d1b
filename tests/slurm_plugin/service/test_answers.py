"""What the service answers, line by line, without a socket."""

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec
import pytest

from accounting.decisions.decision import decode_decision
from accounting.decisions.token import find_token
from accounting.errors import ServiceError
from accounting.request import Grant
from models.past.families import script_signature
from slurm_plugin.config.settings import Policy, Rule
from slurm_plugin.policy.submission import job_request
from slurm_plugin.service.afterwards import Work
from slurm_plugin.service.answers import Answers
from slurm_plugin.service.connections import Handler
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.decide import NO_FACTS, decide_request
from slurm_plugin.service.input_sizes import InputSizes
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.protocol import decode_reply
from slurm_plugin.service.remembered import Remembered
from tests.builders import SCRIPT
from tests.conftest import Site, TrainedModel
from tests.full_disk import fill
from tests.slurm_plugin.service.asking import KNOWN, asked, handler_of, install, line_of, model_in_use


def test_enforce_mode_grants_less_leaves_the_token_and_tells_the_user(
    site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    answer = decode_reply(asked(handler_of(site), line_of(KNOWN, "abc")))
    assert answer.id == "abc"
    assert answer.grant.cpus_per_task == 1 or answer.grant.cpus_per_task == 2
    assert answer.grant.mem_per_node_mib is not None
    assert answer.grant.mem_per_node_mib < 2000
    assert answer.grant.gpus_per_node == 1
    assert answer.message.startswith("rightsizer: this job gets")
    token = find_token(answer.token)
    assert token is not None
    assert token.asked == {"tasks": 1, "cpus": 8, "mem": 8000, "gpus": 4}
    assert token.granted == {
        "cpus": answer.grant.cpus_per_task,
        "mem": answer.grant.mem_per_node_mib,
        "gpus": 1,
    }
    assert (token.model, token.signature) == (trained_model.version, script_signature(KNOWN.script))


def test_a_job_of_a_tool_that_misreads_messages_is_cut_without_one(
    site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    # A remark does not change what the script does.
    misread = msgspec.structs.replace(KNOWN, script=f"{KNOWN.script}\n# batchtools::doJobCollection()\n")
    answer = decode_reply(asked(handler_of(site), line_of(misread)))
    assert (bool(answer.grant), answer.message) == (True, "")


@pytest.mark.parametrize(("mode", "told"), [("observe", False), ("advise", True)])
def test_other_modes_grant_nothing(mode: str, told: bool, site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.configure(mode=mode)
    answer = decode_reply(asked(handler_of(site), line_of(KNOWN)))
    assert (answer.grant, bool(answer.message)) == (Grant(), told)
    assert ";would=cpus:" in answer.token
    token = find_token(answer.token)
    assert token is not None
    assert (token.mode, token.granted) == (mode, {})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"comment": "rightsize=off"}, "opted-out"),
        ({"other": ("array",)}, "form-not-handled:array"),
        ({"batch": False, "mem_per_node_mib": None}, "not-a-batch-job"),
        ({"user": "stranger"}, "no-evidence"),
        ({"cpus_per_task": 1, "mem_per_node_mib": 100, "gpus_per_node": 1}, "fits"),
    ],
)
def test_a_job_that_is_left_alone_gets_its_reason(
    changes: dict[str, Any], reason: str, site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    answer = decode_reply(asked(handler_of(site), line_of(msgspec.structs.replace(KNOWN, **changes))))
    token = find_token(answer.token)
    assert token is not None
    assert (answer.grant, answer.message, token.reason) == (Grant(), "", reason)


@pytest.mark.parametrize(
    ("starts", "site_wants", "cut"),
    [
        ("./start lab", {}, True),
        ("jupyter lab", {}, False),
        ("jupyter lab", {"policy": Policy(cut_sessions=True)}, True),
        ("jupyter lab", {"rules": (Rule(name="lab", user=(KNOWN.user,), cut_sessions=True),)}, True),
    ],
    ids=["another", "session", "site", "rule"],
)
def test_an_interactive_session_is_cut_only_if_the_site_wants_it(
    starts: str, site_wants: dict[str, Any], cut: bool, site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    config = site.configure(mode="enforce", **site_wants)
    works_in = msgspec.structs.replace(KNOWN, script=f"#!/bin/sh\n{starts}\n")
    # Similar jobs are known, though their scripts did not show that they are sessions.
    known = model_in_use(config).predictor
    answer = decide_request(works_in, job_request(KNOWN), known, config, "1", 1.0, NO_FACTS)
    assert answer.decision.applied is cut
    assert answer.decision.reason.startswith("resized" if cut else "form-not-handled:somebody works in")


def test_without_a_model_every_job_keeps_its_request(site: Site) -> None:
    site.configure(mode="enforce")
    answer = decode_reply(asked(handler_of(site), line_of(KNOWN)))
    assert (answer.grant, answer.message) == (Grant(), "")
    assert ";why=no-model" in answer.token


def test_a_new_configuration_counts_for_jobs_that_were_answered_before_too(
    site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    config = site.configure(mode="enforce")
    journal = Journal(Path(config.service.journal))
    answers = Answers(config, model_in_use(config), CurrentFacts(config), journal)
    assert decode_reply(asked(answers.handle, line_of(KNOWN))).grant
    answers.retune(site.configure(mode="observe"))
    assert not decode_reply(asked(answers.handle, line_of(KNOWN))).grant


def test_every_decision_is_journalled_as_it_was_answered(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    handle = handler_of(site)
    fits = msgspec.structs.replace(KNOWN, cpus_per_task=1, mem_per_node_mib=100, gpus_per_node=1)
    answers = [decode_reply(asked(handle, line_of(job))) for job in (KNOWN, fits, KNOWN)]
    [file] = Path(site.config.service.journal).iterdir()
    decisions = [decode_decision(line) for line in file.read_bytes().splitlines()]
    tokens = [find_token(answer.token) for answer in answers]
    assert [made.id for made in decisions if made] == [token.decision_id for token in tokens if token]
    assert len({token.decision_id for token in tokens if token}) == 3
    assert decisions[0] is not None
    assert (decisions[0].grant, decisions[0].applied) == (answers[0].grant, True)
    assert decisions[1] is not None
    assert (decisions[1].grant, decisions[1].applied, decisions[1].reason) == (Grant(), False, "fits")


def test_a_disk_that_takes_no_journal_still_lets_jobs_through(
    site: Site, trained_model: TrainedModel, caplog: pytest.LogCaptureFixture
) -> None:
    install(site, trained_model)
    site.configure(mode="enforce")
    fill(Path(site.config.service.journal), "decisions-*.jsonl")
    handle = handler_of(site)
    for _ in range(3):
        assert decode_reply(asked(handle, line_of(KNOWN))).grant
    # Not once for each job: the log may be on the same disk.
    assert sum("is not journalled" in record.getMessage() for record in caplog.records) == 1


def test_the_journal_is_written_after_the_answer(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    config, works = site.config, list[Work]()
    folder = Path(config.service.journal)
    model, facts = model_in_use(config), CurrentFacts(config)
    handle = Answers(config, model, facts, Journal(folder), works.append).handle
    assert all(asked(handle, line_of(KNOWN)) for _ in range(2))
    (journal,) = folder.iterdir()
    assert journal.read_bytes() == b""
    for work in works:
        work()
    assert journal.read_bytes().count(b"\n") == 2


def test_a_rehearsal_gives_the_same_answer_and_is_not_journalled(
    site: Site, trained_model: TrainedModel
) -> None:
    install(site, trained_model)
    config = site.config
    journal_folder = Path(config.service.journal)
    answers = Answers(config, model_in_use(config), CurrentFacts(config), Journal(journal_folder))
    assert asked(answers.handle, line_of(KNOWN))
    (journal,) = journal_folder.iterdir()
    written = journal.read_bytes()
    answered, rehearsed = (
        decode_reply(asked(way, line_of(KNOWN))) for way in (answers.handle, answers.rehearse)
    )
    assert (rehearsed.id, rehearsed.grant) == (answered.id, answered.grant)
    assert journal.read_bytes().count(b"\n") == written.count(b"\n") + 1, "the one that was answered"
    assert asked(answers.rehearse, b"{}") == b""


def called_until_sent(handle: Handler, line: bytes) -> set[CodeType]:
    """Return the Python functions that run before the answer to a line is sent."""
    called: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    def send(_reply: bytes) -> None:
        sys.setprofile(None)

    sys.setprofile(profile)
    try:
        assert handle(line, send)
        assert sys.getprofile() is None, "nothing was sent"
    finally:
        sys.setprofile(None)
    return called


def test_a_rehearsal_runs_the_same_code_as_a_new_submission(site: Site, trained_model: TrainedModel) -> None:
    install(site, trained_model)
    answers = Answers(
        site.config,
        model_in_use(site.config),
        CurrentFacts(site.config),
        Journal(Path(site.config.service.journal)),
    )
    first, new = (
        msgspec.structs.replace(
            KNOWN, name=f"fit-{number}", script=f"{SCRIPT}\n# {number}", mem_per_node_mib=number
        )
        for number in (9_000, 9_001)
    )
    assert asked(answers.handle, line_of(first))
    answers.rehearse(line_of(first), lambda _: None)
    rehearsed = called_until_sent(answers.rehearse, line_of(first))
    way_of_its_own = {Answers.handle, InputSizes.mib, Remembered.answer, Remembered.settle}
    called = called_until_sent(answers.handle, line_of(new)) - {way.__code__ for way in way_of_its_own}
    assert {code.co_name for code in called - rehearsed} == set()


def test_lines_that_are_not_requests_get_no_answer(site: Site) -> None:
    handle = handler_of(site)
    for line in (b"", b"{}", b"\xff", line_of(KNOWN).replace(b'"v":1', b'"v":2')):
        assert asked(handle, line) == b""


def test_a_journal_that_cannot_be_written_is_reported_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServiceError, match=r"service\.journal"):
        Journal(tmp_path / "file" / "journal")
