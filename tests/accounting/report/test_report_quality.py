"""The quality report and its advice, on stores that have one fault each."""

from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Engine

from accounting.labels.quality import release_of
from accounting.records import Attempt
from accounting.report.advice import MANY, Advice, advice, latest
from accounting.report.quality import (
    LABELLED,
    QUALITIES,
    Segment,
    quality_rows,
)
from accounting.report.quality_reading import read_segments
from accounting.report.selection import Selection
from tests.accounting.report.report_store import fill, measured
from tests.builders import T0, step
from tests.stores import write_steps

# What is counted is tested on every database; the conclusions are the same on all.
ON_SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


def good(number: int, **changes: Any) -> Attempt:
    """An attempt with nothing to complain about."""
    return measured(number, **{"comment": "seen", "gather": "jobacct_gather/cgroup cgroup/v2", **changes})


def advised(store: Engine) -> list[Advice]:
    return advice(read_segments(store, Selection()))


def lines_of(store: Engine) -> list[tuple[str, str]]:
    return [(one.file, one.line) for one in advised(store)]


def test_an_empty_store_has_neither_rows_nor_advice(store: Engine) -> None:
    assert quality_rows(read_segments(store, Selection())) == []
    assert advised(store) == []


def test_shares_are_of_the_attempts_that_a_dimension_applies_to(store: Engine) -> None:
    qualities = ["exact", "sampled", "sampled", "short", "censored", "contaminated", "absent", "absent"]
    ran = [good(n, memory_quality=quality) for n, quality in enumerate(qualities, 1)]
    on_gpus = [good(n, alloc_gpus=2, gpus=1, gpu_quality="sampled") for n in (11, 12)]
    never = [good(21, start_s=-1, memory_quality="absent")]
    fill(store, [*ran, *on_gpus, *never])
    [segment] = segments = read_segments(store, Selection())
    assert (segment.attempts, segment.never_started, segment.commented) == (10, 1, 10)
    rows = {row["dimension"]: row for row in quality_rows(segments)}
    assert list(rows) == list(LABELLED)
    assert {quality: rows["memory"][f"{quality}_pct"] for quality in QUALITIES} == {
        "exact": 10.0,
        "sampled": 40.0,
        "short": 10.0,
        "censored": 10.0,
        "contaminated": 10.0,
        "absent": 20.0,
    }
    assert (rows["memory"]["attempts"], rows["gpus"]["attempts"], rows["gpu_memory"]["attempts"]) == (
        10,
        2,
        2,
    )
    assert rows["gpus"]["sampled_pct"] == 100.0
    for row in rows.values():
        assert sum(float(str(row[f"{quality}_pct"])) for quality in QUALITIES) == pytest.approx(100)


def test_attempts_are_grouped_by_what_measured_them_the_latest_first(store: Engine) -> None:
    fill(
        store,
        [
            good(1, slurm_release="22.05", gather="jobacct_gather/linux"),
            good(2, slurm_release="24.11"),
            good(3, slurm_release="24.11", memory_quality="short"),
            good(4, slurm_release="", gather="", cluster="beta"),
        ],
    )
    rows = [row for row in quality_rows(read_segments(store, Selection())) if row["dimension"] == "memory"]
    assert [(row["cluster"], row["slurm"], row["attempts"], row["short_pct"]) for row in rows] == [
        ("beta", "not known", 1, 0.0),
        ("alpha", "24.11", 2, 50.0),
        ("alpha", "22.05", 1, 0.0),
    ]
    [only] = read_segments(store, Selection(cluster="beta"))
    assert (only.cluster, only.gather) == ("beta", "")


def test_good_labels_need_no_change(store: Engine) -> None:
    fill(store, [good(n) for n in range(1, 121)])
    assert advised(store) == []


def test_good_labels_on_gpus_need_no_change(store: Engine) -> None:
    fill(store, [good(n, alloc_gpus=1, gpus=1, gpu_quality="sampled") for n in range(1, 11)])
    assert advised(store) == []


