"""How long an owner likely stays away, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.scheduling.idleness import Idleness

H = 3600.0


def test_only_longer_spells_tell_of_this_one() -> None:
    nights_and_lunches = Idleness([1 * H] * 20 + [14 * H] * 9)
    # At noon a lunch is all that is sure; after two hours it is no lunch.
    assert nights_and_lunches.left_s(0, 0.2) == 1 * H
    assert nights_and_lunches.left_s(2 * H, 0.2) == 12 * H


def test_it_learns_from_spells_that_end() -> None:
    habits = Idleness()
    assert habits.left_s(2 * H, 0.2) == pytest.approx(0.5 * H)
    for _ in range(4):
        habits.ended(10 * H)
    assert habits.left_s(2 * H, 0.2) == 8 * H


def test_a_spell_without_equal_likely_lasts_a_share_of_what_it_has() -> None:
    habits = Idleness([1 * H] * 50)
    assert habits.left_s(3 * H, 0.25) == pytest.approx(1 * H)
    assert habits.left_s(0, 0.25) == 1 * H


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(0, 60), st.sampled_from([0.05, 0.2, 0.5]))
def test_no_more_of_the_longer_spells_than_the_risk_end_before(
    spells: list[int], idle_s: int, risk: float
) -> None:
    left_s = Idleness(map(float, spells)).left_s(idle_s, risk)
    longer = [spell for spell in spells if spell > idle_s]
    assert left_s >= 0
    if int(risk * (len(longer) + 1)):
        assert sum(spell < idle_s + left_s for spell in longer) <= risk * (len(longer) + 1)
        assert idle_s + left_s in longer


@pytest.mark.parametrize(("idle_s", "risk"), [(1.0, 0.0), (1.0, 1.0), (-1.0, 0.2), (float("nan"), 0.2)])
def test_what_means_nothing_is_refused(idle_s: float, risk: float) -> None:
    with pytest.raises(ModelError, match="give a share in between"):
        Idleness().left_s(idle_s, risk)
