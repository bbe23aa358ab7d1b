"""Which QOS Slurm may give a job that names none, without the hook seeing it. Pure.

slurmctld shows the hook less than it then applies (`assoc_mgr_get_default_qos_info`, 22.05 to 26.05): no default but
the association's own; and if a job names no partition, none of an association with the default partition.
"""

from __future__ import annotations

from collections.abc import Collection

from slurm_plugin.policy.facts import ANYBODY, Whose
from slurm_plugin.slurm.account_maximums import LIMITS

_FIELDS = ("Cluster", "Account", "User", "Partition", "QOS", "DefaultQOS")
# Of all users; a user without QOS of their own is shown with those of the account here. The limits come along
# (account_maximums.py).
COMMAND = (
    *("sacctmgr", "--noheader", "--parsable2", "show", "associations"),
    f"format={','.join((*_FIELDS, *LIMITS))}",
)
# The QOS that Slurm gives if nothing else says which.
_LAST = "normal"


def parse_given_qos(text: str, cluster: str, telling: Collection[str]) -> dict[Whose, frozenset[str]]:
    """Read what COMMAND prints, of this cluster: by account and user, which QOS may be given unseen by the hook.

    Only QOS in `telling` are included. Such a QOS is the only one of an association without a default, or the default
    of an association for a partition. Everybody else, as ANYBODY, is given the default of the cluster's root, or
    `normal`. Where that is in `telling`, who is given another QOS is included, too, with none; else only users who may
    be given one of `telling`, so that these are few.
    """
    lines = (line.split("|")[: len(_FIELDS)] for line in text.splitlines())
    rows = [row for row in lines if len(row) == len(_FIELDS)]
    given: dict[Whose, set[str]] = {}
    of_root = {_LAST}
    for where, account, user, partition, several, default in rows:
        if where != cluster:
            continue
        if not user:
            of_root = {default} if account == "root" and default else of_root
            continue
        only = several if "," not in several else ""
        name = only if not default else default if partition else ""
        if name:
            given.setdefault((account, user.lower()), set()).add(name)
    of_anybody = frozenset(of_root & set(telling))
    told = {whose: frozenset(names & set(telling)) for whose, names in given.items()}
    return {whose: names for whose, names in told.items() if names or of_anybody} | {ANYBODY: of_anybody}
