"""How long an owner is likely to stay away, worked out by hand."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.scheduling.idleness import Idleness, Owners

H = 3600.0


def test_only_spells_longer_than_the_current_one_count() -> None:
    nights_and_lunches = Idleness([1 * H] * 20 + [14 * H] * 9)
    # At first only a lunch break is sure; after two hours it cannot be a lunch break.
    assert nights_and_lunches.left_s(0, 0.2) == 1 * H
    assert nights_and_lunches.left_s(2 * H, 0.2) == 12 * H


def test_habits_are_learned_from_spells_that_end() -> None:
    habits = Idleness()
    assert habits.left_s(2 * H, 0.2) == pytest.approx(0.5 * H)
    for _ in range(4):
        habits.ended(10 * H)
    assert habits.left_s(2 * H, 0.2) == 8 * H


def test_a_spell_longer_than_all_before_is_expected_to_last_a_share_of_its_length_more() -> None:
    habits = Idleness([1 * H] * 50)
    assert habits.left_s(3 * H, 0.25) == pytest.approx(1 * H)
    assert habits.left_s(0, 0.25) == 1 * H


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(0, 60), st.sampled_from([0.05, 0.2, 0.5]))
def test_no_more_of_the_longer_spells_than_the_risk_end_before_that(
    spells: list[int], idle_s: int, risk: float
) -> None:
    left_s = Idleness(map(float, spells)).left_s(idle_s, risk)
    longer = [spell for spell in spells if spell > idle_s]
    assert left_s >= 0
    if int(risk * (len(longer) + 1)):
        assert sum(spell < idle_s + left_s for spell in longer) <= risk * (len(longer) + 1)
        assert idle_s + left_s in longer


@pytest.mark.parametrize(("idle_s", "risk"), [(1.0, 0.0), (1.0, 1.0), (-1.0, 0.2), (float("nan"), 0.2)])
def test_meaningless_habits_are_refused(idle_s: float, risk: float) -> None:
    with pytest.raises(ModelError, match="give a share in between"):
        Idleness().left_s(idle_s, risk)


def test_the_share_of_owners_who_are_back_counts_longer_spells_alone() -> None:
    habits = Idleness([1 * H] * 5 + [3 * H] * 4)
    assert habits.ended_within(0, 0.5 * H) == pytest.approx(0.1)
    assert habits.ended_within(0, 2 * H) == pytest.approx(0.6)
    assert habits.ended_within(2 * H, 2 * H) == 1
    # No spell lasted this long: of eleven such spells all but one last a tenth longer.
    assert habits.ended_within(10 * H, 1 * H) == pytest.approx(1 / 11)
    assert habits.ended_within(0, 0) <= 0.1


@given(
    st.lists(st.floats(1, 1e6), max_size=20),
    st.floats(0, 1e6),
    st.floats(0.01, 0.9),
)
def test_both_questions_have_consistent_answers(spells_s: list[float], idle_s: float, risk: float) -> None:
    habits = Idleness(spells_s)
    # Where too few spells lasted longer, one answer uses these few, and the other the time that has passed.
    assume(risk * (sum(one > idle_s for one in spells_s) + 1) >= 1)
    left_s = habits.left_s(idle_s, risk)
    assert habits.ended_within(idle_s, 0.999 * left_s) <= risk + 1e-9


def test_owners_are_learned_node_by_node() -> None:
    owners = Owners[str]()
    assert (owners.back_within("a", 0, H), owners.left_s("a", 0, 0.2)) == (1, 0)
    owners.learned("a", [8 * H] * 9)
    owners.goes("a", 0)
    owners.goes("b", H)
    assert owners.back_within("a", H, H) == pytest.approx(5 * 0.1 / 14)
    assert owners.back_within("b", 2 * H, H) == pytest.approx(0.1)
    owners.comes("b", 3 * H)
    assert owners.back_within("b", 4 * H, 1) == 1
    # Of this node's own spells, one had ended by then, the only one; of all ten spells, one had too.
    owners.goes("b", 4 * H)
    assert owners.back_within("b", 4 * H, 3 * H) == pytest.approx((1 + 5 * 2 / 11) / (1 + 5))
    owners.learned("b", [2 * H] * 100)
    assert owners.back_within("b", 4 * H, 3 * H) > 0.99
    assert owners.back_within("a", 3 * H, 3 * H) < 0.4


def test_an_owner_who_comes_back_at_once_or_whose_clock_was_set_back_tells_nothing() -> None:
    owners = Owners[str]()
    for from_s, to_s in ((H, H), (2 * H, H), (2 * H, 2 * H)):
        owners.goes("a", from_s)
        owners.comes("a", to_s)
    owners.goes("a", 3 * H)
    owners.goes("b", 3 * H)
    assert owners.back_within("a", 4 * H, H) == owners.back_within("b", 4 * H, H) == pytest.approx(0.5)
