"""The policies and placements that a name stands for: the order, what a waiting job holds up, and where jobs go."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from accounting.errors import ConfigError
from models.gpus.fragmentation import usual_of
from models.gpus.placing import FULLEST, Gradient
from models.scheduling.ordering import ORDERINGS
from models.scheduling.placement import PLACEMENTS, WHOLE, Placement
from models.scheduling.run_time_guess import LastTwo
from models.simulation.engine import Policy
from models.simulation.workload import Workload

# With `-fit`, a job that does not fit holds nothing up, as in the rounds of the resource-demand paper.
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
    "deadlines": Policy(start="deadlines", guess=LastTwo),
}
# These see single GPUs; all others see a node's GPU shares as one amount.
BEST_FIT, FGD = SINGLE_GPUS = ("best-fit", "fgd")


def way_to_place(name: str, jobs: Workload) -> Placement:
    """Return the placement of this name for a load; ConfigError lists the known names."""
    if name == FGD:
        # A site knows from its past what usually comes; here the load itself stands in for that.
        return Gradient(usual_of(jobs.asked)).placement
    known = {**PLACEMENTS, BEST_FIT: FULLEST}
    if name not in known:
        raise ConfigError(f"there is no placement {name}; choose one of {', '.join([*known, FGD])}")
    return known[name]


def policies(names: Iterable[str], placement: Placement = WHOLE, seed: int = 1) -> dict[str, Policy]:
    """Return the policies of these names with a placement and a seed; ConfigError lists the known names."""
    found: dict[str, Policy] = {}
    for name in names:
        if name not in POLICIES:
            raise ConfigError(f"there is no policy {name}; choose one of {', '.join(POLICIES)}")
        found[name] = msgspec.structs.replace(POLICIES[name], placement=placement, seed=seed)
    return found
