"""From a request line to a reply line: decode, decide, reply, journal. No socket."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from accounting.request import JobRequest
from models.demand.prediction import Predictor
from slurm_plugin.config import Config
from slurm_plugin.policy.facts import SiteFacts
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.service.decide import Answer, decide_request, reply_to
from slurm_plugin.service.input_sizes import InputSizes
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.protocol import decode_request, encode_reply
from slurm_plugin.service.remembered import Remembered

log = logging.getLogger(__name__)

# Submissions come in bursts: the longer ago the last one was, the rarer the rehearsals, from a millisecond to a minute
# after it. That is some 700 for one submission, a fifth of a second of one core in all.
LEAST_PAUSE_S, PAUSE_SHARE, EXPECTED_S = 0.001, 0.01, 60.0

Send = Callable[[bytes], None]


class Answers:
    """Answers request lines, each from the model and the facts that are current at that moment."""

    def __init__(self, config: Config, model: CurrentModel, facts: CurrentFacts, journal: Journal) -> None:
        self._config = config
        self._model = model
        self._facts = facts
        self._journal = journal
        self._inputs = InputSizes(config)
        self._remembered = Remembered(self._decide)
        self._latest, self._latest_s = b"", 0.0
        self._latest_input_mib: float | None = None

    def retune(self, config: Config) -> None:
        """Answer by another configuration from now on."""
        if (config.inputs, config.hook) != (self._config.inputs, self._config.hook):
            self._inputs = InputSizes(config)
        self._config = config
        self._remembered = Remembered(self._decide)

    def handle(self, line: bytes, send: Send) -> bool:
        """Answer a line through `send`; False where it deserves no answer."""
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
        # Linux likes to wake whoever waits for a message on the processor of its sender, where it waits until that ends
        # its turn: slurmctld would wait for all that follows.
        os.sched_yield()
        self._latest, self._latest_s, self._latest_input_mib = line, now_s, input_mib
        # Where the disk refuses, the token in the job's comment holds the decision too: one copy is enough.
        self._journal.keep(answer.decision)
        return True

    def rehearse(self) -> float | None:
        """Answer the latest line once more, to nobody; return the seconds until the next time, None where it is over.

        So what an answer needs stays in the processor's caches: after 20 ms of idling, the next one that is not
        remembered would take three times as long, after 100 ms seven times.
        """
        since_s = time.time() - self._latest_s
        if not 0 <= since_s <= EXPECTED_S:
            return None
        try:
            request = decode_request(self._latest)
            if not isinstance(request, str):
                answer = self._remembered.rehearse(
                    request.job,
                    self._model.predictor,
                    self._facts.facts,
                    os.urandom(6).hex(),
                    self._latest_s,
                    self._latest_input_mib,
                )
                encode_reply(reply_to(request.id, answer))
        except Exception:  # it failed for nobody: no reason to end a service that answers
            log.exception("a rehearsal failed")
            return None
        return max(LEAST_PAUSE_S, since_s * PAUSE_SHARE)

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
