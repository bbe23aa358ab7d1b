"""Types of jobs: the site's rules first, then the name or the script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.run_time.job_types import TypeRule, found_type, job_type

RULES = (
    TypeRule(name="resnet", job_name=("resnet*", "imagenet-*"), partition=("gpu*",)),
    TypeRule(name="physics", account=("phys",)),
    TypeRule(name="late", job_name=("resnet*",)),
)


@pytest.mark.parametrize(
    ("name", "partition", "account", "expected"),
    [
        ("resnet50", "gpu-a", "vision", "resnet"),
        ("imagenet-3", "gpu", "phys", "resnet"),  # the first that matches counts
        ("fit", "main", "phys", "physics"),
        ("resnet50", "main", "vision", "late"),
        ("Resnet50", "gpu", "vision", "resnet#"),  # patterns are case-sensitive
        ("fit-12", "main", "vision", "fit-#"),
    ],
)
def test_the_first_matching_rule_names_the_type(
    name: str, partition: str, account: str, expected: str
) -> None:
    assert job_type(RULES, name, partition, account) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NFCORE_CHIPSEQ:CHIPSEQ:ALIGN_BWA_MEM:BWA_MEM", "bwa_mem"),
        ("NFCORE_METHYLSEQ:METHYLSEQ:FASTQC", "fastqc"),
        ("nf-bwa_(sample_17)", "bwa"),
        ("fastqc (DA188_L1)", "fastqc"),
        ("runs/Fit_012.sbatch", "fit_#"),
        ("nf-", "nf-"),
    ],
)
def test_a_names_type_is_its_last_component_without_sample_and_numbers(name: str, expected: str) -> None:
    assert found_type(name) == expected


def test_a_name_that_says_nothing_falls_back_on_the_script() -> None:
    assert found_type("wrap", "abc123") == "script abc123"
    assert found_type("wrap") is None
    assert found_type("", "") is None
    assert found_type("A:B:", "abc") == "script abc"


@given(st.text(max_size=40), st.text(max_size=10), st.text(max_size=10))
def test_a_rule_without_patterns_matches_every_job(name: str, partition: str, account: str) -> None:
    assert job_type((TypeRule(name="all"),), name, partition, account) == "all"
    assert found_type(name) != ""
