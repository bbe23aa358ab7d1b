"""All targets, by name."""

from __future__ import annotations

from tests.fuzz import accounts, configs, journals, queue, scripts, sharing, tokens, wire
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for room in (wire, tokens, configs, accounts, queue, scripts, sharing, journals)
    for target in room.TARGETS
}
