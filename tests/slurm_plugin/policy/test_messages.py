"""What a user is told about a decision: one line, and only if there is something to tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.request import Grant
from slurm_plugin.policy.messages import is_misread, user_line
from tests.builders import decision, request

GRANT = Grant(cpus_per_task=2, mem_per_node_mib=512)
ASKED = request(cpus_per_task=8, mem_per_node_mib=8000)


def test_an_enforced_cut_tells_what_was_given_and_how_to_keep_the_request() -> None:
    line = user_line(decision(request=ASKED, grant=GRANT, applied=True), "9 earlier jobs")
    assert "2 CPUs (you asked for 8), 512 MiB per node (you asked for 7.8 GiB)" in line
    assert "9 earlier jobs" in line
    assert "sbatch --comment=rightsize=off" in line


def test_advice_says_that_nothing_was_changed() -> None:
    line = user_line(decision(mode="advise", request=ASKED, grant=GRANT), "9 earlier jobs")
    assert "Nothing was changed" in line
    assert "--comment" not in line


def test_observe_mode_is_silent_and_so_is_a_request_that_fits() -> None:
    assert user_line(decision(mode="observe", request=ASKED, grant=GRANT), "9 earlier jobs") == ""
    assert user_line(decision(request=ASKED), "9 earlier jobs") == ""


@given(st.text(max_size=400), st.integers(1, 10**9), st.integers(1, 10**6))
def test_a_line_for_the_user_is_one_short_line_of_plain_text(basis: str, mib: int, tasks: int) -> None:
    asked = request(num_tasks=tasks, cpus_per_task=9, mem_per_cpu_mib=mib + 1, gpus_per_node=9)
    grant = Grant(cpus_per_task=1, mem_per_cpu_mib=mib, gpus_per_node=1)
    line = user_line(decision(request=asked, grant=grant, applied=True), basis)
    assert line.isascii()
    assert line.isprintable()
    assert len(line) <= 512


@pytest.mark.parametrize(
    ("script", "misread"),
    [
        # batchtools 0.9.16: clusterFunctionsSlurm.R; easybuild-framework 5.4.1: job/slurm.py; nordugrid/arc 44a2d95.
        ("Rscript -e 'batchtools::doJobCollection(\"/d/reg/jobs/job1.rds\")'\n", True),
        ("cd /home/ann && eb --robot /d/bzip2-1.0.8.eb --tmpdir /x\n", True),
        ('echo "runtimeenvironments=$runtimeenvironments" >> "$RUNTIME_JOB_DIAG"\n', True),
        ("Rscript -e 'library(batchtools)'; web a.eb; eb --help\n", False),
        ("", False),
    ],
)
def test_a_tool_that_takes_all_that_sbatch_says_for_output_is_told_nothing(
    script: str, misread: bool
) -> None:
    assert is_misread(script) is misread
