"""Reports on use and waste, compared with figures computed by hand."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine

from accounting.labels.carbon import CarbonIntensity
from accounting.labels.energy import EnergySite, energy_of
from accounting.report import usage
from accounting.report.groups import Groups
from accounting.report.reading import gather, read_percentiles
from accounting.report.selection import Selection
from accounting.report.spreads import Percentiles
from accounting.report.usage import Row, Slowed, View, use_rows, view_families, view_first
from accounting.report.waste import NOTHING_HELD, NOTHING_MEASURED, left_out_in_words, waste_of
from accounting.store.records import write_gpu_use
from accounting.store.schema import KEYS_A_QUERY
from models.past import kills
from models.past.families import family_name
from tests.accounting.report.report_store import RULE, fill, measured
from tests.builders import T0, gpu_use


def grouped(store: Engine, *keys: str, site: EnergySite | None = None, **selection: Any) -> Groups:
    found = gather(store, Selection(**selection), keys or ("user",), family_name, site)
    assert found is not None
    return found


def rows_of(store: Engine, view: View, top: int = 100, **selection: Any) -> list[Row]:
    family_of = family_name if "family" in view.titles else None

    def read(wanted: Sequence[str], shares: Sequence[float]) -> Percentiles:
        return read_percentiles(store, Selection(**selection), view.titles[:1], family_of, wanted, shares)

    return use_rows(view, top, read)


def families(store: Engine, **selection: Any) -> dict[tuple[str, str], Row]:
    rows = rows_of(store, view_families(grouped(store, **selection), RULE), **selection)
    return {(str(row["user"]), str(row["family"])): row for row in rows}


def test_an_empty_store_has_no_groups(store: Engine) -> None:
    assert gather(store, Selection(), ("user",), family_name) is None


def test_hours_requested_granted_used_and_wasted_are_those_worked_out_by_hand(store: Engine) -> None:
    # Four hours: each 8 CPUs requested, 4 granted, 2 used; right is 2 x 1.25 = 3 CPUs and 1 GiB x 1.15 = 1184 MiB.
    fill(store, [measured(n, job_name=f"fit-{n}", asked_cpus=8, alloc_cpus=4) for n in range(1, 5)])
    [row] = families(store).values()
    assert (row["family"], row["jobs"], row["completed"]) == ("fit-#", 4, 4)
    assert (row["core_h_asked"], row["core_h_granted"], row["core_h_used"]) == (32, 16, 8)
    assert (row["core_h_wasted"], row["core_h_saveable"]) == (8, 16 - 3 * 4)
    assert (row["mem_gib_h_granted"], row["mem_gib_h_used"], row["mem_gib_h_wasted"]) == (32, 4, 28)
    assert row["mem_gib_h_saveable"] == round(32 - 4 * 1184 / 1024, 3)
    assert (row["cores_asked_median"], row["mem_used_p95_gib"], row["wall_used_median_h"]) == (8, 1, 1)
    assert (row["gpu_h_granted"], row["gpu_h_wasted"]) == (None, None)


def test_a_smaller_request_saves_no_more_than_was_requested(store: Engine) -> None:
    """Where each core has two threads, more is held than anybody requested."""
    fill(store, [measured(n, asked_cpus=7, alloc_cpus=8, alloc_mem_mib=81920) for n in range(1, 5)])
    [row] = families(store).values()
    assert (row["core_h_granted"], row["core_h_wasted"]) == (32, 32 - 4 * 2)
    assert row["core_h_saveable"] == 4 * (7 - 3)
    assert row["mem_gib_h_saveable"] == round(4 * (8 - 1184 / 1024), 3)
    fill(store, [measured(n, asked_cpus=None, job_name="unasked") for n in range(5, 9)])
    [unasked] = (row for row in families(store).values() if row["family"] == "unasked")
    assert unasked["core_h_saveable"] == 4 * (8 - 3)


def test_a_smaller_request_saves_nothing_of_whole_nodes_and_sockets(store: Engine) -> None:
    """A job that requested 8 CPUs and was given all 40 of a node, or 32 of a socket, would have got them for 2, too."""
    fill(store, [measured(n, alloc_cpus=40) for n in range(1, 3)])
    fill(store, [measured(n, alloc_cpus=32) for n in range(3, 5)])
    fill(store, [measured(n) for n in range(5, 7)])
    [row] = families(store).values()
    assert row["core_h_wasted"] == 2 * 40 + 2 * 32 + 2 * 8 - 6 * 2
    assert row["core_h_saveable"] == 2 * (8 - 3)
    assert row["mem_gib_h_saveable"] == round(6 * (8 - 1184 / 1024), 3)


def test_hours_that_no_attempt_reports_are_not_shown_as_zero(store: Engine) -> None:
    fill(store, [measured(1, user="ann", alloc_gpus=None), measured(2, user="bob", alloc_gpus=None)])
    fill(store, [measured(3, user="bob", alloc_gpus=2), measured(4, user="cid", alloc_gpus=0)])
    fill(store, [measured(5, user="dan", alloc_gpus=None, start_s=-1)])
    rows = rows_of(store, view_first(grouped(store), RULE, "user"))
    assert {row["user"]: row["gpu_h_granted"] for row in rows} == {"ann": None, "bob": 2, "cid": 0, "dan": 0}


ENDS = {
    "COMPLETED": ("completed", "completed"),
    "OUT_OF_MEMORY": ("out_of_memory", "out_of_memory"),
    "TIMEOUT": ("timeout", "timeout"),
    "FAILED": ("cut_short", "failed"),
    "CANCELLED by 1000": ("cut_short", "cancelled"),
    "NODE_FAIL": ("cut_short", "other_end"),
    "PREEMPTED": ("cut_short", "other_end"),
}


def test_every_way_to_end_is_counted_once(store: Engine) -> None:
    ends = list(ENDS.items()) * 2
    fill(
        store, [measured(n, state=state, outcome=outcome) for n, (state, (outcome, _)) in enumerate(ends, 1)]
    )
    [row] = families(store).values()
    counted = {name: row[name] for name in {name for _, name in ENDS.values()}}
    assert counted == {name: 4 if name == "other_end" else 2 for name in counted}
    assert sum(int(str(number)) for number in counted.values()) == row["jobs"] == 14


@pytest.mark.parametrize("quality", ["short", "censored", "contaminated", "absent"])
def test_untrusted_figures_are_left_out_with_the_reason(store: Engine, quality: str) -> None:
    good = [measured(n) for n in range(1, 6)]
    bad = [measured(n, memory_quality=quality, peak_mem_mib=7000.0) for n in range(6, 9)]
    fill(store, [*good, *bad])
    waste = waste_of(view_families(grouped(store), RULE), top=10)
    [row] = waste.rows
    assert row["mem_gib_h_wasted"] == 5 * 7
    assert row["memory_left_out"] == 3
    assert waste.left_out["memory"].measured == 5
    assert {name: count for name, count in waste.left_out["memory"].left_out.items() if count} == {quality: 3}
    [said] = left_out_in_words(waste.left_out)
    assert said.startswith("memory: 5 attempts measured; left out: 3 ")
    # The right size also covers killed jobs; upper bounds and unknown figures do not raise it.
    expected = math.ceil(7000 * 1.2 * 1.15 / 32) * 32 if quality == "censored" else 1184
    assert row["right_mem_gib"] == round(expected / 1024, 3)


@pytest.mark.parametrize(("seen", "right"), [(0, 1), (1, 1), (2, 2), (3, 3)])
def test_gpus_that_were_busy_are_needed_however_little_was_seen_of_them(
    store: Engine, seen: int, right: int
) -> None:
    metered: dict[str, Any] = {"alloc_gpus": 4, "gpus": seen}
    fill(store, [measured(n, **metered, gpu_quality="sampled") for n in range(1, 4)])
    fill(store, [measured(4, **metered, gpu_quality="censored")])
    [row] = waste_of(view_families(grouped(store), RULE), top=1).rows
    assert (row["right_gpus"], row["gpu_h_saveable"]) == (right, 3 * (4 - right))


def test_a_missing_figure_counts_as_absent_whatever_its_quality_says(store: Engine) -> None:
    fill(store, [measured(1), measured(2, cores=None, cores_quality="exact")])
    left = waste_of(view_families(grouped(store), RULE), top=1).left_out["cores"]
    assert (left.measured, {name: count for name, count in left.left_out.items() if count}) == (
        1,
        {"absent": 1},
    )


def test_where_nothing_that_was_held_is_known_a_line_says_so(store: Engine) -> None:
    fill(store, [measured(1, alloc_cpus=None, alloc_mem_mib=None, alloc_gpus=None)])
    waste = waste_of(view_families(grouped(store), RULE), top=1)
    assert waste.rows == []
    assert left_out_in_words(waste.left_out) == [NOTHING_HELD]
    fill(store, [measured(2, cores_quality="absent", memory_quality="absent")])
    said = left_out_in_words(waste_of(view_families(grouped(store), RULE), top=1).left_out)
    assert (len(said), said[-1]) == (3, NOTHING_MEASURED)
    fill(store, [measured(3, cores=8.0, peak_mem_mib=8192.0)])
    said = left_out_in_words(waste_of(view_families(grouped(store), RULE), top=1).left_out)
    assert (len(said), NOTHING_MEASURED in said) == (2, False)


def test_attempts_that_never_started_waste_and_lack_nothing(store: Engine) -> None:
    fill(
        store,
        [
            measured(1),
            measured(2, start_s=-1, wall_s=0, memory_quality="absent", peak_mem_mib=None, cores=None),
        ],
    )
    waste = waste_of(view_families(grouped(store), RULE), top=1)
    assert waste.rows[0]["jobs"] == 2
    assert sum(waste.left_out["memory"].left_out.values()) == 0


def test_more_used_than_held_is_no_negative_waste(store: Engine) -> None:
    fill(store, [measured(1, cores=20.0), measured(2)])
    [row] = families(store).values()
    assert row["core_h_wasted"] == 6
    assert row["core_h_used"] == 22


def test_too_few_jobs_or_names_that_say_nothing_have_no_right_size(store: Engine) -> None:
    few = [measured(n, job_name="few") for n in (1, 2)]
    same = [measured(n, job_name="wrap") for n in (3, 4, 5)]
    known = [measured(n, job_name="wrap", script_signature="abc") for n in (6, 7, 8)]
    fill(store, [*few, *same, *known])
    rows = {row["family"]: row for row in waste_of(view_families(grouped(store), RULE), top=9).rows}
    assert {name: row["right_cores"] for name, row in rows.items()} == {
        "few": None,
        "wrap (script not known)": None,
        "wrap (abc)": 3,
    }
    assert rows["few"]["core_h_saveable"] == 0
    assert rows["few"]["core_h_wasted"] == 12


def test_a_family_that_less_slows_needs_more_than_it_used(store: Engine) -> None:
    fill(
        store,
        [measured(n, user=user) for user, n in zip(["ann", "bob", "cid"] * 3, range(1, 10), strict=True)],
    )
    slowed = {("bob", "fit"): Slowed(cores=4), ("cid", "fit"): Slowed(cores=2, memory=True)}
    rule = msgspec.structs.replace(RULE, slowed=slowed)
    rows = {row["user"]: row for row in waste_of(view_families(grouped(store), rule), top=9).rows}
    assert {user: row["right_cores"] for user, row in rows.items()} == {"ann": 3, "bob": 4, "cid": 3}
    assert {user: row["core_h_saveable"] for user, row in rows.items()} == {"ann": 15, "bob": 12, "cid": 15}
    assert {user: row["right_mem_gib"] for user, row in rows.items()} == {
        "ann": 1.156,
        "bob": 1.156,
        "cid": None,
    }
    assert rows["cid"]["mem_gib_h_saveable"] == 0
    of_users = rows_of(store, view_first(grouped(store, "account", "user"), rule, "account"))
    assert [row["core_h_saveable"] for row in of_users] == [42]


def test_requests_of_steps_inside_a_job_are_no_waste_of_its_family(store: Engine) -> None:
    held = {"step_cpus": 6, "step_mem_mib": 3000}
    fill(store, [measured(n, **(held if n == 2 else {})) for n in (1, 2, 3)])
    [row] = waste_of(view_families(grouped(store), RULE), top=9).rows
    assert (row["right_cores"], row["right_mem_gib"]) == (6, 2.938)
    assert row["core_h_saveable"] == 6


def test_waste_comes_in_the_order_of_its_largest_share(store: Engine) -> None:
    # Of 100 held CPU hours b wastes 50; of 10 GPU hours a wastes 9: a's share is larger.
    fill(
        store,
        [
            measured(1, user="b", alloc_cpus=100, cores=50.0),
            measured(2, user="a", alloc_cpus=1, cores=1.0, alloc_gpus=10, gpus=1, gpu_quality="sampled"),
            measured(3, user="c", alloc_cpus=1, cores=1.0, alloc_mem_mib=1024),
        ],
    )
    rows = waste_of(view_first(grouped(store), RULE, "user"), top=10).rows
    assert [row["user"] for row in rows] == ["a", "b"]
    assert (rows[0]["most_of"], rows[0]["share_of_all_pct"], rows[0]["gpu_h_wasted"]) == ("gpus", 90.0, 9.0)
    assert "right_cores" not in rows[0]
    assert [row["user"] for row in waste_of(view_first(grouped(store), RULE, "user"), top=1).rows] == ["a"]
    fill(store, [measured(4, user="z", alloc_cpus=300, cores=300.0)])
    held = rows_of(store, view_first(grouped(store), RULE, "user"))
    assert [row["user"] for row in held] == ["a", "z", "b", "c"], "all GPUs, then most CPUs"


def test_users_and_accounts_are_the_sums_of_their_families(store: Engine) -> None:
    fill(
        store,
        [
            measured(n, user=f"u{n % 3}", account=f"a{n % 2}", job_name=f"job{'xyz'[n % 2]}")
            for n in range(1, 37)
        ],
    )
    by_user = rows_of(store, view_first(grouped(store, "user"), RULE, "user"))
    by_account = rows_of(store, view_first(grouped(store, "account", "user"), RULE, "account"))
    assert sorted(str(row["user"]) for row in by_user) == ["u0", "u1", "u2"]
    assert sorted(str(row["account"]) for row in by_account) == ["a0", "a1"]
    for rows in (by_user, by_account):
        for name in ("jobs", "core_h_wasted", "core_h_saveable", "mem_gib_h_saveable"):
            whole = sum(float(str(row[name])) for row in families(store).values())
            assert sum(float(str(row[name])) for row in rows) == pytest.approx(whole, abs=0.01)


def test_the_selection_is_applied(store: Engine) -> None:
    plain: dict[str, Any] = {"cluster": "alpha", "user": "u1", "account": "a1", "partition": "p1"}
    fill(
        store,
        [
            measured(1, **plain),
            *(measured(n, **{**plain, name: "other"}) for n, name in enumerate(plain, 2)),
        ],
    )
    for name, value in plain.items():
        assert sum(int(str(row["jobs"])) for row in families(store, **{name: value}).values()) == 4
    assert sum(int(str(row["jobs"])) for row in families(store, **plain).values()) == 1
    ends = T0 + 10_000 + 3600
    assert len(families(store, since_s=ends, until_s=ends + 1)) == 1
    assert gather(store, Selection(until_s=ends), ("user",), family_name) is None


def test_killed_jobs_count_here_as_they_do_in_predictions() -> None:
    assert usage.KILLED_BUMP == kills.KILLED_BUMP


def test_energy_is_that_of_accounting_energy(store: Engine) -> None:
    site = EnergySite(carbon=CarbonIntensity((100.0,)))
    attempts = [
        measured(1, energy_j=7.2e6, alloc_gpus=2, gpus=1, gpu_quality="sampled"),
        measured(2, energy_j=None, energy_quality="absent"),
        measured(3, outcome="timeout", state="TIMEOUT"),
        measured(4, energy_j=None, energy_quality="absent", alloc_gpus=1),
        # Slurm names no GPUs where AccountingStorageTRES does not: the meter saw one.
        measured(5, energy_j=None, energy_quality="absent", gpus=1, gpu_quality="sampled"),
    ]
    uses = [
        gpu_use(job_id=job_id, first_s=row.start_s, last_s=row.end_s, power_mean_w=300.0)
        for job_id, row in ((4, attempts[3].row), (5, attempts[4].row))
    ]
    uses.append(gpu_use(job_id=4, gpu=1, first_s=T0 - 900, last_s=T0 - 800, power_mean_w=900.0))
    # An attempt that never started costs nothing, nor does what a job of this number did in another cluster.
    fill(store, [*attempts, measured(6, start_s=-1)])
    here = attempts[3].row
    elsewhere = gpu_use(
        job_id=4, gpu=2, first_s=here.start_s, last_s=here.end_s, cluster="beta", power_mean_w=900.0
    )
    with store.begin() as connection:
        write_gpu_use(connection, [*uses, elsewhere])
    costs = [energy_of(one, [use for use in uses if use.job_id == one.row.job_id], site) for one in attempts]
    [row] = rows_of(store, view_families(grouped(store, site=site), RULE))
    assert row["energy_kwh"] == pytest.approx(sum(cost.energy_j for cost in costs) / 3.6e6, abs=1e-4)
    assert row["carbon_kg"] == pytest.approx(sum(cost.carbon_kg for cost in costs), abs=1e-4)
    wasted = sum(cost.wasted_j for cost in costs) / sum(cost.energy_j for cost in costs)
    assert row["energy_wasted_pct"] == pytest.approx(100 * wasted, abs=0.06)
    estimated = sum(cost.estimated_j for cost in costs) / sum(cost.energy_j for cost in costs)
    assert row["energy_estimated_pct"] == pytest.approx(100 * estimated, abs=0.06)
    assert "energy_kwh" not in families(store)["alice", "fit"]


def test_a_gpu_counts_once_however_far_apart_the_attempts_of_its_job_lie(store: Engine) -> None:
    """A query names some hundred jobs, so each attempt of a requeued job is asked for in the batch of that attempt."""
    site = EnergySite(carbon=CarbonIntensity((100.0,)))
    on_gpu: dict[str, Any] = {"alloc_gpus": 1, "energy_j": None, "energy_quality": "absent"}
    attempts = [measured(number, **on_gpu) for number in range(1, KEYS_A_QUERY + 50)]
    first = attempts[0].row
    again = measured(1, start_s=first.end_s + 10**7, submit_s=first.end_s + 1, **on_gpu)
    half = gpu_use(job_id=1, first_s=first.start_s, last_s=first.start_s + 1800, power_mean_w=300.0)
    fill(store, [*attempts, again])
    with store.begin() as connection:
        write_gpu_use(connection, [half])
    expected = energy_of(attempts[0], [half], site).energy_j + sum(
        energy_of(one, [], site).energy_j for one in [*attempts[1:], again]
    )
    [row] = rows_of(store, view_families(grouped(store, site=site), RULE))
    assert row["energy_kwh"] == pytest.approx(expected / 3.6e6, abs=1e-4)


@pytest.mark.parametrize(
    "name", ["a\x1fb", "x\ny", "", "tab\there", "(all others)", "ünïcødé \U0001f9ea", "x" * 1000]
)
def test_hostile_names_are_families_like_any_other(store: Engine, name: str) -> None:
    fill(store, [measured(n, job_name=name) for n in (1, 2, 3)])
    [row] = families(store).values()
    assert (row["user"], row["jobs"]) == ("alice", 3)
