"""Answers to submissions that were seen before: a workflow submits the same script a thousand times."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from models.demand.prediction import Predictor
from models.families import Family, family_keys
from slurm_plugin.policy.facts import SiteFacts
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service.decide import Answer

MOST = 2048
HOLDS_S = 600.0

Decide = Callable[[Submission, Predictor | None, SiteFacts, str, float, float | None], Answer]
# What an answer is given to: a submission, and the size of its input (MiB), which changes while its script does not.
Seen = tuple[Submission, float | None]


class Known(msgspec.Struct, frozen=True):
    """An answer, and what was known of its job's families when it was given."""

    answer: Answer
    families: tuple[Family, ...]
    joined: int

    @classmethod
    def of(cls, answer: Answer, predictor: Predictor | None) -> Known:
        """Return an answer as it is remembered."""
        families = family_keys(answer.decision.request)
        return cls(answer, families, predictor.joined(families) if predictor else 0)

    def holds(self, predictor: Predictor | None, now_s: float) -> bool:
        """Whether it would be given again."""
        if not 0 <= now_s - self.answer.decision.time_s <= HOLDS_S:
            return False
        return predictor is None or predictor.joined(self.families) == self.joined


class Remembered:
    """The latest answers: but for id and time, a decision depends on submission, input, model and site alone.

    What a model knows of a family changes as its jobs end: an answer holds until the next of them joins. What it knows
    of accounts and partitions changes all the time, and little: that may be as old as HOLDS_S.
    """

    def __init__(self, decide: Decide, most: int = MOST) -> None:
        self._decide = decide
        self._most = most
        self._answers: OrderedDict[Seen, Known] = OrderedDict()
        self._of: tuple[Predictor | None, SiteFacts | None] = (None, None)

    def answer(
        self,
        submission: Submission,
        predictor: Predictor | None,
        facts: SiteFacts,
        decision_id: str,
        now_s: float,
        input_mib: float | None = None,
    ) -> Answer:
        """Return the answer to a submission, with this decision's own id and time."""
        if predictor is not self._of[0] or facts is not self._of[1]:
            self._answers.clear()
            self._of = (predictor, facts)
        seen = (submission, input_mib)
        known = self._answers.get(seen)
        if known is None or not known.holds(predictor, now_s):
            answer = self._decide(submission, predictor, facts, decision_id, now_s, input_mib)
            # One whose comment has a word of its own never comes again.
            if not answer.decision.via:
                self._keep(seen, Known.of(answer, predictor))
            return answer
        self._answers.move_to_end(seen)
        decision = msgspec.structs.replace(known.answer.decision, id=decision_id, time_s=now_s)
        return msgspec.structs.replace(known.answer, decision=decision)

    def _keep(self, seen: Seen, known: Known) -> None:
        # Behind all others, also where an old answer holds no more.
        self._answers.pop(seen, None)
        self._answers[seen] = known
        if len(self._answers) > self._most:
            self._answers.popitem(last=False)
