"""Which part of a GPU would be enough for a job, and how much longer it would run there at most."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.gpus.parts import MIB_A_GIB, MIG, Part, least_part, mig_instances, shards, times_at_most

# What nvidia-smi lists (`mig -lgip`), by the memory in a GPU's name: profiles, and the MiB of some of them.
LISTED = {
    (40, 7): (["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb"], {"1g.5gb": 4864, "3g.20gb": 19968}),
    (80, 7): (["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb"], {"1g.10gb": 9728, "3g.40gb": 40192}),
    (94, 7): (["1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb"], {"1g.12gb": 11008}),
    (141, 7): (["1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb"], {"1g.18gb": 16384}),
    (24, 4): (["1g.6gb", "2g.12gb"], {"1g.6gb": 5952}),
}


@pytest.mark.parametrize(("gpu", "listed"), LISTED.items())
def test_instances_have_the_names_of_the_profiles_and_no_more_than_their_memory(
    gpu: tuple[int, int], listed: tuple[list[str], dict[str, int]]
) -> None:
    found = {part.name: part for part in mig_instances(*gpu)}
    names, mem_mib = listed
    assert list(found) == names
    for name, there_mib in mem_mib.items():
        assert 0.9 * there_mib <= found[name].mem_mib <= there_mib


@pytest.mark.parametrize("most", MIG)
def test_instances_that_take_their_share_fit_on_a_gpu_together(most: int) -> None:
    first = mig_instances(80, most)[0]
    assert round(1 / first.share) == most
    assert all(part.speed <= part.share for part in mig_instances(80, most))


def test_an_instance_takes_the_larger_of_its_shares_and_is_as_fast_as_the_smaller() -> None:
    """Of seven parts of the processors, and eight of the memory."""
    assert [(part.share, part.speed) for part in mig_instances(80, 7)] == [
        (1 / 7, 1 / 8), (2 / 8, 1 / 7), (2 / 7, 2 / 8), (4 / 8, 3 / 7), (4 / 7, 4 / 8),
    ]  # fmt: skip


def test_jobs_that_compute_on_shards_take_turns() -> None:
    one, two, three = shards(32, 4)
    assert (one.name, one.share, one.speed) == ("shard:1", 0.25, 0.25)
    assert (two.share, two.speed) == (0.5, 1 / 3)
    assert (three.share, three.speed) == (0.75, 0.5)
    assert 0.85 * 16 * MIB_A_GIB < two.mem_mib < 16 * MIB_A_GIB


def runs_s(busy: list[float], idle: list[float], reach: list[float], speed: float) -> float:
    """How long a job takes that computes and rests in turn; its kernels can use up to `reach` of a whole GPU."""
    computes = sum(one * max(1.0, each / speed) for one, each in zip(busy, reach, strict=True))
    return computes + sum(idle)


@given(st.integers(0, 1000), st.floats(0.05, 1.0))
def test_no_job_takes_longer_than_predicted_however_its_kernels_fill_the_gpu(seed: int, speed: float) -> None:
    drawn = random.Random(seed)
    busy, idle, reach = ([drawn.random() for _ in range(5)] for _ in range(3))
    whole = sum(busy) + sum(idle)
    most = times_at_most(sum(busy) / whole, speed)
    assert runs_s(busy, idle, reach, speed) <= whole * most * (1 + 1e-9)
    full = runs_s(busy, idle, [1.0] * 5, speed)
    assert full == pytest.approx(whole * most)


def test_the_chosen_part_is_the_one_that_takes_least_of_those_that_hold_the_job() -> None:
    instances = mig_instances(80, 7)

    def chosen(mem_mib: float, busy: float, most_times: float = 1.25) -> str | None:
        part = least_part(instances, mem_mib, busy, most_times)
        return part and part.name

    assert chosen(1000, 0.0) == "1g.10gb"
    assert chosen(10_000, 0.0) == "1g.20gb"
    assert chosen(10_000, 0.05) == "2g.20gb", "a seventh of the processors is too slow for it"
    assert chosen(1000, 0.15) == "3g.40gb"
    assert chosen(1000, 0.9) is None
    assert chosen(60_000, 0.0) is None
    assert chosen(1000, 1.0, most_times=10) is None, "seven times as long in a seventh is no gain"


@given(st.floats(0, 1), st.floats(0, 80_000), st.floats(1, 8))
def test_a_part_holds_the_job_in_time_and_frees_some_of_its_gpu(
    busy: float, mem_mib: float, most_times: float
) -> None:
    parts = [*mig_instances(80, 7), *shards(80, 3)]
    part = least_part(parts, mem_mib, busy, most_times)

    def gains(one: Part) -> bool:
        times = times_at_most(busy, one.speed)
        return one.mem_mib >= mem_mib and times <= most_times and one.share * times < 1

    assert part is not None if any(map(gains, parts)) else part is None
    if part is not None:
        assert gains(part)
        taken = part.share * times_at_most(busy, part.speed)
        assert all(one.share * times_at_most(busy, one.speed) >= taken for one in filter(gains, parts))
