"""The members of groups, and the groups of users.

Groups that the site's rules name are looked up beforehand, because a directory service may be slow.
"""

from __future__ import annotations

import grp
import os
import pwd

from accounting.errors import ConfigError
from slurm_plugin.config.settings import Config


def members_of_rules(config: Config) -> dict[str, frozenset[str]]:
    """Return the users of every group that a rule names; raises ConfigError for a group that does not exist."""
    return {name: members(name) for rule in config.rules for name in rule.group}


def members(group: str) -> frozenset[str]:
    """Return the users of a group, including those whose primary group it is."""
    try:
        entry = grp.getgrnam(group)
    except KeyError:
        raise ConfigError(
            f"rules.group names {group!r}, but this machine has no such group; correct the name or "
            "create the group"
        ) from None
    return frozenset(entry.gr_mem) | {user.pw_name for user in pwd.getpwall() if user.pw_gid == entry.gr_gid}


def groups_of(user: str) -> frozenset[str] | None:
    """Return the names of a user's groups; None if this host does not know the user, or one of the groups."""
    try:
        numbers = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
        return frozenset(grp.getgrgid(number).gr_name for number in numbers)
    except (KeyError, OSError):
        return None
