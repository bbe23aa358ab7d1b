"""How much of the service one user may take: connections at once, requests over time. Pure: callers have the clock."""

from __future__ import annotations

from dataclasses import dataclass

AT_ONCE = 8
AT_ONCE_IN_ALL = 128
# A loop of sruns is a real way to work; a decision is some 700 bytes of journal, so this is 120 MB a day at most. What
# a long request adds to that is no more than its own length.
BURST = 200
PER_S = 2.0
REQUEST_BYTES = 1024


@dataclass
class _User:
    left: float
    seen_s: float
    open: int = 0


class Allowance:
    """Counts by uid. Who has rested long enough to have all of it again is forgotten."""

    def __init__(self) -> None:
        self._users: dict[int, _User] = {}

    def admit(self, uid: int, now_s: float) -> bool:
        """Take one request of a user, who is to be told to `leave` when it is done; False where it is one too many."""
        user = self._users.get(uid)
        if user is None:
            self._forget_rested(now_s)
            user = self._users[uid] = _User(BURST, now_s)
        user.left = min(BURST, user.left + max(0.0, now_s - user.seen_s) * PER_S)
        user.seen_s = now_s
        in_all = sum(one.open for one in self._users.values())
        if user.open >= AT_ONCE or in_all >= AT_ONCE_IN_ALL or user.left < 1:
            return False
        user.left -= 1
        user.open += 1
        return True

    def charge(self, uid: int, line_bytes: int) -> None:
        """Take as many more requests of an admitted user as his one has room for; he has to wait for them later."""
        self._users[uid].left -= line_bytes // REQUEST_BYTES

    def leave(self, uid: int) -> None:
        """End one admitted request."""
        self._users[uid].open -= 1

    def _forget_rested(self, now_s: float) -> None:
        rested = [
            uid
            for uid, user in self._users.items()
            if not user.open and user.left + (now_s - user.seen_s) * PER_S >= BURST
        ]
        for uid in rested:
            del self._users[uid]
