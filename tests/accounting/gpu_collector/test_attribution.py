"""Which job a GPU belongs to, and what is recorded of it: pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.gpu_collector.attribution import (
    Claim,
    GpuProcess,
    Held,
    JobHere,
    Load,
    Reading,
    Sample,
    claim_of,
    holders,
    job_of_cgroup,
    job_of_title,
    samples_of,
    slurm_variables,
    top_of,
)
from accounting.gpu_collector.windows import Windows
from tests.accounting.gpu_collector.node import A, B
from tests.builders import T0, gpu_use


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("4:memory:/slurm/uid_0/job_123/step_0/task_0\n", JobHere(123, "host")),
        ("9:name=systemd:/x\n8:freezer:/slurm_n4/uid_1000/job_9/step_batch", JobHere(9, "n4")),
        ("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n", JobHere(123, "host")),
        ("0::/system.slice/node-3_slurmstepd.scope/job_5/step_batch/user/task_special", JobHere(5, "node-3")),
        ("0::/slurmstepd.scope/job_5/step_extern", JobHere(5, "host")),
        ("0::/system.slice/slurmstepd.scope/system", None),
        ("0::/system.slice/slurmstepd.scope/job_0/step_0", None),
        ("0::/system.slice/slurmstepd.scope/job_12x/step_0", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/slurm/uid_0/job_5/step_0", None),
        ("0::/user.slice/slurmstepd.scope/job_5", None),
        # Cgroups that a user makes below their own job stay below it.
        ("0::/system.slice/slurmstepd.scope/job_1/step_0/user/slurmstepd.scope/job_2", JobHere(1, "host")),
        ("4:memory:/slurm/uid_1000/job_1/slurm/uid_0/job_2", JobHere(1, "host")),
        ("0::/system.slice/slurmstepd.scope/job_1/step_0/user/x:/slurmstepd.scope/job_2", JobHere(1, "host")),
        ("", None),
    ],
)
def test_a_job_is_read_only_from_slurms_own_cgroup(text: str, job: JobHere | None) -> None:
    assert job_of_cgroup(text, "host") == job


@pytest.mark.parametrize(
    ("command", "job_id"), [(b"slurmstepd: [7.batch]\0", 7), (b"bash\0slurmstepd: [8.0]", None), (b"", None)]
)
def test_only_a_slurmstepd_is_named_by_its_step(command: bytes, job_id: int | None) -> None:
    assert job_of_title(command) == job_id


def test_with_v2_slurms_cgroups_begin_next_to_that_of_the_first_process() -> None:
    assert top_of("12:memory:/docker/c0ffee\n0::/docker/c0ffee/init\n") == "/docker/c0ffee"
    assert top_of("12:memory:/docker/c0ffee\n") == top_of("") == ""


@given(st.text(max_size=80))
def test_any_text_is_read_as_a_cgroup_without_an_error(text: str) -> None:
    found = job_of_cgroup(text, "host")
    assert found is None or found.job_id > 0


@pytest.mark.parametrize(
    ("environ", "claim"),
    [
        (b"SLURM_JOB_GPUS=0,2-3\0CUDA_VISIBLE_DEVICES=0,1,2\0", Claim(frozenset({0, 2, 3}))),
        (
            b"SLURM_JOB_ID=3\0CUDA_VISIBLE_DEVICES=MIG-a,GPU-b,7\0",
            Claim(frozenset(), frozenset({"MIG-a", "GPU-b"})),
        ),
        (b"CUDA_VISIBLE_DEVICES=0,1\0", Claim()),
        (b"SLURM_JOB_GPUS=0-9999\0", Claim(frozenset(range(1025)))),
        (b"SLURM_JOB_GPUS=a,-1,99999999999\0nothing", Claim()),
        (b"", Claim()),
    ],
)
def test_slurms_variables_name_the_gpus_of_a_job(environ: bytes, claim: Claim) -> None:
    assert claim_of(slurm_variables(environ), "step_batch") == claim


@pytest.mark.parametrize(
    ("step", "gpus"),
    [("step_batch", {1}), ("step_interactive", {1}), ("step_0", {2}), ("step_0+1", {2})],
)
def test_only_the_variable_that_slurm_sets_for_such_a_step_names_gpus(step: str, gpus: set[int]) -> None:
    variables = slurm_variables(b"\xff=\xff\0SLURM_JOB_GPUS=1\0SLURM_STEP_GPUS=2\0")
    assert claim_of(variables, step) == Claim(frozenset(gpus))


def test_a_gpu_is_claimed_by_slurms_index_or_by_its_uuid() -> None:
    claim = Claim(frozenset({0}), frozenset({"MIG-a"}))
    assert claim.covers(0, "GPU-x")
    assert not claim.covers(None, "MIG-b")
    assert claim.covers(None, "MIG-a")
    assert claim.covers(5, "MIG-a")


def test_processes_decide_before_claims_to_which_job_a_gpu_belongs() -> None:
    jobs = {1: A, 2: A, 3: B, 4: None}
    here = [GpuProcess(1, 100.0), GpuProcess(2, 50.0), GpuProcess(1, 120.0), GpuProcess(2, None)]
    assert holders([*here, GpuProcess(4, 9.0)], jobs, [B]) == {A: Held((1, 2), 170.0)}
    assert holders([GpuProcess(3, None)], jobs, []) == {B: Held((3,), None)}
    # allocated, with nothing on it: held and idle
    assert holders([], jobs, [A]) == {A: Held((), 0.0)}
    # processes of no known job are the only claimant's; with several claimants, nobody knows
    assert holders([GpuProcess(4, 9.0)], jobs, [A]) == {A: Held((), None)}
    assert holders([GpuProcess(4, 9.0)], jobs, [A, B]) == {}
    assert holders([GpuProcess(4, 9.0)], jobs, []) == {}


def test_a_shared_gpu_is_attributed_by_process_and_its_power_to_no_job() -> None:
    held = {A: Held((1, 2), 100.0), B: Held((3,), None)}
    load = Load(90.0, 5000.0, 300.0)
    both = samples_of(Reading(2, -1, held, load, {1: 30.0, 2: 80.0}))
    assert both == [Sample(A, 2, -1, 100.0, 100.0, None), Sample(B, 2, -1, 0.0, 5000.0, None)]
    # the use of an instance is unknown, whoever shares it
    parted = samples_of(Reading(2, 3, held, Load(None, 5000.0, None), {1: 30.0}))
    assert [one.util_pct for one in parted] == [None, None]
    alone = samples_of(Reading(2, -1, {A: Held((1,), 100.0)}, load))
    assert alone == [Sample(A, 2, -1, 90.0, 100.0, 300.0)]


def test_a_window_is_one_line_per_job_and_gpu() -> None:
    windows = Windows()
    for second in range(30):
        power_w = None if second == 5 else 200.0
        windows.add(Sample(A, 0, -1, float(second), 100.0 + second, 300.0), T0 + second)
        windows.add(Sample(B, 1, 3, None, 10.0, power_w), T0 + second)
    first, second_ = windows.flush()
    assert first == gpu_use(
        job_id=7,
        samples=30,
        first_s=T0,
        last_s=T0 + 29,
        util_max_pct=29.0,
        util_mean_pct=14.5,
        mem_max_mib=129.0,
        power_mean_w=300.0,
    )
    assert (second_.instance, second_.util_max_pct, second_.power_mean_w) == (3, None, None)
    assert windows.flush() == []


@pytest.mark.parametrize(
    ("seen_pct", "most", "mean"),
    [
        ((0.0, None), None, None),
        ((None, 0.0, 40.0), 40.0, 20.0),
        ((0.0, 0.0), 0.0, 0.0),
        ((None,), None, None),
    ],
)
def test_no_use_in_part_of_a_window_says_nothing_of_the_rest(
    seen_pct: tuple[float | None, ...], most: float | None, mean: float | None
) -> None:
    windows = Windows()
    for util_pct in seen_pct:
        windows.add(Sample(A, 0, -1, util_pct, 500.0, None), T0)
    (line,) = windows.flush()
    assert (line.util_max_pct, line.util_mean_pct) == (most, mean)


def test_a_clock_that_is_set_back_does_not_reverse_a_window() -> None:
    windows = Windows()
    for now_s in (T0, T0 - 500, T0 - 499):
        windows.add(Sample(A, 0, -1, 1.0, 1.0, None), now_s)
    (line,) = windows.flush()
    assert (line.first_s, line.last_s, line.samples) == (T0 - 500, T0, 3)
