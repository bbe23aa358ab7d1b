"""Requests drawn by chance: what Slurm lets run as it was typed also runs when it is cut, and in the same way."""

from dataclasses import replace

import pytest

from tests.cluster.matrix.prefixes import chosen_prefix, why_missing
from tests.cluster.twins.clusters import CLUSTERS
from tests.cluster.twins.compare import Outcome, losses, verdict
from tests.cluster.twins.draw import drawn
from tests.cluster.twins.pairs import run_pairs

REQUESTS = 24
SEED = 1

TWIN = Outcome(
    "COMPLETED",
    allocated={"cpu": 8, "mem": 4000, "node": 2, "gres/gpu": 2},
    tasks=((0, 1), (0, 1), (1, 1)),
)
CUT = replace(TWIN, allocated={"cpu": 4, "mem": 1024, "node": 2, "gres/gpu": 2})


def test_a_cut_request_that_ran_like_its_twin_lost_nothing() -> None:
    assert losses(CUT, TWIN, used_mib=500, used_cores=3) == []
    assert verdict(CUT, TWIN) == "cut"
    assert verdict(TWIN, TWIN) == "as it was"


@pytest.mark.parametrize(
    ("changed", "loss"),
    [
        ({"end": "waits", "said": "Resources"}, "waits, not COMPLETED: Resources"),
        ({"end": "refused", "said": "sbatch: error: no"}, "refused, not COMPLETED: sbatch: error: no"),
        ({"allocated": CUT.allocated | {"node": 1}}, "nodes 1, not 2"),
        ({"tasks": ((0, 1), (1, 1), (1, 1))}, "tasks on each node (1, 2), not (2, 1)"),
        ({"tasks": ((0, 1), (0, 0), (1, 1))}, "a task sees no GPU"),
        ({"allocated": CUT.allocated | {"cpu": 9}}, "cpu 9, more than 8"),
        ({"allocated": CUT.allocated | {"cpu": 2}}, "2 CPUs, fewer than the 3 that are busy"),
        (
            {"allocated": CUT.allocated | {"mem": 999}},
            "999 MiB, less than the 1000 that are used",
        ),
    ],
)
def test_what_a_cut_request_lost_is_named(changed: dict[str, object], loss: str) -> None:
    assert losses(replace(CUT, **changed), TWIN, used_mib=500, used_cores=3) == [loss]  # type: ignore[arg-type]


def test_what_does_not_run_as_it_was_typed_proves_nothing() -> None:
    refused = Outcome("refused")
    for ours in (refused, CUT):
        assert losses(ours, refused, used_mib=500, used_cores=3) == []
    assert verdict(refused, refused) == "not run"


def test_a_seed_draws_the_same_requests_again() -> None:
    assert drawn(50, 7) == drawn(50, 7) != drawn(50, 8)


@pytest.mark.cluster
@pytest.mark.slow
def test_requests_drawn_by_chance_lose_nothing_by_being_cut() -> None:
    if reason := why_missing(chosen_prefix()):
        pytest.skip(reason)
    pairs = list(run_pairs(chosen_prefix(), drawn(REQUESTS, SEED), CLUSTERS["uneven"]))
    assert [(pair.form.asked, pair.losses) for pair in pairs if pair.losses] == []
    assert "cut" in [verdict(pair.ours, pair.twin) for pair in pairs]
