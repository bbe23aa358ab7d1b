"""What ended jobs show about a family, a partition and everything, job by job. Pure.

For a family every job counts. For a partition, and for everything, the outcomes of any one or two users do not count
(pools.py).
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

# There are many families: if there are too many of a user, or in all, one of that user's or of the user with the most
# is forgotten. So nobody can displace what is known of others by making up names.
MOST_OF_A_USER, MOST_FAMILIES = 1_000, 5_000


class Evidence(msgspec.Struct, frozen=True):
    """All that is known: by `USER NUL NAME`, by partition, and about everything."""

    families: dict[str, Tally] = {}
    # Earlier pools, which did not know their users, had the names `partitions` and `everything`.
    by_partition: dict[str, Pool] = {}
    of_all: Pool = Pool()


class Ledger:
    """Evidence that grows."""

    def __init__(self, evidence: Evidence, bound: float) -> None:
        """`bound` is the share by which cut jobs may fail more often."""
        self.bound = bound
        self._families: dict[str, dict[str, Tally]] = {}
        # The number of families, and users by how many they have: looking through all users at each new family would
        # cost more than all the counting.
        self._count = 0
        self._having: dict[int, dict[str, None]] = {}
        for key, tally in evidence.families.items():
            user, _, name = key.partition("\0")
            self._keep(family_brake(user, name), tally)
        self._pools = {partition_brake(name): pool for name, pool in evidence.by_partition.items()}
        self._pools[ALL] = evidence.of_all

    def add(self, request: JobRequest, trial: Trial, now_s: float, stopped: frozenset[Brake]) -> list[Brake]:
        """Count a run that ended; return the brakes whose evidence may have changed.

        A family that is stopped learns nothing from its jobs that were cut before: they go on running for a while.
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
        """Count portions that are over; return the brakes whose evidence changed."""
        changed: list[Brake] = []
        for brake, pool in self._pools.items():
            if over := users_over(pool, now_s):
                self._pools[brake] = closed(pool, over, self.bound)
                changed.append(brake)
        return changed

    def tally(self, brake: Brake) -> Tally:
        """Return what is known about a brake."""
        if brake.level == "family":
            return self._families.get(brake.user, {}).get(brake.name, Tally())
        return self._pools.get(brake, Pool()).tally

    def against(self, brake: Brake) -> Tally:
        """Return what counts against a brake: for a partition, or everything, what is left without any two users."""
        if brake.level == "family":
            return self.tally(brake)
        return without_any_two(self._pools.get(brake, Pool()), self.bound)

    def is_enough_without_any_two(self, brake: Brake, enough_logs: tuple[float, float]) -> bool:
        """Whether that is enough, for a partition or everything: enough of kills, or enough of failures."""
        return is_enough_without_any_two(self._pools.get(brake, Pool()), self.bound, enough_logs)

    def begin_anew(self, brake: Brake) -> None:
        """Forget what is known of cut jobs, for a brake that is pulled now."""
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
        """Keep what is known of a family, which becomes the one seen last."""
        known = self._families.pop(family.user, {})
        had = len(known)
        known.pop(family.name, None)
        known[family.name] = tally
        self._families[family.user] = known
        self._count_again(family.user, had)

    def _count_again(self, user: str, had: int) -> None:
        """Record how many families a user has, who had `had` of them before."""
        has = len(self._families.get(user, ()))
        self._count += has - had
        if had:
            del self._having[had][user]
            if not self._having[had]:
                del self._having[had]
        if has:
            self._having.setdefault(has, {})[user] = None

    def _make_room(self, user: str, stopped: frozenset[Brake]) -> None:
        """Forget surplus families, of one user or in all."""
        while len(self._families[user]) > MOST_OF_A_USER and self._forget_one(user, stopped):
            pass
        for _ in range(self._count - MOST_FAMILIES):
            most_first = (one for has in sorted(self._having, reverse=True) for one in self._having[has])
            if not any(self._forget_one(one, stopped) for one in most_first):
                return

    def _forget_one(self, user: str, stopped: frozenset[Brake]) -> bool:
        """Forget the family of a user that was not seen for longest, if possible one whose cut jobs did not fail.

        Never one that is stopped; False if the user has no other.
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
