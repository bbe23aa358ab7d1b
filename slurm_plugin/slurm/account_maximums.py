"""The most that accounts let a job ask for: more than that is refused if the job's QOS has DenyOnLimit. Pure."""

from __future__ import annotations

from functools import cache

from slurm_plugin.policy.facts import Whose
from slurm_plugin.policy.maximums import Maximums, strictest_maximums
from slurm_plugin.slurm.limits import maximums_of

# The last fields of a line; those of the same name are in the same order for a QOS.
LIMITS = (
    "ParentName",
    "MaxTRES",
    "GrpTRES",
    "MaxTRESPerNode",
    "MaxTRESMins",
    "GrpTRESMins",
    "GrpTRESRunMins",
)
_FIELDS = 6 + len(LIMITS)


def parse_account_maximums(text: str, cluster: str) -> dict[Whose, dict[str, Maximums]]:
    """Read associations, `cluster|account|user|partition|…` and LIMITS: by account and user, the maximums that count.

    Under each partition that a user has an association of their own for, '' for all others, stands the lowest of what
    it sets, which includes what the accounts above set for each of their users, and of what each of these accounts
    lets all its users have together. Users without any are left out.
    """
    of_users: dict[Whose, dict[str, tuple[str, ...]]] = {}
    together: dict[str, Maximums] = {}
    above: dict[str, str] = {}
    for line in text.splitlines():
        row = line.split("|")
        if row[0] != cluster or len(row) != _FIELDS:
            continue
        _, account, user, partition, _, _, parent, *limits = row
        if user:
            of_users.setdefault((account, user.lower()), {})[partition] = tuple(limits)
        else:
            above[account] = parent
            _, of_all, _, _, *minutes_of_all = limits
            if any((of_all, *minutes_of_all)):
                together[account] = maximums_of(("", of_all), (), ("", *minutes_of_all))

    # Most users of an account have the same limits.
    @cache
    def maximums(account: str, limits: tuple[str, ...]) -> Maximums:
        most, of_all, of_node, minutes, *minutes_of_all = limits
        own = maximums_of((most, of_all), (of_node,), (minutes, *minutes_of_all))
        return strictest_maximums((own, *_of_account(account, together, above)))

    return {
        (account, user): {partition: maximums(account, limits) for partition, limits in own.items()}
        for (account, user), own in of_users.items()
        if any(any(limits) for limits in own.values()) or _of_account(account, together, above)
    }


def _of_account(account: str, together: dict[str, Maximums], above: dict[str, str]) -> list[Maximums]:
    """Return the maximums of an account and of those above it."""
    found = []
    while account:
        if account in together:
            found.append(together[account])
        account = above.get(account, "")
    return found
