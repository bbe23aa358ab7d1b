"""The most that accounts let a job ask for: more than that is refused if the job's QOS has DenyOnLimit. Pure."""

from __future__ import annotations

from slurm_plugin.policy.facts import Maximums, Whose
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
        _, account, user, _, _, _, parent, *limits = row
        most, of_all, of_node, minutes, *minutes_of_all = limits
        if user:
            found = of_users.setdefault((account, user.lower()), [])
            if any(limits):
                found.append(maximums_of((most, of_all), (of_node,), (minutes, *minutes_of_all)))
        else:
            above[account] = parent
            if any((of_all, *minutes_of_all)):
                together[account] = maximums_of(("", of_all), (), ("", *minutes_of_all))
    of_accounts = {account: _of_account(account, together, above) for account in above}
    return {
        whose: maximums
        for whose, own in of_users.items()
        if (maximums := (*own, *of_accounts.get(whose[0], ())))
    }


def _of_account(account: str, together: dict[str, Maximums], above: dict[str, str]) -> list[Maximums]:
    """Return the maximums of an account and of those above it."""
    found = []
    while account:
        if account in together:
            found.append(together[account])
        account = above.get(account, "")
    return found
