"""Answers to submissions that were seen before: a workflow submits the same script a thousand times."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from models.demand.prediction import Predictor
from slurm_plugin.policy.facts import SiteFacts
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service.decide import Answer

MOST = 2048

Decide = Callable[[Submission, Predictor | None, SiteFacts, str, float], Answer]


class Remembered:
    """The latest answers: but for id and time, a decision depends on submission, model and the site's facts alone."""

    def __init__(self, decide: Decide, most: int = MOST) -> None:
        self._decide = decide
        self._most = most
        self._answers: OrderedDict[Submission, Answer] = OrderedDict()
        self._of: tuple[Predictor | None, SiteFacts | None] = (None, None)

    def answer(
        self,
        submission: Submission,
        predictor: Predictor | None,
        facts: SiteFacts,
        decision_id: str,
        now_s: float,
    ) -> Answer:
        """Return the answer to a submission, with this decision's own id and time."""
        if predictor is not self._of[0] or facts is not self._of[1]:
            self._answers.clear()
            self._of = (predictor, facts)
        known = self._answers.get(submission)
        if known is None:
            known = self._decide(submission, predictor, facts, decision_id, now_s)
            if known.decision.via:
                # Its comment has a word of its own: it never comes again.
                return known
            self._answers[submission] = known
            if len(self._answers) > self._most:
                self._answers.popitem(last=False)
            return known
        self._answers.move_to_end(submission)
        decision = msgspec.structs.replace(known.decision, id=decision_id, time_s=now_s)
        return msgspec.structs.replace(known, decision=decision)
