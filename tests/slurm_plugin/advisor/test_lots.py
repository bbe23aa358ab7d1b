"""In which blocks of time the advisor only watches."""

from __future__ import annotations

from slurm_plugin.advisor.lots import block_of, is_control


def test_control_blocks_are_drawn_as_often_as_the_site_wants_and_reproducibly() -> None:
    drawn = [is_control("alpha", block, 0.1) for block in range(10_000)]
    assert 900 < sum(drawn) < 1100
    assert drawn == [is_control("alpha", block, 0.1) for block in range(10_000)]
    assert drawn != [is_control("beta", block, 0.1) for block in range(10_000)]
    assert not any(is_control("alpha", block, 0.0) for block in range(1000))
    assert all(is_control("alpha", block, 1.0) for block in range(1000))


def test_a_control_block_is_as_long_as_the_site_wants() -> None:
    assert [block_of(time_s, 3600) for time_s in (7199.9, 7200.0, 10_799.9, 10_800.0)] == [1, 2, 2, 3]
