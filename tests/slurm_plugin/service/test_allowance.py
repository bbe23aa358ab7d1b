"""How much a user may ask on the clients' socket: a number at once, a rate, and long requests cost more."""

from __future__ import annotations

from slurm_plugin.service.allowance import AT_ONCE, AT_ONCE_IN_ALL, BURST, PER_S, REQUEST_BYTES, Allowance
from slurm_plugin.service.protocol import MAX_REQUEST_BYTES


def test_requests_at_once_are_bounded_for_each_user_and_in_total() -> None:
    allowance = Allowance()
    assert [allowance.admit(1, 0.0) for _ in range(AT_ONCE + 1)] == [True] * AT_ONCE + [False]
    assert allowance.admit(2, 0.0)
    allowance.leave(1)
    assert allowance.admit(1, 0.0)
    others = [allowance.admit(uid, 0.0) for uid in range(10, 10 + AT_ONCE_IN_ALL)]
    assert others.count(True) == AT_ONCE_IN_ALL - AT_ONCE - 1


def test_a_burst_is_refilled_over_time() -> None:
    allowance = Allowance()

    def one(now_s: float) -> bool:
        admitted = allowance.admit(1, now_s)
        if admitted:
            allowance.leave(1)
        return admitted

    assert [one(0.0) for _ in range(BURST + 1)] == [True] * BURST + [False]
    assert [one(3 / PER_S) for _ in range(4)] == [True] * 3 + [False]
    assert [one(1e6) for _ in range(BURST + 1)] == [True] * BURST + [False], "rest is not saved up"


def test_others_do_not_give_a_user_the_allowance_back() -> None:
    allowance = Allowance()
    for _ in range(BURST):
        assert allowance.admit(1, 0.0)
        allowance.leave(1)
    assert allowance.admit(2, 0.0)
    assert not allowance.admit(1, 0.0)
    # Nor is a request of theirs forgotten that lasts for hours.
    assert allowance.admit(3, 1e6)
    allowance.leave(2)


def test_long_requests_cost_more() -> None:
    allowance = Allowance()
    answered = 0
    for second in range(1000):
        if allowance.admit(1, float(second)):
            allowance.charge(1, MAX_REQUEST_BYTES)
            allowance.leave(1)
            answered += 1
    assert answered <= (BURST + 1000 * PER_S) / (MAX_REQUEST_BYTES / REQUEST_BYTES) + 1


def test_a_user_whose_allowance_is_full_again_is_forgotten() -> None:
    allowance = Allowance()
    for uid in range(1000):
        assert allowance.admit(uid, float(uid * BURST))
        allowance.leave(uid)
    assert len(allowance._users) <= 3
