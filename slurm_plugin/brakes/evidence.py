"""What ended jobs say of a family, a partition and everything, job by job. Pure.

Of a family each job counts. Of a partition, and of everything, no one or two users count (pools.py).
"""

from __future__ import annotations

import msgspec

from accounting.request import JobRequest
from models.past.trials import Trial
from slurm_plugin.brakes.pools import (
    Pool,
    closed,
    is_enough_without_any_two,
    pool_anew,
    users_over,
    with_job,
    without_any_two,
)
from slurm_plugin.brakes.tallies import Tally, added, begun_anew, counts_of
from slurm_plugin.policy.braked import ALL, Brake, family_brake, partition_brake

# Families are many: of a user, and of the user who has the most, one goes. So nobody who makes up names drives out what
# is known of others.
MOST_OF_A_USER, MOST_FAMILIES = 1_000, 5_000


class Evidence(msgspec.Struct, frozen=True):
    """All that is known: by `USER NUL NAME`, by partition, and of everything."""

    families: dict[str, Tally] = {}
    # The names `partitions` and `everything` were those of pools that did not know their users.
    by_partition: dict[str, Pool] = {}
    of_all: Pool = Pool()


class Ledger:
    """Evidence that grows."""

    def __init__(self, evidence: Evidence, bound: float) -> None:
        """`bound` is by which share those that were cut may fail more often."""
        self.bound = bound
        self._families: dict[str, dict[str, Tally]] = {}
        # How many there are, and users by how many they have: to look through all users at each new family would cost
        # more than all that is counted.
        self._count = 0
        self._having: dict[int, dict[str, None]] = {}
        for key, tally in evidence.families.items():
            user, _, name = key.partition("\0")
            self._keep(family_brake(user, name), tally)
        self._pools = {partition_brake(name): pool for name, pool in evidence.by_partition.items()}
        self._pools[ALL] = evidence.of_all

    def add(self, request: JobRequest, trial: Trial, now_s: float, stopped: frozenset[Brake]) -> list[Brake]:
        """Count a run that ended; return what may have changed by it.

        A family that is stopped learns nothing of its jobs that were cut before: they run on for a while.
        """
        counts = counts_of(trial)
        family = family_brake(request.user, request.job_name)
        if trial.shrunk and (
            family in stopped or ALL in stopped or partition_brake(request.partition) in stopped
        ):
            return []
        self._keep(family, added(self.tally(family), counts, self.bound))
        self._make_room(request.user, stopped)
        for brake in (partition_brake(request.partition), ALL):
            self._pools[brake] = with_job(self._pools.get(brake, Pool()), request.user, counts, now_s)
        return [family]

    def close_portions(self, now_s: float) -> list[Brake]:
        """Count portions that are over; return whose evidence that changed."""
        changed: list[Brake] = []
        for brake, pool in self._pools.items():
            if over := users_over(pool, now_s):
                self._pools[brake] = closed(pool, over, self.bound)
                changed.append(brake)
        return changed

    def tally(self, brake: Brake) -> Tally:
        """Return what is known behind a brake."""
        if brake.level == "family":
            return self._families.get(brake.user, {}).get(brake.name, Tally())
        return self._pools.get(brake, Pool()).tally

    def against(self, brake: Brake) -> Tally:
        """Return what counts against a brake: of a partition, or everything, what is left without any two users."""
        if brake.level == "family":
            return self.tally(brake)
        return without_any_two(self._pools.get(brake, Pool()), self.bound)

    def is_enough_without_any_two(self, brake: Brake, enough_logs: tuple[float, float]) -> bool:
        """Whether that is enough, for a partition or everything: as much of kills, or as much of failures."""
        return is_enough_without_any_two(self._pools.get(brake, Pool()), self.bound, enough_logs)

    def begin_anew(self, brake: Brake) -> None:
        """Forget what is known of jobs that were cut, behind a brake that is pulled now."""
        if brake.level == "family":
            self._keep(brake, begun_anew(self.tally(brake)))
        else:
            self._pools[brake] = pool_anew(self._pools.get(brake, Pool()))

    @property
    def evidence(self) -> Evidence:
        """All that is known now."""
        return Evidence(
            families={
                f"{user}\0{name}": tally
                for user, known in self._families.items()
                for name, tally in known.items()
            },
            by_partition={brake.name: pool for brake, pool in self._pools.items() if brake != ALL},
            of_all=self._pools[ALL],
        )

    def _keep(self, family: Brake, tally: Tally) -> None:
        """Keep what is known of a family, which becomes the one that was seen last."""
        known = self._families.pop(family.user, {})
        had = len(known)
        known.pop(family.name, None)
        known[family.name] = tally
        self._families[family.user] = known
        self._count_again(family.user, had)

    def _count_again(self, user: str, had: int) -> None:
        """Note how many families a user has, who had so many before."""
        has = len(self._families.get(user, ()))
        self._count += has - had
        if had:
            del self._having[had][user]
            if not self._having[had]:
                del self._having[had]
        if has:
            self._having.setdefault(has, {})[user] = None

    def _make_room(self, user: str, stopped: frozenset[Brake]) -> None:
        """Forget families that are too many, of one user or in all."""
        while len(self._families[user]) > MOST_OF_A_USER and self._forget_one(user, stopped):
            pass
        for _ in range(self._count - MOST_FAMILIES):
            most_first = (one for has in sorted(self._having, reverse=True) for one in self._having[has])
            if not any(self._forget_one(one, stopped) for one in most_first):
                return

    def _forget_one(self, user: str, stopped: frozenset[Brake]) -> bool:
        """Forget a user's family, of those whose cut jobs did not fail if there are any, that was not seen for longest.

        Never one that is stopped; False where he has no other.
        """
        known = self._families[user]
        held = {brake.name for brake in stopped if brake.level == "family" and brake.user == user}
        may_go = (name for name in known if name not in held)
        goes = min(may_go, key=lambda name: known[name].counts.failed > 0, default=None)
        if goes is None:
            return False
        del known[goes]
        if not known:
            del self._families[user]
        self._count_again(user, len(known) + 1)
        return True
