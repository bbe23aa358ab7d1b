"""The policies that a name stands for, in one table: an order, and what a job that waits holds up."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from accounting.errors import ConfigError
from models.scheduling.ordering import ORDERINGS
from models.scheduling.placement import PLACEMENTS
from models.scheduling.run_time_guess import LastTwo
from models.simulation.engine import Policy

# With `-fit`, a job that does not fit holds nothing up: the rounds of the resource-demand paper.
POLICIES: dict[str, Policy] = {
    **{name: Policy(ordering=ordering) for name, ordering in ORDERINGS.items()},
    **{
        f"{name}-fit": Policy(ordering=ordering, start="greedy")
        for name, ordering in ORDERINGS.items()
        if not ordering.fair
    },
    "easy": Policy(start="easy"),
    "easy++": Policy(start="easy", guess=LastTwo),
    "conservative": Policy(start="conservative"),
}


def policies(names: Iterable[str], placement: str, seed: int = 1) -> dict[str, Policy]:
    """Return the policies of these names with a way to place, and a seed; ConfigError names those there are."""
    if placement not in PLACEMENTS:
        raise ConfigError(f"no placement is called {placement}; there are {', '.join(PLACEMENTS)}")
    found: dict[str, Policy] = {}
    for name in names:
        if name not in POLICIES:
            raise ConfigError(f"no policy is called {name}; there are {', '.join(POLICIES)}")
        found[name] = msgspec.structs.replace(POLICIES[name], placement=PLACEMENTS[placement], seed=seed)
    return found
