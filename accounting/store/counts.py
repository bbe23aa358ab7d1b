"""What a write did."""

from __future__ import annotations

import msgspec


class Counts(msgspec.Struct):
    """How many rows a write added, changed, and found as they were."""

    new: int = 0
    changed: int = 0
    same: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Add count by count."""
        return Counts(self.new + other.new, self.changed + other.changed, self.same + other.same)
