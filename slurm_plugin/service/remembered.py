"""Answers to submissions that were seen before: a workflow submits the same script a thousand times.

An answer also serves submissions that differ only in what no decision sees: a number in the name, the words of a
script that does the same and fixes as much, and the time limit if no prediction depends on it.
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
from slurm_plugin.policy.messages import is_misread
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
        """Return an answer in the form in which it is remembered."""
        families = family_keys(answer.decision.request)
        return cls(answer, families, predictor.joined(families) if predictor else 0)

    def holds(self, predictor: Predictor | None, now_s: float) -> bool:
        """Whether the same answer would be given again."""
        if not 0 <= now_s - self.answer.decision.time_s <= HOLDS_S:
            return False
        return predictor is None or predictor.joined(self.families) == self.joined

    def given_to(self, request: JobRequest) -> Known:
        """Return this as the answer to another request that no decision distinguishes from its own."""
        decision = msgspec.structs.replace(self.answer.decision, request=request)
        return msgspec.structs.replace(self, answer=msgspec.structs.replace(self.answer, decision=decision))


class Latest:
    """A bounded number of answers: those given or looked up most recently."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Hashable, Known] = OrderedDict()

    def find(self, seen: Hashable, predictor: Predictor | None, now_s: float) -> Known | None:
        """Return the answer stored under `seen`, if it still holds."""
        known = self._known.get(seen)
        if known is None or not known.holds(predictor, now_s):
            return None
        self._known.move_to_end(seen)
        return known

    def keep(self, seen: Hashable, known: Known) -> None:
        """Remember an answer as the most recent one, also in place of one that no longer holds."""
        self._known.pop(seen, None)
        self._known[seen] = known
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def clear(self) -> None:
        """Forget all answers."""
        self._known.clear()


class Remembered:
    """The latest answers. Except for its id and time, a decision depends only on submission, input, model and site.

    What a model knows of a family changes as the family's jobs end: an answer holds until the next of them is added.
    What it knows of accounts and partitions changes all the time, but little: that may be as old as HOLDS_S.
    """

    def __init__(self, decide: Decide, most: int = MOST) -> None:
        self._decide = decide
        # By the whole submission and the size of its input (MiB), which may change while the script does not.
        self._same = Latest(most)
        self._alike = Latest(most)
        # Where `settle` will store the latest answer, and under which key.
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
            alike = what_is_seen(submission, request, predictor, facts)
            found = self._alike.find(alike, predictor, now_s)
            if found is None:
                answer = self._decide(submission, request, predictor, facts, decision_id, now_s)
                # A submission with a decision's word in its comment is unique: it never comes again.
                if not answer.decision.via:
                    decided = Known.of(answer, predictor)
                    self._unsettled = [(self._same, seen, decided), (self._alike, alike, decided)]
                return answer
            known = found.given_to(request)
            self._unsettled = [(self._same, seen, known)]
        decision = msgspec.structs.replace(known.answer.decision, id=decision_id, time_s=now_s)
        return msgspec.structs.replace(known.answer, decision=decision)

    def settle(self) -> None:
        """Remember the latest answer: the next call does this first, unless it was done before, while nobody waited."""
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
        """Do all that a submission needs that was never seen, wherever it would end, and remember nothing."""
        # Clears caches that would hold what the latest submission said: new text has to be read and computed.
        without_numbers.cache_clear()
        read_floors.cache_clear()
        read_name.__wrapped__(submission.name)
        self._same.find((submission, input_mib), predictor, now_s)
        request = job_request(submission, input_mib)
        if predictor is not None:
            predictor.forget_estimates(request)
        self._alike.find(what_is_seen(submission, request, predictor, facts), predictor, now_s)
        answer = self._decide(submission, request, predictor, facts, decision_id, now_s)
        Known.of(answer, predictor)
        return answer


def what_is_seen(
    submission: Submission, request: JobRequest, predictor: Predictor | None, facts: SiteFacts
) -> Hashable:
    """Return all of a submission that its decision may depend on; `request` is the same as the models see it.

    Families, rollouts and brakes go by normalised names, and so does the message for the user. A script counts by its
    signature, which may depend on the name as it was given (models/past/families.py), by what it fixes, and by whether
    its tool can bear a message. A QOS that refuses jobs may do so for their minutes.
    """
    sees_limit = bool(facts.qos_maximums) or (predictor is not None and predictor.sees_limit(request))
    return (
        msgspec.structs.replace(
            submission,
            name=normal_name(submission.name),
            script="",
            time_limit_min=submission.time_limit_min if sees_limit else None,
        ),
        request.script_signature,
        read_floors(submission.script, request.num_tasks),
        is_misread(submission.script),
        request.input_mib,
    )
