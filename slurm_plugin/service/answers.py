"""From a request line to a reply line: decode, decide, reply, journal. No socket."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import partial

from accounting.request import JobRequest
from models.demand.prediction import Predictor
from slurm_plugin.config.settings import Config
from slurm_plugin.policy.facts import SiteFacts
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service.afterwards import Work
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.service.decide import Answer, decide_request, reply_to
from slurm_plugin.service.input_sizes import InputSizes
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.protocol import decode_request, encode_reply
from slurm_plugin.service.remembered import Remembered

log = logging.getLogger(__name__)

Send = Callable[[bytes], None]


def at_once(work: Work) -> None:
    """Do the work now: for callers that answer without a loop."""
    work()


class Answers:
    """Answers request lines, each from the model and the facts that are current at that moment.

    `later` does the work that nobody waits for.
    """

    def __init__(
        self,
        config: Config,
        model: CurrentModel,
        facts: CurrentFacts,
        journal: Journal,
        later: Callable[[Work], object] = at_once,
    ) -> None:
        self._config = config
        self._model = model
        self._facts = facts
        self._journal = journal
        self._later = later
        self._inputs = InputSizes(config)
        self._remembered = Remembered(self._decide)
        self._latest_input_mib: float | None = None

    def retune(self, config: Config) -> None:
        """Answer by another configuration from now on."""
        if (config.inputs, config.hook) != (self._config.inputs, self._config.hook):
            self._inputs = InputSizes(config)
        self._config = config
        self._remembered = Remembered(self._decide)

    def handle(self, line: bytes, send: Send) -> bool:
        """Answer a line through `send`; False if the line deserves no answer."""
        request = decode_request(line)
        if isinstance(request, str):
            log.warning("a request was not understood: %s", request)
            return False
        now_s = time.time()
        input_mib = self._inputs.mib(request.job)
        answer = self._remembered.answer(
            request.job, self._model.predictor, self._facts.facts, os.urandom(6).hex(), now_s, input_mib
        )
        send(encode_reply(reply_to(request.id, answer)))
        self._latest_input_mib = input_mib
        self._facts.learn_from(answer.decision)
        # If the disk refuses, or this process ends first, the token in the job's comment still holds the decision:
        # one copy is enough.
        self._later(partial(self._journal.keep, answer.decision))
        self._later(self._remembered.settle)
        return True

    def rehearse(self, line: bytes, send: Send) -> bool:
        """Answer a line as one that was never seen, wherever that may end; neither remember nor journal it."""
        request = decode_request(line)
        if isinstance(request, str):
            return False
        answer = self._remembered.rehearse(
            request.job,
            self._model.predictor,
            self._facts.facts,
            os.urandom(6).hex(),
            time.time(),
            self._latest_input_mib,
        )
        send(encode_reply(reply_to(request.id, answer)))
        return True

    def _decide(
        self,
        submission: Submission,
        request: JobRequest,
        predictor: Predictor | None,
        facts: SiteFacts,
        name: str,
        now_s: float,
    ) -> Answer:
        return decide_request(submission, request, predictor, self._config, name, now_s, facts)
