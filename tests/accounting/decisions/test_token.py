"""The audit token in a comment, and the decision in a journal line."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.decisions.decision import (
    Decision,
    DimensionReason,
    Fixed,
    PredictedUnder,
    decode_decision,
    encode_decision,
)
from accounting.decisions.token import (
    asked_request,
    find_token,
    format_token,
    granted_by,
    mark_recovery,
    replace_token,
)
from accounting.request import Grant, JobRequest, granted
from tests.builders import decision, request

# What Slurm can hold, also in totals.
CPUS, GPUS = st.none() | st.integers(1, 60_000), st.none() | st.integers(0, 60_000)
MIB, MIB_PER_CPU = st.none() | st.integers(0, 10**9), st.none() | st.integers(0, 10**4)
REQUESTS = st.builds(
    JobRequest,
    user=st.text(max_size=8),
    job_name=st.text(max_size=8),
    script_signature=st.from_regex(r"([0-9a-f]{12})?", fullmatch=True),
    num_tasks=st.integers(1, 10**4),
    cpus_per_task=CPUS,
    mem_per_node_mib=MIB,
    mem_per_cpu_mib=MIB_PER_CPU,
    gpus_per_node=GPUS,
)
GRANTS = st.builds(
    Grant,
    cpus_per_task=CPUS,
    mem_per_node_mib=MIB,
    mem_per_cpu_mib=MIB_PER_CPU,
    gpus_per_node=GPUS,
)
FIELDS = {
    "cpus": "cpus_per_task",
    "mem": "mem_per_node_mib",
    "mem-per-cpu": "mem_per_cpu_mib",
    "gpus": "gpus_per_node",
}


@given(REQUESTS, GRANTS, st.booleans())
def test_a_token_holds_what_was_requested_and_granted(asked: JobRequest, grant: Grant, applied: bool) -> None:
    token = find_token(format_token(decision(request=asked, grant=grant, applied=applied, model="m-1")))
    assert token is not None
    assert (token.decision_id, token.mode, token.reason, token.model) == ("d1", "enforce", "fits", "m-1")
    assert token.signature == asked.script_signature
    known = asked_request(token, asked.user)
    assert known is not None
    for field in ("num_tasks", *FIELDS.values()):
        assert getattr(known, field) == getattr(asked, field)
    assert len(token.asked) == 1 + sum(getattr(asked, field) is not None for field in FIELDS.values())
    given_amounts = {word: getattr(grant, field) for word, field in FIELDS.items()}
    expected = {word: value for word, value in given_amounts.items() if value is not None}
    assert token.granted == (expected if applied else {})


@given(REQUESTS, st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_a_token_is_one_word_of_printable_ascii_whatever_it_is_made_of(
    asked: JobRequest, identity: str, reason: str, model: str
) -> None:
    text = format_token(decision(id=identity or "x", reason=reason, model=model, request=asked))
    assert text.isascii()
    assert text.isprintable()
    assert text.split() == [text]
    token = find_token(text)
    assert token is not None
    known = asked_request(token, asked.user)
    assert known is not None
    assert known.num_tasks == asked.num_tasks


def test_a_reason_cannot_forge_a_grant() -> None:
    token = find_token(
        format_token(decision(reason="x;granted=cpus:1 rightsizer/1;id=evil", request=request()))
    )
    assert token is not None
    assert (token.decision_id, token.granted) == ("d1", {})


GOLDEN = Path(__file__).resolve().parents[2] / "contract" / "wire_v1.json"


def test_a_token_that_the_hook_marked_as_refused_is_read_as_refused() -> None:
    frames = json.loads(GOLDEN.read_text(encoding="utf-8"))["replies"]
    frame = next(one for one in frames if one["name"] == "a_refused_token_says_what_would_have_been")
    granted_token, refused_token = (
        find_token(text) for text in (json.loads(frame["reply"])["token"], frame["writes"]["admin_comment"])
    )
    assert granted_token is not None
    assert refused_token is not None
    assert (granted_token.refused, granted_token.granted) == ("", {"cpus": 2})
    assert (refused_token.refused, refused_token.granted) == (frame["reason"], {})
    assert refused_token.decision_id == granted_token.decision_id
    assert (refused_token.asked, refused_token.signature) == (granted_token.asked, granted_token.signature)


@given(REQUESTS, GRANTS)
def test_any_token_can_be_refused(asked: JobRequest, grant: Grant) -> None:
    text = format_token(decision(request=asked, grant=grant, applied=True))
    # lua/rightsizer/plan.lua does it in this way.
    token = find_token(text.replace(";granted=", ";would=", 1) + ";refused=coupled_field")
    whole = find_token(text)
    assert token is not None
    assert whole is not None
    assert (token.refused, token.granted) == ("coupled_field", {})
    assert (token.asked, token.decision_id) == (whole.asked, whole.decision_id)


def test_a_token_is_found_between_other_words() -> None:
    text = format_token(decision())
    for comment in (text, f"JS1:xyz {text}", f"{text} later words", f"a\n{text}\tb"):
        assert find_token(comment) == find_token(text) != None  # noqa: E711


def test_the_last_of_several_tokens_counts() -> None:
    token = find_token(f"{format_token(decision(id='old'))} {format_token(decision(id='new'))}")
    assert token is not None
    assert token.decision_id == "new"


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "no token here",
        "rightsizer/1;",
        "rightsizer/1;mode=enforce",
        "rightsizer/2;id=x",
        "xrightsizer/1;id=x",
        "rightsizer/1;id=x;asked=cpus:many",
        "rightsizer/1;id=x;asked=cpus:-8",
        "rightsizer/1;id=x;asked=cores:8",
        "rightsizer/1;id=x;asked=cpus",
        "rightsizer/1;id=x;granted=mem:1.5",
        "rightsizer/1;id=x;asked=mem:²",
        "rightsizer/1;id=x;refused=",
        "rightsizer/1;id=x;refused=Coupled Field",
        "rightsizer/1;id=x;refused=coupled-field",
        "rightsizer/1;id=x;refused=" + "x" * 41,
        "rightsizer/1;id=x;granted=cpus:1;refused=coupled_field",
        "rightsizer/1;id=x;asked=mem:" + "9" * 5000,
    ],
)
def test_a_damaged_token_is_read_as_none(comment: str) -> None:
    assert find_token(comment) is None


@given(st.integers(0, 120), st.characters())
def test_damage_anywhere_in_a_token_is_never_an_error(place: int, letter: str) -> None:
    text = format_token(
        decision(request=request(mem_per_node_mib=8000), grant=Grant(cpus_per_task=2), applied=True)
    )
    token = find_token(text[:place] + letter + text[place + 1 :])
    assert token is None or all(value >= 0 for value in (*token.asked.values(), *token.granted.values()))


@given(REQUESTS, GRANTS, st.booleans(), st.floats(0, 1e10))
def test_a_journal_line_is_decoded_to_its_decision(
    asked: JobRequest, grant: Grant, applied: bool, predicted: float
) -> None:
    why = DimensionReason(dimension="memory", asked=1.0, predicted=predicted, granted=None, reason="history")
    under = PredictedUnder(0.01, 0.02, 1, 0.03) if applied else None
    made = decision(request=asked, grant=grant, applied=applied, dimensions=(why,), settings=under)
    line = encode_decision(made)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_decision(line) == made


@given(st.binary(max_size=60))
def test_bytes_that_are_no_decision_are_read_as_none(line: bytes) -> None:
    assert decode_decision(line) is None


def test_a_torn_line_is_no_decision() -> None:
    line = encode_decision(decision())
    assert all(decode_decision(line[:cut]) is None for cut in range(len(line) - 1))
    assert isinstance(decode_decision(line), Decision)


@given(REQUESTS, GRANTS)
def test_a_grant_changes_only_what_it_names(asked: JobRequest, grant: Grant) -> None:
    after = granted(asked, grant)
    for field in FIELDS.values():
        given_amount = getattr(grant, field)
        assert getattr(after, field) == (getattr(asked, field) if given_amount is None else given_amount)
    assert (after.num_tasks, after.user) == (asked.num_tasks, asked.user)
    assert bool(grant) == any(getattr(grant, field) is not None for field in FIELDS.values())


@given(st.text(alphabet="abc JS1:=;", max_size=12), st.text(alphabet="abc =;", max_size=12))
def test_a_token_is_replaced_in_place_and_other_words_stay(before: str, after: str) -> None:
    first = format_token(decision(request=request(cpus_per_task=8)))
    again = format_token(decision(id="d2", replaces="d1", grant=Grant(cpus_per_task=2), applied=True))
    around = f"{before} {{}} {after}"
    assert replace_token(around.format(first), again) == around.format(again)
    token = find_token(replace_token(around.format(first), again))
    assert token is not None
    assert (token.decision_id, token.was, granted_by(token)) == ("d2", "d1", Grant(cpus_per_task=2))


def test_only_the_last_token_is_replaced_because_only_it_is_read() -> None:
    assert replace_token("rightsizer/1;id=a rightsizer/1;id=b x", "T") == "rightsizer/1;id=a T x"
    with pytest.raises(ValueError, match="without a token"):
        replace_token("nobody's words", "T")


@given(REQUESTS, GRANTS, st.integers(0, 10**6), st.text(alphabet="abc =;", max_size=12))
def test_the_mark_of_a_recovery_changes_nothing_else(
    asked: JobRequest, grant: Grant, restarts: int, after: str
) -> None:
    plain = format_token(decision(request=asked, grant=grant, applied=True))
    marked = mark_recovery(f"x {plain} {after}", "timeout", restarts)
    assert marked == f"x {plain};recovery=timeout:{restarts} {after}"
    token = find_token(marked)
    assert token is not None
    assert msgspec.structs.replace(token, recovered_at=None) == find_token(plain)
    assert token.recovered_at == restarts


@pytest.mark.parametrize("said", ["", "x", "x:", ":1", "x:-1", "x:1:1", "X:1", "x:1.0"])
def test_a_malformed_recovery_mark_is_read_as_none(said: str) -> None:
    token = find_token(f"rightsizer/1;id=a;recovery={said}")
    assert token is not None
    assert token.recovered_at is None


@given(st.integers(0, 10_000), st.integers(0, 64), st.booleans())
def test_what_a_submission_fixed_comes_back_from_the_journal(
    memory_mib: int, cpus: int, is_kept: bool
) -> None:
    fixed = Fixed(
        memory_mib=memory_mib, cpus_per_task=cpus, kept=(("gpus", "node_range"),) if is_kept else ()
    )
    made = decision(fixed=fixed, replaces="d0")
    assert decode_decision(encode_decision(made)) == made
    # A decision also records that nothing is fixed: one of an earlier release says nothing.
    assert b'"fixed":{}' in encode_decision(decision(fixed=Fixed()))
    assert b"fixed" not in encode_decision(decision())


@pytest.mark.parametrize(
    "asked",
    [
        "tasks:9007199254740992,cpus:9007199254740992",
        "tasks:65536,cpus:65536",
        "tasks:4294967294,cpus:1",
        "tasks:0,cpus:8",
        "tasks:1,nodes:0,mem:5",
        f"tasks:1,mem:{2**43}",
        f"tasks:2,cpus:2,mem-per-cpu:{2**42}",
        "tasks:1,gpus-per-job:4294967294",
        "tasks:65536,gpus-per-task:65536",
    ],
)
def test_a_token_with_amounts_that_slurm_cannot_hold_is_not_ours(asked: str) -> None:
    assert find_token(f"rightsizer/1;id=x;mode=enforce;asked={asked}") is None


def test_the_largest_amounts_that_slurm_can_hold_are_read() -> None:
    assert (
        find_token(f"rightsizer/1;id=x;asked=tasks:65535,cpus:65535,mem:{2**43 - 1};granted=mem:0")
        is not None
    )
