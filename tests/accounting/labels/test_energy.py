"""Energy and its carbon: correct units, and what counts as wasted."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ConfigError
from accounting.labels.carbon import CarbonIntensity
from accounting.labels.energy import J_PER_KWH, MOST_NODE_W, EnergySite, energy_of
from accounting.records import Attempt, GpuUse
from slurm_plugin.config.energy import energy_site
from slurm_plugin.config.file import parse_config, render_config
from slurm_plugin.config.settings import Config
from tests.accounting.labels.test_carbon import BERLIN, SERIES, at, hours
from tests.builders import T0, attempt, gpu_use

FLAT = CarbonIntensity((400.0,))


def site(**changes: Any) -> EnergySite:
    """10 W per busy core, a tenth of that per idle core, 1 W per GiB, 300 W per GPU."""
    plain = EnergySite(
        carbon=FLAT,
        pue=1.5,
        watts_per_core=10.0,
        core_idle_share=0.1,
        watts_per_gib=1.0,
        watts_per_gpu=300.0,
        gpu_idle_share=0.2,
    )
    return msgspec.structs.replace(plain, **changes)


def used(one: Attempt, **changes: Any) -> Attempt:
    return msgspec.structs.replace(one, use=msgspec.structs.replace(one.use, **changes))


def measured(energy_j: float, **changes: Any) -> Attempt:
    return used(attempt(**changes), energy_j=energy_j, energy_quality="exact")


def test_one_kilowatt_for_an_hour_is_3600_kilojoules() -> None:
    metered = [gpu_use(power_mean_w=1000.0, first_s=T0 + 10, last_s=T0 + 3610)]
    one = attempt(elapsed_s=3600, alloc_cpus=None, alloc_mem_mib=None, alloc_gpus=1)
    found = energy_of(one, metered, site())
    assert found.energy_j == pytest.approx(3.6e6) == pytest.approx(1.0 * J_PER_KWH)
    assert found.carbon_kg == pytest.approx(0.6)
    assert found.estimated_j == 0.0


@given(st.integers(1, 10**6), st.floats(0.1, 5000), st.floats(1, 3), st.floats(0, 2000))
def test_carbon_is_energy_times_pue_times_grams(seconds: int, watts: float, pue: float, grams: float) -> None:
    one = measured(watts * seconds, elapsed_s=seconds)
    found = energy_of(one, [], site(pue=pue, carbon=CarbonIntensity((grams,))))
    assert found.energy_j == pytest.approx(watts * seconds)
    assert found.carbon_kg == pytest.approx(watts / 1000 * seconds / 3600 * pue * grams / 1000)
    assert (found.source, found.quality) == ("slurm", "measured")


def test_an_estimate_follows_the_sites_table_and_says_so() -> None:
    # 8 cores, 2 busy; 8000 MiB, 2000 used; one of two GPUs at 50 % all the time, without a power meter.
    one = attempt(elapsed_s=100, cores=2.0, mem_mib=2000.0, alloc_gpus=2)
    half = [gpu_use(first_s=T0 + 10, last_s=T0 + 110, util_mean_pct=50.0)]
    found = energy_of(one, half, site())
    cores_j, memory_j, gpus_j = 2 * 1000 + 6 * 100, 7.8125 * 100, 300 * (0.5 + 0.1) * 100 + 60 * 100
    assert found.energy_j == pytest.approx(cores_j + memory_j + gpus_j)
    assert found.unused_j == pytest.approx(600 + memory_j * 0.75 + 300 * 0.1 * 100 + 60 * 100)
    assert (found.estimated_j, found.quality, found.source) == (found.energy_j, "estimated", "site")


def test_the_unused_share_of_slurms_figure_is_that_of_the_estimate() -> None:
    estimated = energy_of(attempt(cores=2.0, mem_mib=2000.0), [], site())
    found = energy_of(measured(3 * estimated.energy_j, cores=2.0, mem_mib=2000.0), [], site())
    assert found.unused_j == pytest.approx(3 * estimated.unused_j) != 0
    several = measured(3 * MOST_NODE_W * 100, elapsed_s=100, nodes=4)
    assert energy_of(several, [], site()).source == "slurm"
    # Nothing is known of what it held.
    assert energy_of(measured(500.0, alloc_cpus=None, alloc_mem_mib=None), [], site()).unused_j == 0


def test_metered_time_counts_and_the_rest_of_the_time_is_idle() -> None:
    one = attempt(elapsed_s=100, alloc_cpus=None, alloc_mem_mib=None, alloc_gpus=1)
    # The meter's window began with another job of that number.
    seen = [gpu_use(first_s=T0 - 40, last_s=T0 + 60, power_mean_w=250.0, util_mean_pct=100.0)]
    found = energy_of(one, seen, site())
    assert found.energy_j == pytest.approx(250 * 50 + 60 * 50)
    assert found.estimated_j == pytest.approx(60 * 50)
    assert (found.unused_j, found.quality, found.source) == (found.estimated_j, "partly", "nvml+site")


def test_two_meters_on_one_gpu_count_once_and_time_outside_the_attempt_not_at_all() -> None:
    one = attempt(elapsed_s=100, alloc_cpus=None, alloc_mem_mib=None, alloc_gpus=1)
    seen = [
        gpu_use(first_s=T0 + 10, last_s=T0 + 110, source="simulated"),
        gpu_use(first_s=T0 - 1000, last_s=T0 + 5000, power_mean_w=250.0, util_mean_pct=100.0),
        gpu_use(first_s=T0 + 10, last_s=T0 + 110, power_mean_w=250.0, util_mean_pct=100.0),
    ]
    assert energy_of(one, seen, site()).energy_j == pytest.approx(250 * 100)


def test_samples_ingested_in_pieces_count_like_those_ingested_at_once() -> None:
    """With a collector that looks once a minute each line is a moment; the time in between is not idle."""
    one = used(attempt(elapsed_s=3600, alloc_gpus=1, end_s=T0 + 3610), wall_s=3600)
    whole = gpu_use(first_s=T0 + 10, last_s=T0 + 3610, power_mean_w=250.0, util_mean_pct=100.0)
    moments = [
        msgspec.structs.replace(whole, first_s=at, last_s=at, samples=1)
        for at in range(T0 + 10, T0 + 3611, 60)
    ]
    expected = energy_of(one, [whole], site())
    assert energy_of(one, moments, site()) == expected
    # What is read once more does not count twice either.
    assert energy_of(one, [whole, *moments[30:]], site()) == expected


def test_a_gpu_of_another_attempt_of_the_job_did_not_idle() -> None:
    """`rightsizer explain` passes all that it finds for a job's number; this job had been requeued."""
    one = attempt(elapsed_s=100, alloc_cpus=None, alloc_mem_mib=None, alloc_gpus=1)
    own = gpu_use(first_s=T0 + 10, last_s=T0 + 110, power_mean_w=250.0, util_mean_pct=100.0)
    earlier = gpu_use(node="n2", gpu=3, first_s=T0 - 900, last_s=T0 - 500, power_mean_w=250.0)
    later = gpu_use(node="n2", gpu=3, first_s=T0 + 500, last_s=T0 + 900, power_mean_w=250.0)
    assert energy_of(one, [earlier, own, later], site()) == energy_of(one, [own], site())
    assert energy_of(one, [earlier, later], site()) == energy_of(one, [], site())


