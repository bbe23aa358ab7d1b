"""How long it is remembered why a waiting job was left as it is."""

from __future__ import annotations

from models.demand.prediction import ChainSettings, Predictor
from models.past.history import History
from slurm_plugin.advisor.left_alone import HOLDS_S, LeftAlone
from slurm_plugin.policy.facts import SiteFacts
from tests.slurm_plugin.slurm.queued import NOW_S, waiting


def test_a_job_is_looked_at_again_with_another_model_or_other_facts_or_after_ten_minutes() -> None:
    models = [Predictor("m", History(5), {}, ChainSettings()) for _ in range(2)]
    facts, job = SiteFacts(), waiting(1)
    for later, holds in (
        ((models[0], facts, NOW_S + HOLDS_S), True),
        ((models[1], facts, NOW_S), False),
        ((models[0], SiteFacts(), NOW_S), False),
        ((models[0], facts, NOW_S + HOLDS_S + 1), False),
        ((models[0], facts, NOW_S - 1), False),
    ):
        left = LeftAlone()
        left.begin(models[0], facts, NOW_S)
        left.keep(job, None, "fits", ())
        left.begin(*later)
        assert (left.of(job) is not None) is holds
