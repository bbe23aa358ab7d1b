"""TRES lists and job states as sacct prints them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.states import outcome_of
from accounting.tres import Tres, parse_tres, parse_usage, split_tres


def test_a_full_list_is_read() -> None:
    text = "billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4,mem=8000M,node=2"
    assert parse_tres(text) == Tres(cpus=8, mem_mib=8000, gpus=4, nodes=2)


def test_gpus_are_summed_over_types_where_only_types_are_tracked() -> None:
    """AccountingStorageTRES=gres/gpu:a100,gres/gpu:v100, as in slurm.conf(5)."""
    assert parse_tres("cpu=8,gres/gpu:a100=2,gres/gpu:v100=1,gres/shard=7").gpus == 3
    assert parse_tres("gres/gpu=4,gres/gpu:a100=2").gpus == 4
    assert parse_tres("gres/gpu:a100=2,gres/gpu:v100=x").gpus is None
    assert parse_tres(",".join(f"gres/gpu:{kind}={'9' * 18}" for kind in range(20))).gpus is None
    assert parse_tres("gres/gpumem=5,gres/gpuutil=9").gpus is None


def test_a_list_that_names_nothing_known_is_empty() -> None:
    assert parse_tres("") == parse_tres("license/x=1,junk,=3") == Tres()


@pytest.mark.parametrize(
    "text", ["cpu=-1", "cpu=x", "mem=16?", "gres/gpu=", "cpu=" + "9" * 30, "mem=" + "9" * 400]
)
def test_damaged_amounts_are_unknown(text: str) -> None:
    assert parse_tres(text) == Tres()


def test_memory_in_other_units_is_converted_to_mib() -> None:
    assert (
        parse_tres("mem=2G").mem_mib
        == parse_tres("mem=2048M").mem_mib
        == parse_tres("mem=2048").mem_mib
        == 2048
    )


def test_usage_is_read_from_bytes_and_clock_times() -> None:
    assert parse_usage("cpu=00:00:10,fs/disk=5,mem=104857600").mem_mib == 100
    assert parse_usage("cpu=1-00:00:10,mem=0").cpu_s == 86410
    assert parse_usage("cpu=00:00:10").mem_mib is None
    assert parse_usage("mem=5").cpu_s is None


@given(
    st.dictionaries(
        st.from_regex(r"[a-z/:]{1,8}", fullmatch=True), st.integers(0, 10**6).map(str), max_size=5
    )
)
def test_lists_are_split_into_the_parts_they_were_made_of(parts: dict[str, str]) -> None:
    assert split_tres(",".join(f"{name}={value}" for name, value in parts.items())) == parts


@given(st.text(max_size=40))
def test_any_text_is_read_without_an_error(text: str) -> None:
    tres = parse_tres(text)
    for amount in (tres.cpus, tres.mem_mib, tres.gpus, tres.nodes):
        assert amount is None or amount >= 0


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("COMPLETED", "completed"),
        ("COMPLETED+", "completed"),
        ("OUT_OF_MEMORY", "out_of_memory"),
        ("OUT_OF_ME+", "unfinished"),
        ("TIMEOUT", "timeout"),
        ("CANCELLED by 1000", "cut_short"),
        ("CANCELLED+", "cut_short"),
        ("NODE_FAIL", "cut_short"),
        ("REQUEUED", "cut_short"),
        ("RUNNING", "unfinished"),
        ("PENDING", "unfinished"),
        ("SUSPENDED", "unfinished"),
        ("COMPLETING", "unfinished"),
        ("", "unfinished"),
        ("completed", "unfinished"),
    ],
)
def test_a_state_determines_the_outcome_of_the_attempt(state: str, outcome: str) -> None:
    assert outcome_of(state) == outcome
