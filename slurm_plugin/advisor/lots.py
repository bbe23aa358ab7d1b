"""In which spans of time the advisor only watches, by lot, so that its effect can be measured. Pure.

Successive cycles share a queue: what one changes, the next one finds. So lots are drawn for blocks of cycles, and the
lot of a block depends only on the cluster and the time: it is the same after a restart.
"""

from __future__ import annotations

import hashlib
import math

LOTS = 1 << 32


def block_of(time_s: float, block_s: int) -> int:
    """Return the number of the block that contains a moment (unix seconds)."""
    return math.floor(time_s / block_s)


def is_control(cluster: str, block: int, share: float) -> bool:
    """Whether the advisor only watches in a block: in a share (0 to 1) of all blocks, by lot."""
    digest = hashlib.sha256(f"{cluster} {block}".encode()).digest()
    return int.from_bytes(digest[:4], "big") < share * LOTS
