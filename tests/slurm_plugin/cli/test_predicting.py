"""What `rightsizer predict` must see like the service does: texts, environment, default account and QOS."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.sbatch.script import read_submission
from slurm_plugin.sbatch.wire_text import SCRIPT_BYTES, TEXT_BYTES, as_sent, clean
from slurm_plugin.slurm.associations import Association, parse_associations, with_defaults
from tests.builders import submission

SCRIPT = "#!/bin/sh\n#SBATCH -c 8 --mem=8000\nsrun ./fit\n"


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        # The cases of tests/lua/test_hook.py.
        (b"a\xffb\xc3\xa9\xc3", "a?bé?"),
        ("é".encode() * 513, "é" * 512),
        (b"x" + "é".encode() * 512, "x" + "é" * 511),
        (b"\xff\xfe\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80ok\xc3\xa9", "?" * 11 + "oké"),
    ],
)
def test_text_is_cut_and_cleaned_like_in_the_hook(content: bytes, sent: str) -> None:
    assert clean(content, TEXT_BYTES) == sent


@given(st.binary(max_size=60), st.integers(4, 60))
def test_any_bytes_become_text_within_the_limit(content: bytes, limit: int) -> None:
    text = clean(content, limit)
    assert len(text.encode()) <= limit
    assert clean(text.encode(), limit) == text


def test_a_submission_is_cut_to_what_the_hook_sends() -> None:
    long = as_sent(submission(name="n" * 2000, comment="\udcff"), b"#!/bin/sh\n" + b"x" * 9000)
    assert (len(long.name), long.comment, len(long.script)) == (TEXT_BYTES, "?", 10 + 9000)
    longer = as_sent(submission(), b"#!/bin/sh\n" + b"x" * 9000 + b"\n" + b"y" * 8000)
    assert longer.script == "#!/bin/sh\n" + "x" * (SCRIPT_BYTES - 10) + "\n" + "y" * 8000


@pytest.mark.parametrize(
    ("environment", "field", "value"),
    [
        ({"SBATCH_MEM_PER_NODE": "4G"}, "mem_per_node_mib", 4096),
        ({"SBATCH_GPUS": "a100:2"}, "gpus_per_job", 2),
        ({"SBATCH_QOS": "high"}, "qos", "high"),
        ({"SBATCH_PARTITION": "gpu"}, "partition", "gpu"),
        ({"SBATCH_JOB_NAME": "night run"}, "name", "night run"),
        ({"SBATCH_HINT": "nomultithread"}, "other", ("threads_per_core",)),
        ({"SBATCH_EXCLUSIVE": "exclusive"}, "other", ("exclusive",)),
        ({"SBATCH_EXCLUSIVE": "user"}, "other", ("exclusive_user",)),
        ({"SBATCH_OVERCOMMIT": ""}, "other", ("min_cpus",)),
        ({"SLURM_CPUS_PER_TASK": "64"}, "cpus_per_task", 8),
    ],
)
def test_the_environment_wins_over_the_script(environment: dict[str, str], field: str, value: Any) -> None:
    assert getattr(read_submission(SCRIPT, "job.sh", "alice", (), environment), field) == value


def test_options_win_over_the_environment() -> None:
    made = read_submission(SCRIPT, "job.sh", "alice", ("--mem=1G",), {"SBATCH_MEM_PER_NODE": "4G"})
    assert made.mem_per_node_mib == 1024


@pytest.mark.parametrize("options", [(":", "-c", "2"), ()])
def test_the_parts_of_a_heterogeneous_job_are_not_one_job(options: tuple[str, ...]) -> None:
    script = SCRIPT if options else SCRIPT.replace("srun", "#SBATCH hetjob\n#SBATCH -c 2\nsrun")
    assert "het_job" in read_submission(script, "job.sh", "alice", options).other


ROWS = "phys|phys||normal\nphys|chem|gpu|large\nphys|chem||small\nno row\n"


@pytest.mark.parametrize(
    ("changes", "account", "qos"),
    [
        ({}, "phys", "normal"),
        ({"account": "chem"}, "chem", "small"),
        ({"account": "chem", "partition": "gpu"}, "chem", "large"),
        ({"account": "chem", "partition": "cpu,gpu"}, "chem", "small"),
        ({"qos": "own"}, "phys", "own"),
        ({"account": "Chem"}, "Chem", "small"),
        ({"account": "elsewhere"}, "elsewhere", ""),
    ],
)
def test_a_job_without_an_account_or_qos_gets_the_defaults_of_its_user(
    changes: dict[str, str], account: str, qos: str
) -> None:
    made = with_defaults(submission(**changes), parse_associations(ROWS))
    assert (made.account, made.qos) == (account, qos)


def test_a_user_without_associations_has_no_defaults() -> None:
    assert parse_associations("") == []
    assert with_defaults(submission(), []) == submission()
    assert parse_associations("a|b|c|d\n") == [Association("a", "b", "c", "d")]
