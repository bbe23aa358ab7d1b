"""The most that accounts let a job ask for: more than that is refused if the job's QOS has DenyOnLimit. Pure."""

from __future__ import annotations

from slurm_plugin.policy.facts import NO_MAXIMUM, Maximums, Whose
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


def parse_account_maximums(text: str, cluster: str) -> dict[Whose, tuple[Maximums, ...]]:
    """Read associations, `cluster|account|user|…` and LIMITS: by account and user, the maximums that count there.

    They are those of the user's own associations, which include what the accounts above set for each of their users,
    and what each of these accounts lets all its users have together. Users without any are left out.
    """
    of_users: dict[Whose, list[Maximums]] = {}
    together: dict[str, Maximums] = {}
    above: dict[str, str] = {}
    for line in text.splitlines():
        row = line.split("|")
        if row[0] != cluster or len(row) != _FIELDS:
            continue
        _, account, user, _, _, _, parent, most, of_all, of_node, minutes, *minutes_of_all = row
        if user:
            own = maximums_of((most, of_all), (of_node,), (minutes, *minutes_of_all))
            of_users.setdefault((account, user.lower()), []).append(own)
        else:
            above[account] = parent
            together[account] = maximums_of(("", of_all), (), ("", *minutes_of_all))
    found = {
        whose: tuple(one for one in (*own, *_of_accounts(whose[0], together, above)) if _limits(one))
        for whose, own in of_users.items()
    }
    return {whose: maximums for whose, maximums in found.items() if maximums}


def _of_accounts(account: str, together: dict[str, Maximums], above: dict[str, str]) -> list[Maximums]:
    """Return the maximums of an account and of those above it."""
    found = []
    while account in together:
        found.append(together[account])
        account = above[account]
    return found


def _limits(maximums: Maximums) -> bool:
    return any(one != NO_MAXIMUM for one in (*maximums.of_job, *maximums.of_node, *maximums.minutes))
