"""The most that accounts let a job ask for: more than that is refused if the job's QOS has DenyOnLimit. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_plugin.policy.facts import NO_MAXIMUMS, Maximums, Whose
from slurm_plugin.slurm.limits import maximums_of, strictest_maximums

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
    of_users: dict[Whose, dict[str, Maximums]] = {}
    together: dict[str, Maximums] = {}
    above: dict[str, str] = {}
    for line in text.splitlines():
        row = line.split("|")
        if row[0] != cluster or len(row) != _FIELDS:
            continue
        _, account, user, partition, _, _, parent, *limits = row
        most, of_all, of_node, minutes, *minutes_of_all = limits
        if user:
            own = (
                maximums_of((most, of_all), (of_node,), (minutes, *minutes_of_all))
                if any(limits)
                else NO_MAXIMUMS
            )
            of_users.setdefault((account, user.lower()), {})[partition] = own
        else:
            above[account] = parent
            if any((of_all, *minutes_of_all)):
                together[account] = maximums_of(("", of_all), (), ("", *minutes_of_all))
    of_accounts = {account: _of_account(account, together, above) for account in above}
    found = {
        whose: {partition: _with(one, of_accounts.get(whose[0], ())) for partition, one in own.items()}
        for whose, own in of_users.items()
    }
    return {whose: own for whose, own in found.items() if any(one != NO_MAXIMUMS for one in own.values())}


def _with(own: Maximums, of_accounts: Sequence[Maximums]) -> Maximums:
    return strictest_maximums((own, *of_accounts)) if of_accounts else own


def _of_account(account: str, together: dict[str, Maximums], above: dict[str, str]) -> list[Maximums]:
    """Return the maximums of an account and of those above it."""
    found = []
    while account:
        if account in together:
            found.append(together[account])
        account = above.get(account, "")
    return found
