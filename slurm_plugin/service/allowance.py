"""How much of the service one user may use: connections at once, requests over time. Pure: callers pass the time."""

from __future__ import annotations

from dataclasses import dataclass

AT_ONCE = 8
AT_ONCE_IN_ALL = 128
# A loop of sruns is a legitimate way to work. A decision takes some 700 bytes of journal, so this is 120 MB a day; and
# 530 on purpose, as a decision names unknown options three times. A longer request costs as much as several.
BURST = 200
PER_S = 2.0
REQUEST_BYTES = 1024


@dataclass
class _User:
    left: float
    seen_s: float
    open: int = 0


class Allowance:
    """Counts by uid, on a clock that is never set back. A user who has all of the allowance again is forgotten."""

    def __init__(self) -> None:
        self._users: dict[int, _User] = {}

    def admit(self, uid: int, now_s: float) -> bool:
        """Count one request of a user; False if it is one too many. Call `leave` when an admitted request is done."""
        user = self._users.get(uid)
        if user is None:
            self._forget_rested(now_s)
            user = self._users[uid] = _User(BURST, now_s)
        user.left = min(BURST, user.left + (now_s - user.seen_s) * PER_S)
        user.seen_s = now_s
        in_all = sum(one.open for one in self._users.values())
        if user.open >= AT_ONCE or in_all >= AT_ONCE_IN_ALL or user.left < 1:
            return False
        user.left -= 1
        user.open += 1
        return True

    def charge(self, uid: int, line_bytes: int) -> None:
        """Charge an admitted user for a long line as for more requests: the user may have to wait for them later."""
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