GATHER = ("slurm.conf", "JobAcctGatherType=jobacct_gather/cgroup")
FREQUENCY = ("slurm.conf", "JobAcctGatherFrequency=task=10")
NO_CACHE = ("slurm.conf", "JobAcctGatherParams=no_file_cache")
PSS = ("slurm.conf", "JobAcctGatherParams=UsePss")
GPU_TRES = ("slurm.conf", "AccountingStorageTRES=gres/gpu,gres/gpumem,gres/gpuutil")
NVML = ("gres.conf", "AutoDetect=nvml")
COLLECT = ("run", "rightsizer collect")
ENERGY = [
    ("slurm.conf", "AcctGatherEnergyType=acct_gather_energy/rapl"),
    ("slurm.conf", "AcctGatherNodeFreq=30"),
]
NO_MEMORY: dict[str, Any] = {"memory_quality": "absent", "peak_mem_mib": None}
NO_GPU_METER: dict[str, Any] = {"alloc_gpus": 1, "gpu_quality": "absent"}

FAULTS: list[tuple[str, dict[str, Any], list[tuple[str, str]]]] = [
    ("no plugin", {**NO_MEMORY, "io_quality": "absent", "gather": "jobacct_gather/none"}, [GATHER]),
    ("plugin not known", {**NO_MEMORY, "gather": ""}, [GATHER]),
    ("no samples", NO_MEMORY, [FREQUENCY]),
    ("too short", {"memory_quality": "short", "io_quality": "short"}, [FREQUENCY]),
    ("cache, 26.05", {"memory_quality": "contaminated", "slurm_release": "26.05"}, [NO_CACHE, FREQUENCY]),
    ("cache, 25.11", {"memory_quality": "contaminated", "slurm_release": "25.11.7"}, [NO_CACHE, FREQUENCY]),
    ("cache, not known", {"memory_quality": "contaminated", "slurm_release": ""}, [NO_CACHE, FREQUENCY]),
    (
        "cache, 26.05 on cgroup/v1",
        {
            "memory_quality": "contaminated",
            "slurm_release": "26.05",
            "gather": "jobacct_gather/cgroup cgroup/v1",
        },
        [("cgroup.conf", "CgroupPlugin=cgroup/v2"), NO_CACHE, FREQUENCY],
    ),
    (
        "cache, 24.11",
        {"memory_quality": "contaminated"},
        [("slurm.conf", "JobAcctGatherType=jobacct_gather/linux")],
    ),
    (
        "above its memory",
        {"peak_mem_mib": 9000.0},
        [("cgroup.conf", "ConstrainRAMSpace=yes"), ("slurm.conf", "TaskPlugin=task/cgroup,task/affinity")],
    ),
    (
        "above its memory, if nothing is shared",
        {"peak_mem_mib": 9000.0, "gather": "jobacct_gather/linux cgroup/v1"},
        [
            PSS,
            ("cgroup.conf", "ConstrainRAMSpace=yes"),
            ("slurm.conf", "TaskPlugin=task/cgroup,task/affinity"),
        ],
    ),
    (
        "above its memory, where what is shared counts once",
        {"peak_mem_mib": 9000.0, "gather": "jobacct_gather/linux UsePss cgroup/v1"},
        [("cgroup.conf", "ConstrainRAMSpace=yes"), ("slurm.conf", "TaskPlugin=task/cgroup,task/affinity")],
    ),
    ("what is shared left out", {"gather": "jobacct_gather/linux NoShared cgroup/v1"}, [PSS]),
    (
        "memory not shared out",
        {"alloc_mem_mib": None, "asked_mem_mib": 0},
        [("slurm.conf", "SelectTypeParameters=CR_Core_Memory")],
    ),
    ("no GPU meter", NO_GPU_METER, [GPU_TRES, NVML, COLLECT]),
    ("no GPU meter, 22.05", {**NO_GPU_METER, "slurm_release": "22.05"}, [COLLECT]),
    ("no energy", {"energy_quality": "absent", "energy_j": None}, ENERGY),
    ("no comments", {"comment": ""}, [("slurm.conf", "AccountingStoreFlags=job_comment")]),
    (
        "no comments, 20.11",
        {"comment": "", "slurm_release": "20.11"},
        [("slurm.conf", "AccountingStoreJobComment=YES")],
    ),
]