def test_an_idle_gpu_wastes_all_it_draws_and_a_busy_one_nothing() -> None:
    one = attempt(elapsed_s=100, alloc_cpus=None, alloc_mem_mib=None, alloc_gpus=1)
    for util_pct, share in ((0.0, 1.0), (100.0, 0.0)):
        seen = [gpu_use(first_s=T0 + 10, last_s=T0 + 110, power_mean_w=90.0, util_mean_pct=util_pct)]
        found = energy_of(one, seen, site())
        assert found.unused_j == pytest.approx(share * 90 * 100)
    # With a table in which an idle GPU draws nothing, nothing was drawn and nothing wasted.
    idle = [gpu_use(first_s=T0 + 10, last_s=T0 + 110, util_mean_pct=0.0)]
    found = energy_of(one, idle, site(gpu_idle_share=0.0))
    assert (found.energy_j, found.unused_j) == (0.0, 0.0)


def test_a_mig_instance_counts_as_the_smallest() -> None:
    one = attempt(elapsed_s=100, alloc_cpus=None, alloc_mem_mib=None, alloc_gpus=1)
    seen = [
        gpu_use(
            instance=0, first_s=T0 + 10, last_s=T0 + 110, util_max_pct=None, util_mean_pct=None, samples=9
        )
    ]
    found = energy_of(one, seen, site())
    assert found.energy_j == pytest.approx(300 / 7 * 100)
    assert found.unused_j == 0.0


