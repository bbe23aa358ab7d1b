"""What cutting saved, or would have: each job's token compared with what it used."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta  # type: ignore[import-untyped]

from accounting.records import Attempt
from accounting.report.cuts import CutRow, cut_rows, highest_share, read_cuts
from accounting.report.selection import Selection
from accounting.store.database import open_store
from tests.accounting.report.report_store import fill, measured
from tests.conftest import Site

ASKED = "asked=tasks:1,cpus:8,mem:8192"
# Changes to `measured`: an hour with 8 CPUs and 8 GiB, of which 2 cores and 1 GiB were used.
WOULD = f"rightsizer/1;id=a;mode=observe;why=resized;{ASKED};would=cpus:3,mem:2048;model=v"
DONE = f"rightsizer/1;id=a;mode=enforce;why=resized;{ASKED};granted=cpus:3,mem:2048;model=v"

# What Slurm allocates such a job.
HAD: dict[str, Any] = {"admin_comment": DONE, "alloc_cpus": 3, "alloc_mem_mib": 2048}


def rows_of(site: Site, *attempts: Attempt) -> list[CutRow]:
    engine = open_store(site.config.store.url, create=True)
    try:
        fill(engine, attempts, with_steps=False)
        return cut_rows(read_cuts(engine, Selection(), "partition"))
    finally:
        engine.dispose()


def test_the_report_says_what_cuts_would_have_saved_and_which_jobs_would_have_failed(site: Site) -> None:
    [row] = rows_of(
        site,
        measured(1, admin_comment=WOULD),
        measured(2, admin_comment=WOULD),
        measured(3, admin_comment=WOULD, peak_mem_mib=2049.0),
        measured(4, admin_comment=WOULD, cores=3.5),
        measured(5, admin_comment=WOULD, memory_quality="short"),
        measured(6, admin_comment=f"rightsizer/1;id=b;mode=observe;why=no-evidence;{ASKED}"),
        measured(7, admin_comment=WOULD, outcome="out_of_memory", memory_quality="censored"),
        measured(8, admin_comment="of the site's own"),
        measured(9, admin_comment=WOULD, start_s=-1),
    )
    assert (row.cuts, row.jobs, row.cut) == ("would be", 7, 6)
    # The fifth job's memory is unknown, and the seventh fails with all that it requested.
    assert (row.judged, row.short, row.short_pct) == (4, 1, 25.0)
    assert row.busy == 1
    # Five get 5 CPUs and 6 GiB less, for an hour; the 3 CPUs and 2 GiB of the job that falls short are lost.
    assert (row.saved_core_h, row.saved_gib_h) == (5 * 5 - 3, 5 * 6 - 2)


def test_the_report_says_what_cuts_saved_and_which_jobs_failed_by_them(site: Site) -> None:
    killed = measured(3, **HAD, outcome="out_of_memory", memory_quality="censored", peak_mem_mib=2048.0)
    [row] = rows_of(
        site,
        measured(1, **HAD),
        # It ran to its end: where memory is not enforced, its use beyond the limit is no failure.
        measured(2, **HAD, peak_mem_mib=2500.0, wall_s=1800, elapsed_s=1800),
        killed,
        measured(4, admin_comment=f"{DONE};recovery=memory:0"),
        measured(5, admin_comment=DONE.replace("granted=", "would=") + ";refused=coupled_field"),
    )
    assert (row.cuts, row.jobs, row.cut, row.judged, row.short) == ("done", 4, 3, 3, 1)
    assert (row.saved_core_h, row.saved_gib_h) == (1.5 * 5 - 3, 1.5 * 6 - 2)


def test_a_kill_is_blamed_on_the_cut_of_the_cpus_with_which_memory_came(site: Site) -> None:
    done = DONE.replace(",mem:8192", "").replace(",mem:2048", "")
    had: dict[str, Any] = {"admin_comment": done, "alloc_cpus": 3, "alloc_mem_mib": 3000}
    killed: dict[str, Any] = {
        "outcome": "out_of_memory",
        "memory_quality": "censored",
        "peak_mem_mib": 3000.0,
    }
    [row] = rows_of(
        site,
        measured(1, **had),
        measured(2, **had, **killed),
        # Its user had given it back all its CPUs.
        measured(3, **{**had, "alloc_cpus": 8, "alloc_mem_mib": 8000}, **killed),
    )
    assert (row.jobs, row.cut, row.judged, row.short) == (3, 2, 2, 1)
    assert row.saved_core_h == 5 - 3
    would = WOULD.replace(",mem:8192", "").replace(",mem:2048", "")
    [row, _] = rows_of(site, measured(4, admin_comment=would, **killed))
    assert (row.cut, row.short, row.saved_core_h) == (1, 0, 5), "it had all its CPUs"


def test_a_small_loss_is_not_written_as_minus_zero(site: Site) -> None:
    killed: dict[str, Any] = {
        "outcome": "out_of_memory",
        "memory_quality": "censored",
        "peak_mem_mib": 2048.0,
    }
    [row] = rows_of(site, measured(1, **HAD, **killed, wall_s=1, elapsed_s=1))
    assert (str(row.saved_core_h), str(row.saved_gib_h)) == ("0.0", "0.0")


@pytest.mark.parametrize("state", ["PREEMPTED", "CANCELLED by 1000", "FAILED"])
def test_a_job_that_was_cut_short_does_not_show_whether_it_had_enough(site: Site, state: str) -> None:
    ended: dict[str, Any] = {"state": state, "outcome": "cut_short"}
    done, would = rows_of(
        site,
        measured(1, **HAD),
        measured(2, **HAD, **ended),
        measured(3, admin_comment=WOULD),
        measured(4, admin_comment=WOULD, **ended),
        # This one had needed more by then.
        measured(5, admin_comment=WOULD, peak_mem_mib=2049.0, **ended),
    )
    assert (done.cuts, done.jobs, done.cut, done.judged, done.short) == ("done", 2, 2, 1, 0)
    # What it held less while it ran is saved all the same.
    assert (done.saved_core_h, done.saved_gib_h) == (2 * 5, 2 * 6)
    assert (would.cuts, would.cut, would.judged, would.short) == ("would be", 3, 2, 1)


@pytest.mark.parametrize(("quality", "judged"), [("short", 1), ("censored", 1), ("contaminated", 0)])
def test_a_job_that_used_more_than_would_be_given_is_short_however_little_was_seen(
    site: Site, quality: str, judged: int
) -> None:
    """As one that was sampled once; with the page cache, nobody knows that it needed so much."""
    [row] = rows_of(site, measured(1, admin_comment=WOULD, peak_mem_mib=2049.0, memory_quality=quality))
    assert (row.judged, row.short, row.saved_gib_h) == (judged, judged, -2 if judged else 6)
    assert (row.short_pct, row.short_at_most_pct) == ((100.0, 100.0) if judged else (None, None))
    gpus = WOULD.replace("mem:8192", "gpus:4").replace("mem:2048", "gpus:1")
    [row] = rows_of(site, measured(1, admin_comment=gpus, gpus=2, gpu_quality="censored"))
    assert (row.short, row.saved_gpu_h) == (1, -1)


def test_what_the_user_set_back_before_the_start_was_not_cut(site: Site) -> None:
    killed: dict[str, Any] = {**HAD, "outcome": "out_of_memory", "memory_quality": "censored"}
    [row] = rows_of(
        site,
        measured(1, **{**killed, "alloc_mem_mib": 8192}),
        measured(2, **{**killed, "alloc_mem_mib": 8192, "alloc_cpus": 8}),
        measured(3, **{**HAD, "alloc_mem_mib": None}),
    )
    assert (row.jobs, row.cut, row.short) == (3, 2, 0)
    assert (row.saved_core_h, row.saved_gib_h) == (2 * 5, 6)


def test_what_slurm_gave_on_top_was_not_saved(site: Site) -> None:
    """As with CR_Socket: of 8 CPUs 3 were granted and 6 given, with the memory of each."""
    [row] = rows_of(site, measured(1, **{**HAD, "alloc_cpus": 6, "alloc_mem_mib": 4096}, cores=3.5))
    assert (row.cut, row.saved_core_h, row.saved_gib_h, row.busy) == (1, 2.0, 4.0, 0)


def test_what_slurm_gave_beyond_the_request_is_no_loss(site: Site) -> None:
    """As on a whole node of 16 CPUs: it would have been given to the uncut request, too."""
    [row] = rows_of(site, measured(1, **{**HAD, "alloc_cpus": 16}))
    assert (row.cut, row.saved_core_h, row.saved_gib_h) == (1, 0.0, 6.0)


def test_a_kill_with_uncut_memory_is_not_blamed_on_the_cut(site: Site) -> None:
    only_cpus = DONE.replace(",mem:2048", "")
    [row] = rows_of(site, measured(1, admin_comment=only_cpus, alloc_cpus=3, outcome="out_of_memory"))
    assert (row.cut, row.short, row.saved_core_h, row.saved_gib_h) == (1, 0, 5.0, 0.0)


def test_a_grant_per_node_counts_for_each_node_that_the_job_ran_on(site: Site) -> None:
    per_node = WOULD.replace("mem:8192", "mem:8192,gpus:4").replace("mem:2048", "mem:2048,gpus:1")
    on_two: dict[str, Any] = {"nodes": 2, "alloc_gpus": 8, "gpus": 2, "gpu_quality": "sampled"}
    [row] = rows_of(site, measured(1, admin_comment=per_node, peak_mem_mib=4000.0, **on_two))
    assert (row.judged, row.short, row.saved_gib_h, row.saved_gpu_h) == (1, 0, 12.0, 6.0)
    [row] = rows_of(site, measured(1, admin_comment=per_node, peak_mem_mib=4100.0, **on_two))
    assert (row.judged, row.short) == (1, 1)


def test_no_more_jobs_are_short_than_were_judged(site: Site) -> None:
    gpus = WOULD.replace("mem:8192", "mem:8192,gpus:4").replace("mem:2048", "mem:2048,gpus:1")
    cached: dict[str, Any] = {"memory_quality": "contaminated", "gpu_quality": "sampled", "alloc_gpus": 4}
    [row] = rows_of(
        site,
        *(measured(number, admin_comment=gpus, gpus=2, **cached) for number in (1, 2, 3)),
        measured(4, admin_comment=gpus, gpus=1, gpu_quality="sampled"),
        measured(5, admin_comment=gpus, gpus=1, **cached),
    )
    assert (row.cut, row.judged, row.short, row.short_pct) == (5, 4, 3, 75.0)


@given(st.integers(1, 3000), st.data())
def test_the_highest_share_is_that_of_clopper_and_pearson(of: int, data: st.DataObject) -> None:
    found = data.draw(st.integers(0, of - 1))
    assert highest_share(found, of) == pytest.approx(beta.ppf(0.95, found + 1, of - found), abs=1e-6)


def test_where_all_jobs_were_short_nothing_is_refuted() -> None:
    assert highest_share(7, 7) == 1.0


def test_the_highest_share_of_hundreds_of_millions_counts_only_what_matters() -> None:
    found, of = 190_000_000, 200_000_000
    assert highest_share(found, of) == pytest.approx(beta.ppf(0.95, found + 1, of - found), abs=1e-6)
