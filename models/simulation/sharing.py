"""The pairing of jobs that share GPUs as a policy of the simulation; it learns from the pairs that it sees."""

from __future__ import annotations

from collections.abc import Iterable

from models.gpus.interference import Interference, Pair
from models.gpus.pairing import Job, Terms, pair
from models.simulation.shared_gpus import Seen


class LearnedPairing:
    """`models.gpus.pairing.pair` at every arrival, end and slot, with what is known of interference by then.

    With `moves` False, no running job is moved, not even in a slot.
    """

    def __init__(self, known: Interference, terms: Terms | None = None, *, moves: bool = True) -> None:
        self.known, self.terms, self.moves = known, terms or Terms(), moves

    def decide(self, seen: Seen) -> dict[int, int | None]:
        """Return the GPU of each job that is to start or to move, None for one that is to wait again."""
        gpus = [list(self._jobs(seen, jobs)) for jobs in seen.on_gpus]
        waiting = list(self._jobs(seen, seen.waiting))
        decided = pair(gpus, waiting, self.known, self.terms, moving=self.moves and seen.slot)
        return {
            choice.job.job_id: choice.gpu
            for choice in decided.choices
            if choice.gpu is not None or choice.left is not None
        }

    def saw(self, kind: int, beside: int, seconds: float, speed: float) -> None:
        """Learn how fast a kind ran next to another."""
        names = self.known.kinds
        self.known.learn(Pair(kind=names[kind], beside=names[beside], speed=speed, seconds=seconds))

    def _jobs(self, seen: Seen, numbers: Iterable[int]) -> Iterable[Job]:
        kinds = self.known.kinds
        for number in numbers:
            ran_s = float(seen.ran_s[number])
            waited_s = seen.now_s - float(seen.submit_s[number]) - ran_s
            yield Job(job_id=number, kind=kinds[seen.kind[number]], waited_s=waited_s, ran_s=ran_s)