def test_more_gpus_than_were_allocated_cost_what_they_drew() -> None:
    """As where several instances of one GPU are metered, or where Slurm does not say how many GPUs there were."""
    one = attempt(elapsed_s=100, alloc_cpus=None, alloc_mem_mib=None, alloc_gpus=None)
    seen = [gpu_use(gpu=gpu, first_s=T0 + 10, last_s=T0 + 110, power_mean_w=250.0) for gpu in range(3)]
    assert energy_of(one, seen, site()).energy_j == pytest.approx(3 * 250 * 100)


def test_gpus_without_a_meter_count_as_slurm_saw_them_and_otherwise_as_busy() -> None:
    one = attempt(elapsed_s=100, alloc_cpus=None, alloc_mem_mib=None, alloc_gpus=4)
    assert energy_of(one, [], site()).energy_j == pytest.approx(4 * 300 * 100)
    assert energy_of(one, [], site()).unused_j == 0.0
    found = energy_of(used(one, gpus=1), [], site())
    assert found.energy_j == pytest.approx((300 + 3 * 60) * 100)
    assert found.unused_j == pytest.approx(3 * 60 * 100)


def test_gpus_of_nodes_without_a_meter_are_not_called_idle() -> None:
    one = used(attempt(elapsed_s=100, alloc_cpus=None, alloc_mem_mib=None, alloc_gpus=4, nodes=2), gpus=1)
    seen = [gpu_use(first_s=T0 + 10, last_s=T0 + 110, power_mean_w=250.0, util_mean_pct=100.0)]
    found = energy_of(one, seen, site())
    assert found.energy_j == pytest.approx(25_000 + 3 * 30_000)
    assert found.unused_j == 0.0
    elsewhere = msgspec.structs.replace(seen[0], node="n9")
    assert energy_of(one, [*seen, elsewhere], site()).unused_j == pytest.approx(2 * 6_000)


def test_slurms_figure_includes_gpus_only_where_its_plugin_counts_them() -> None:
    one = measured(50_000.0, elapsed_s=100, alloc_gpus=1)
    seen = [gpu_use(first_s=T0 + 10, last_s=T0 + 110, power_mean_w=300.0, util_mean_pct=100.0)]
    assert energy_of(one, seen, site()).energy_j == pytest.approx(50_000)
    assert energy_of(one, seen, site(slurm_counts_gpus=False)).energy_j == pytest.approx(80_000)
    # Less than the GPUs alone were seen to draw: the figure cannot include them, whatever the site says.
    small = measured(20_000.0, elapsed_s=100, alloc_gpus=1)
    assert energy_of(small, seen, site()).energy_j == pytest.approx(50_000)
    assert energy_of(small, seen, site()).source == "nvml+slurm"
    # Draw that no meter saw contradicts no figure.
    assert energy_of(small, [], site()).energy_j == pytest.approx(20_000)


@pytest.mark.parametrize("energy_j", [0.0, -5.0, float("nan"), float("inf"), 1.8e19])
def test_an_impossible_figure_is_replaced_by_an_estimate(energy_j: float) -> None:
    assert energy_of(measured(energy_j), [], site()) == energy_of(attempt(), [], site())


@pytest.mark.parametrize("state", ["FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED by 0", "NODE_FAIL"])
def test_an_attempt_that_did_not_complete_is_lost_entirely(state: str) -> None:
    found = energy_of(attempt(state=state), [], site())
    assert (found.lost_j, found.unused_j) == (found.energy_j, 0.0)


def test_what_is_unknown_is_not_called_unused() -> None:
    one = used(attempt(), cores=None, peak_mem_mib=None)
    assert energy_of(one, [], site()).wasted_j == 0.0
    assert energy_of(attempt(state="RUNNING"), [], site()).lost_j == 0.0


