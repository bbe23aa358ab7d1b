"""Answers to submissions that were seen before: a workflow submits the same script a thousand times.

And to those that differ from one in what no decision sees: a number in the name, the words of a script that does the
same and fixes as much, and the time limit where nothing is predicted by it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

import msgspec

from accounting.request import JobRequest
from models.demand.prediction import Predictor
from models.past.families import Family, family_keys, without_numbers
from models.past.job_names import normal_name, read_name
from slurm_plugin.policy.facts import SiteFacts
from slurm_plugin.policy.script_floors import read_floors
from slurm_plugin.policy.submission import Submission, job_request
from slurm_plugin.service.decide import Answer

MOST = 2048
HOLDS_S = 600.0

Decide = Callable[[Submission, JobRequest, Predictor | None, SiteFacts, str, float], Answer]


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

    def given_to(self, request: JobRequest) -> Known:
        """Return it as the answer to another request, which no decision tells from its own."""
        decision = msgspec.structs.replace(self.answer.decision, request=request)
        return msgspec.structs.replace(self, answer=msgspec.structs.replace(self.answer, decision=decision))


class Latest:
    """So many of the answers that were given or looked at last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Hashable, Known] = OrderedDict()

    def find(self, seen: Hashable, predictor: Predictor | None, now_s: float) -> Known | None:
        """Return what is known of it, where that still holds."""
        known = self._known.get(seen)
        if known is None or not known.holds(predictor, now_s):
            return None
        self._known.move_to_end(seen)
        return known

    def keep(self, seen: Hashable, known: Known) -> None:
        """Remember an answer, behind all others, also where an old one holds no more."""
        self._known.pop(seen, None)
        self._known[seen] = known
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()


class Remembered:
    """The latest answers: but for id and time, a decision depends on submission, input, model and site alone.

    What a model knows of a family changes as its jobs end: an answer holds until the next of them joins. What it knows
    of accounts and partitions changes all the time, and little: that may be as old as HOLDS_S.
    """

    def __init__(self, decide: Decide, most: int = MOST) -> None:
        self._decide = decide
        # By the whole submission and the size of its input (MiB), which changes while its script does not.
        self._same = Latest(most)
        self._alike = Latest(most)
        # Where the latest answer goes, and by what it is found there, until `settle`.
        self._unsettled: list[tuple[Latest, Hashable, Known]] = []
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
        self.settle()
        if predictor is not self._of[0] or facts is not self._of[1]:
            self._same.clear()
            self._alike.clear()
            self._of = (predictor, facts)
        seen = (submission, input_mib)
        known = self._same.find(seen, predictor, now_s)
        if known is None:
            request = job_request(submission, input_mib)
            alike = what_is_seen(submission, request, predictor)
            found = self._alike.find(alike, predictor, now_s)
            if found is None:
                answer = self._decide(submission, request, predictor, facts, decision_id, now_s)
                # One whose comment has a word of its own never comes again.
                if not answer.decision.via:
                    decided = Known.of(answer, predictor)
                    self._unsettled = [(self._same, seen, decided), (self._alike, alike, decided)]
                return answer
            known = found.given_to(request)
            self._unsettled = [(self._same, seen, known)]
        decision = msgspec.structs.replace(known.answer.decision, id=decision_id, time_s=now_s)
        return msgspec.structs.replace(known.answer, decision=decision)

    def settle(self) -> None:
        """Remember the latest answer: the next one does that first, unless it was done while nobody waited."""
        for latest, seen, known in self._unsettled:
            latest.keep(seen, known)
        self._unsettled = []

    def rehearse(
        self,
        submission: Submission,
        predictor: Predictor | None,
        facts: SiteFacts,
        decision_id: str,
        now_s: float,
        input_mib: float | None = None,
    ) -> Answer:
        """Go all the way of a submission that was never seen, wherever it may end, and remember nothing."""
        # What is new is read and worked out, where what the latest submission said would be found.
        without_numbers.cache_clear()
        read_floors.cache_clear()
        read_name.__wrapped__(submission.name)
        self._same.find((submission, input_mib), predictor, now_s)
        request = job_request(submission, input_mib)
        if predictor is not None:
            predictor.forget_estimates(request)
        self._alike.find(what_is_seen(submission, request, predictor), predictor, now_s)
        answer = self._decide(submission, request, predictor, facts, decision_id, now_s)
        Known.of(answer, predictor)
        return answer


def what_is_seen(submission: Submission, request: JobRequest, predictor: Predictor | None) -> Hashable:
    """Return all of a submission that its decision may depend on; `request` is the same as models see it.

    Families, rollouts and brakes go by normal names, and so do the words for users; a script counts by its signature,
    which may depend on the name as it was given (models/past/families.py), and by what it fixes.
    """
    sees_limit = predictor is not None and predictor.sees_limit(request)
    return (
        msgspec.structs.replace(
            submission,
            name=normal_name(submission.name),
            script="",
            time_limit_min=submission.time_limit_min if sees_limit else None,
        ),
        request.script_signature,
        read_floors(submission.script, request.num_tasks),
        request.input_mib,
    )