@ON_SQLITE
@pytest.mark.parametrize(("fault", "expected"), [fault[1:] for fault in FAULTS], ids=[f[0] for f in FAULTS])
def test_each_fault_has_its_lines_of_advice(
    store: Engine, fault: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    fill(store, [good(n, **fault) for n in range(1, 121)])
    assert lines_of(store) == expected
    for one in advised(store):
        assert one.cluster == "alpha"
        assert one.reason


@ON_SQLITE
@pytest.mark.parametrize("fault", [fault[1] for fault in FAULTS[:17]], ids=[f[0] for f in FAULTS[:17]])
def test_a_fault_of_very_few_attempts_is_none(store: Engine, fault: dict[str, Any]) -> None:
    # GPUs are judged among the attempts that have them.
    sound = {**fault, "gpu_quality": "sampled", "gpus": 1} if "alloc_gpus" in fault else {}
    if set(fault) & {"slurm_release", "gather"}:
        fault = {name: value for name, value in fault.items() if name not in ("slurm_release", "gather")}
    fill(store, [good(1, **fault), *(good(n, **{**sound, "slurm_release": "24.11"}) for n in range(2, 202))])
    assert lines_of(store) == []


@ON_SQLITE
def test_meters_of_whole_nodes_are_not_advised_for_nodes_that_jobs_share(store: Engine) -> None:
    fill(store, [good(n, energy_quality="absent", energy_j=None) for n in range(1, 121)])
    assert "Set this only if jobs do not share nodes" in advised(store)[0].reason


@ON_SQLITE
def test_a_site_that_stores_comments_which_nobody_writes_is_told_so(store: Engine) -> None:
    fill(store, [good(n, comment="") for n in range(1, 121)])
    (said,) = [one.reason for one in advised(store)]
    assert said.endswith("if it is set already, nobody has written a comment")
    assert "script" not in said  # nothing reads the scripts that slurmdbd stores


def test_only_what_measures_now_is_judged(store: Engine) -> None:
    old = [good(n, slurm_release="22.05", memory_quality="short") for n in range(1, 50)]
    fill(store, [*old, *(good(n) for n in range(50, 60))])
    assert lines_of(store) == []
    fill(store, [good(90, cluster="beta", memory_quality="short")])
    assert [(one.cluster, one.line) for one in advised(store)] == [("beta", FREQUENCY[1])]


def test_attempts_without_steps_tell_nothing_about_the_configuration(store: Engine) -> None:
    fill(store, [good(n, **NO_MEMORY, comment="") for n in range(1, 121)], with_steps=False)
    [one] = advised(store)
    assert (one.file, one.line) == ("run", "rightsizer ingest")
    assert "dump without -X" in one.reason
    fill(store, [good(200, cluster="beta")])
    assert [one.cluster for one in advised(store)] == ["alpha"]


BARE: dict[str, Any] = {**NO_MEMORY, "cores": None, "cores_quality": "absent", "io_quality": "absent"}
COMPLETE = ("run", "rightsizer ingest --from-file")


def purged_until(last: int) -> list[Attempt]:
    """400 attempts, the first `last` of which have no steps any more; a few of those were killed for memory."""
    killed = {"peak_mem_mib": 8192.0, "memory_quality": "censored"}
    return [
        *(good(n, **{**BARE, **(killed if n % 50 == 0 else {})}) for n in range(1, last + 1)),
        *(good(n) for n in range(last + 1, 401)),
    ]


def test_steps_that_slurm_had_purged_are_no_fault_of_its_configuration(store: Engine) -> None:
    attempts = purged_until(240)
    fill(store, attempts[240:])
    fill(store, attempts[:240], with_steps=False)
    [one] = advised(store)
    assert (one.file, one.line) == COMPLETE
    first = attempts[240].row.end_s
    day = f"{datetime.fromtimestamp(first).astimezone():%Y-%m-%d}"
    assert one.reason.startswith(f"60 % of the attempts, those that ended before {day}, had lost their steps")
    # What has been measured since is judged by itself.
    fill(store, [good(n, **{**NO_MEMORY, "memory_quality": "short"}) for n in range(401, 451)])
    assert lines_of(store) == [COMPLETE, FREQUENCY]


@ON_SQLITE
def test_what_was_not_gathered_at_first_is_not_called_purged(store: Engine) -> None:
    fill(store, purged_until(240))  # with steps that say nothing
    assert COMPLETE not in lines_of(store)


@ON_SQLITE
def test_jobs_that_are_only_sometimes_measured_are_not_called_purged(store: Engine) -> None:
    mixed = [one for one in purged_until(0) if one.row.job_id % 2]
    fill(store, mixed)
    fill(store, [good(n, **BARE) for n in range(2, 401, 2)], with_steps=False)
    assert COMPLETE not in lines_of(store)
    [segment] = read_segments(store, Selection())
    assert (segment.purged, segment.since) == (0, None)


def test_one_line_is_given_once_with_all_its_reasons(store: Engine) -> None:
    fill(store, [good(n, memory_quality="short", io_quality="short") for n in range(1, 5)])
    [one] = advised(store)
    assert "100 % of the attempts ended before their memory was sampled" in one.reason
    assert "before their io was sampled" in one.reason


def test_figures_recorded_for_several_gpus_together_are_not_requested_again(store: Engine) -> None:
    several = [good(n, alloc_gpus=4, gpu_quality="absent") for n in range(1, 121)]
    fill(store, several, with_steps=False)
    with store.begin() as connection:
        write_steps(connection, [(one.row, step(gpu_util_pct=150.0)) for one in several])
    [only] = advised(store)
    assert (only.file, only.line) == COLLECT
    assert (
        "100 % of the 120 attempts with GPUs have gres/gpuutil recorded, but for several GPUs" in only.reason
    )
    fill(store, [good(n, alloc_gpus=1, gpu_quality="absent") for n in range(121, 241)])
    assert lines_of(store) == [COLLECT, GPU_TRES, NVML]
    [collect, tres, _] = advised(store)
    assert collect.reason.startswith("50 % of the 240 attempts with GPUs have gres/gpuutil recorded")
    assert tres.reason.startswith("50 % of the 240 attempts with GPUs have no figure")


def test_killed_jobs_are_no_fault_of_the_site(store: Engine) -> None:
    fill(store, [good(n, memory_quality="censored", wall_quality="censored") for n in range(1, 50)])
    assert advised(store) == []


def test_attempts_that_all_never_started_are_not_judged() -> None:
    assert latest([Segment(cluster="a", release="", gather="", never_started=5, last_s=T0)]) == []


@pytest.mark.parametrize(
    ("text", "release"),
    [("24.11", (24, 11)), ("25.11.7", (25, 11)), ("slurm 24.11", None), ("", None), ("23.02", (23, 2))],
)
def test_the_release_is_read_from_slurms_version(text: str, release: tuple[int, int] | None) -> None:
    assert release_of(text) == release


def test_the_bound_of_many_is_applied_exactly() -> None:
    def segment(short: int) -> Segment:
        counts: Any = {"memory": {"short": short, "sampled": 1000 - short}}
        return Segment(
            cluster="a", release="24.11", gather="x", last_s=1, attempts=1000, commented=1, counts=counts
        )

    assert advice([segment(int(1000 * MANY) - 1)]) == []
    assert [one.line for one in advice([segment(int(1000 * MANY))])] == [FREQUENCY[1]]
