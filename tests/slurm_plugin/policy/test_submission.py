"""Which jobs may be changed, and what a submission requests."""

from typing import Any

import pytest

from slurm_plugin.policy.submission import Submission, job_request, kept_dimensions, why_left_alone
from tests.builders import submission
from tests.slurm_plugin.policy.test_sizing import GPUS, MEMORY


def left_alone(one: Submission) -> str | None:
    return why_left_alone(one.comment, job_request(one), kept_dimensions(one))


@pytest.mark.parametrize(
    "comment",
    [
        "rightsize=off",
        "RightSize=OFF",
        "run 7 rightsize=off",
        "a,rightsize=off;b",
        "rightsize=off,x",
        "x\nrightsize=off",
    ],
)
def test_a_comment_opts_out(comment: str) -> None:
    assert left_alone(submission(comment=comment, cpus_per_task=8)) == "opted-out"


@pytest.mark.parametrize(
    "comment", ["", "rightsize=on", "norightsize=off", "rightsize=office", "rightsize = off"]
)
def test_other_comments_do_not_opt_out(comment: str) -> None:
    assert left_alone(submission(comment=comment, cpus_per_task=8)) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"batch": False}, "not-a-batch-job"),
        ({"batch": False, "mem_per_node_mib": 8000}, None),
        ({"batch": False, "mem_per_gpu_mib": 8000, "gpus_per_job": 2}, "not-a-batch-job"),
        ({"other": ("exclusive", "features")}, "form-not-handled:exclusive"),
        ({"other": ("a_form_of_tomorrow",)}, "form-not-handled:a_form_of_tomorrow"),
        ({"other": ("threads_per_core",)}, "form-not-handled:threads_per_core"),
        ({"other": ("threads_per_core",), "mem_per_node_mib": 8000}, None),
        ({"other": ("features", "licenses", "reservation", "req_nodes"), "partition": "main"}, None),
        ({"other": ("features", "reservation")}, "form-not-handled:reserved_partition"),
        ({"nodes_min": 1, "nodes_max": 4}, "form-not-handled:node_range"),
        ({"nodes_min": 1, "nodes_max": 4, "mem_per_node_mib": 8000}, "form-not-handled:node_range"),
        (
            {"nodes_min": 1, "nodes_max": 4, "cpus_per_task": None, "gpus_per_node": 8},
            "form-not-handled:node_range",
        ),
        ({"nodes_min": 2, "gpus_per_job": 8, "cpus_per_task": None}, "form-not-handled:node_range"),
        ({"nodes_min": 2, "nodes_max": 2, "gpus_per_job": 8, "cpus_per_task": None}, None),
        ({"nodes_min": 2, "gpus_per_node": 8, "cpus_per_task": None}, None),
        ({"nodes_min": 1, "gpus_per_job": 8, "cpus_per_task": None}, None),
        ({"nodes_min": 2, "nodes_max": 2}, None),
        ({"nodes_min": 2}, None),
        ({"array": True}, None),
        ({"cpus_per_task": None}, "nothing-asked"),
        ({"cpus_per_task": None, "num_tasks": 4}, "nothing-asked"),
        ({}, None),
        ({"cpus_per_task": None, "mem_per_node_mib": 1}, None),
        ({"cpus_per_task": None, "mem_per_cpu_mib": 1}, None),
        ({"cpus_per_task": None, "gpus_per_node": 1}, None),
    ],
)
def test_a_job_that_is_not_sized_has_a_reason(changes: dict[str, Any], reason: str | None) -> None:
    assert left_alone(submission(**{"cpus_per_task": 8, **changes})) == reason


@pytest.mark.parametrize(
    ("changes", "keeps"),
    [
        ({}, False),
        ({"gpus_per_node": 1}, True),
        ({"gpus_per_job": 4}, True),
        ({"gpus_per_task": 1}, True),
        ({"other": ("gres", "gres_flags")}, True),
        ({"other": ("gres_flags", "tres_per_job")}, True),
        ({"other": ("gres_flags", "tres_per_socket")}, True),
        ({"other": ("features", "gres_flags")}, False),
    ],
)
def test_a_binding_of_gpus_that_the_site_set_for_all_jobs_keeps_only_those_with_gres(
    changes: dict[str, Any], keeps: bool
) -> None:
    """With ENFORCE_BINDING_GRES, `-c 8 --mem=8000` has the flag too, and kept all of its CPUs (24.11 and 26.05)."""
    kept = kept_dimensions(submission(**({"cpus_per_task": 8, "other": ("gres_flags",)} | changes)))
    assert ("cores" in kept, "gpus" in kept) == (keeps, keeps)


def test_a_reason_with_many_forms_still_fits_into_the_token() -> None:
    reason = left_alone(
        submission(
            cpus_per_task=8, mem_per_node_mib=9, other=tuple(f"form_{number:0>99}" for number in range(500))
        )
    )
    assert reason is not None
    assert len(reason) <= 160


def test_a_submission_becomes_a_request() -> None:
    made = job_request(submission(num_tasks=2, cpus_per_task=8, time_limit_min=60, gpus_per_node=1))
    assert (made.num_tasks, made.cpus, made.wall_s, made.gpus_per_node, made.job_name) == (
        2,
        16,
        3600,
        1,
        "fit",
    )
    assert made.script_signature
    assert job_request(submission()).num_tasks == 1
    by_node = submission(nodes_min=2, nodes_max=2, ntasks_per_node=4)
    assert (job_request(by_node).num_tasks, job_request(by_node).nodes) == (8, 2)
    # As slurmrestd sends it: `-N 2` of sbatch also sets the maximum.
    at_least = submission(nodes_min=2)
    assert (job_request(at_least).num_tasks, job_request(at_least).nodes) == (2, None)


@pytest.mark.parametrize("name", [*MEMORY, *GPUS, "cpus_per_task"])
def test_each_amount_of_a_submission_is_in_its_request(name: str) -> None:
    assert getattr(job_request(submission(**{name: 7})), name) == 7


def test_a_submission_named_after_a_workflow_run_is_known_by_its_rule_whatever_the_sample() -> None:
    rule = "#!/bin/sh\npython -m snakemake --snakefile Snakefile --target-jobs bwa:s={} --allowed-rules bwa --cores 8\n"
    run = "fb315e06-46eb-480f-ae1d-c3d14c698bea"
    one, other = (job_request(submission(name=run, script=rule.format(sample))) for sample in ("A", "B"))
    assert one.script_signature == other.script_signature != ""
    named = [job_request(submission(name="bwa", script=rule.format(sample))) for sample in ("A", "B")]
    assert named[0].script_signature != named[1].script_signature