POWER = st.none() | st.floats(0, 2000)
USES = st.lists(
    st.builds(
        lambda gpu, first, span, util, power, source, instance: gpu_use(
            gpu=gpu,
            first_s=T0 + first,
            last_s=T0 + first + span,
            util_mean_pct=util,
            power_mean_w=power,
            source=source,
            instance=instance,
        ),
        st.integers(0, 3),
        st.integers(-50, 300),
        st.integers(0, 400),
        st.none() | st.floats(0, 100),
        POWER,
        st.sampled_from(["nvml", "other"]),
        st.sampled_from([-1, 1, 2]),
    ),
    max_size=8,
)


@given(
    USES,
    st.integers(0, 10**5),
    st.none() | st.floats(0, 1e7),
    st.none() | st.integers(0, 64),
    st.none() | st.floats(0, 100),
    st.booleans(),
    st.sampled_from(["COMPLETED", "FAILED", "TIMEOUT"]),
)
def test_the_total_covers_useful_and_wasted_energy_whatever_is_known(
    uses: list[GpuUse],
    seconds: int,
    energy_j: float | None,
    gpus: int | None,
    cores: float | None,
    counts_gpus: bool,
    state: str,
) -> None:
    one = used(attempt(elapsed_s=seconds, alloc_gpus=gpus, state=state), cores=cores)
    if energy_j is not None:
        one = used(one, energy_j=energy_j, energy_quality="exact")
    found = energy_of(one, uses, site(slurm_counts_gpus=counts_gpus))
    slack = 1e-6 * (1 + found.energy_j)
    assert 0.0 <= found.wasted_j <= found.energy_j + slack
    assert 0.0 <= found.estimated_j <= found.energy_j + slack
    assert found.carbon_kg == pytest.approx(found.energy_j * 1.5 / J_PER_KWH * 0.4)
    if not seconds:
        assert found.energy_j == 0.0


def test_an_attempt_that_never_started_cost_nothing() -> None:
    never = attempt(elapsed_s=0, start_s=0, state="CANCELLED by 0")
    found = energy_of(never, [], site(carbon=CarbonIntensity(tuple(map(float, range(24))), BERLIN)))
    assert (found.energy_j, found.carbon_kg, found.wasted_j, found.quality) == (0.0, 0.0, 0.0, "measured")


def test_across_midnight_each_hour_counts_with_its_own_figure() -> None:
    begin_s, end_s = at("2026-01-10T22:30:00+01:00"), at("2026-01-11T01:30:00+01:00")
    assert hours().mean(begin_s, end_s) == pytest.approx((22 * 0.5 + 23 + 0 + 1 * 0.5) / 3)
    one = attempt(start_s=int(begin_s), elapsed_s=int(end_s - begin_s))
    flat = energy_of(one, [], site(carbon=CarbonIntensity((1.0,))))
    found = energy_of(one, [], site(carbon=hours()))
    assert found.carbon_kg == pytest.approx(flat.carbon_kg * 34.5 / 3)


def test_the_configuration_becomes_a_site(tmp_path: Path) -> None:
    # As Excel writes it: with a byte order mark.
    (tmp_path / "grid.csv").write_text(SERIES, encoding="utf-8-sig")
    text = f'[energy]\ncarbon_g_per_kwh = {list(range(24))}\ncarbon_file = "{tmp_path}/grid.csv"\npue = 1.2\n'
    config = parse_config(text + 'time_zone = "Europe/Berlin"')
    assert parse_config(render_config(config)) == config
    found = energy_site(config.energy)
    assert found.carbon.g_per_kwh == tuple(map(float, range(24)))
    assert found.carbon.zone == BERLIN
    assert (found.pue, found.carbon.series is not None) == (1.2, True)
    plain = energy_site(Config().energy)
    assert plain == EnergySite(carbon=CarbonIntensity((473.0,)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('time_zone = "Mars/Olympus"', "this machine does not know the time zone `Mars/Olympus`"),
        ('carbon_file = "/none.csv"', "cannot read /none.csv"),
    ],
)
def test_the_error_for_an_invalid_site_names_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        energy_site(parse_config(f"[energy]\n{text}").energy)


@pytest.mark.parametrize(
    "text", ["pue = 0.9", f"carbon_g_per_kwh = {[1] * 23}", "core_idle_share = 1.1", "watts_per_gpu = -1"]
)
def test_figures_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"\$\.energy\."):
        parse_config(f"[energy]\n{text}")
