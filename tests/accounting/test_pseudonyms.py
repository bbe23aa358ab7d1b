"""Pseudonyms: stable, never the name itself, and families remain families."""

import errno
import os
import re
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.decisions.by_clients import carried_out
from accounting.decisions.decision import DimensionReason, decode_decision, encode_decision
from accounting.decisions.originals import client_decision_ids
from accounting.decisions.token import carried_word, find_token, format_token
from accounting.errors import ConfigError
from accounting.frames import JOBS
from accounting.key_file import make_key, read_key
from accounting.pseudonyms import Pseudonyms
from accounting.records import Quarantined
from accounting.request import Dimension, Grant
from accounting.states import outcome_of
from models.past.families import GENERIC_NAMES, basis_of, describe_family, family_name
from models.past.job_names import normal_name, without_machine_parts
from tests.builders import T0, decision, job_row, records_of, request

KEY = b"0123456789abcdef" * 4
HIDDEN = Pseudonyms(KEY, GENERIC_NAMES, without_machine_parts)
NAMES = st.text(st.sampled_from("abcFitTrain0123456789_-./ #üÉß٣٤𝟗İ字🧪"), max_size=30) | st.sampled_from(
    [
        *("wrap", "run", "Job_12.sbatch", "runs/Fit_012.sh", "a.slurm", "train-0012", "train-0013"),
        *("nf-bwa_(s1)", "nf-bwa_(WT)", "cromwell_1a2b3c4d_bwa", "cromwell_12345678_bwa", "tmp4k_x9zqh"),
        *("fb315e06-46eb-480f-ae1d-c3d14c698bea", "0cc175b9c0f1b6a831c399e269772661", "bwa-1a2b3c4d5e"),
    ]
)


def test_a_name_has_one_pseudonym_for_one_key() -> None:
    assert HIDDEN.user("alice") == Pseudonyms(KEY).user("alice")
    assert HIDDEN.user("alice") != Pseudonyms(KEY[::-1]).user("alice")
    assert re.fullmatch(r"user-[a-z2-7]{10}", HIDDEN.user("alice"))
    assert re.fullmatch(r"account-[a-z2-7]{10}", HIDDEN.account("phys"))
    # A user's personal account of the same name does not reveal the user.
    assert HIDDEN.user("alice").split("-")[1] != HIDDEN.account("alice").split("-")[1]
    assert HIDDEN.user("") == HIDDEN.account("") == HIDDEN.job_name("") == HIDDEN.comment("") == ""


def test_no_two_of_many_names_share_a_pseudonym() -> None:
    names = [f"user{number}" for number in range(20_000)]
    assert len({HIDDEN.user(name) for name in names}) == len(names)


def test_job_names_keep_their_numbers_and_form() -> None:
    first, second = HIDDEN.job_name("train-0012"), HIDDEN.job_name("train-0013")
    assert re.fullmatch(r"[a-p]{12}-0012", first)
    assert first.removesuffix("0012") == second.removesuffix("0013")
    assert HIDDEN.job_name("wrap") == "wrap"
    assert HIDDEN.job_name("fit_3.sbatch").endswith("_3.sbatch")


@given(NAMES, NAMES)
def test_two_names_are_one_family_exactly_if_their_pseudonyms_are(one: str, other: str) -> None:
    alike = normal_name(one) == normal_name(other)
    assert (normal_name(HIDDEN.job_name(one)) == normal_name(HIDDEN.job_name(other))) == alike
    assert (family_name(HIDDEN.job_name(one)) == family_name(HIDDEN.job_name(other))) == (
        family_name(one) == family_name(other)
    )
    assert (normal_name(one) in GENERIC_NAMES) == (normal_name(HIDDEN.job_name(one)) in GENERIC_NAMES)


@given(st.text(st.characters(categories=["L"]), min_size=3, max_size=20))
def test_no_word_of_a_name_is_left(word: str) -> None:
    if word.lower() not in GENERIC_NAMES:
        assert word.lower() not in HIDDEN.job_name(f"{word}-1")
        assert re.fullmatch(r"[a-p]{12}-1", HIDDEN.job_name(f"{word}-1"))


def test_our_token_survives_in_an_admin_comment_and_names_nobody() -> None:
    made = decision(
        request=request(user="alice", account="phys", job_name="secret-project", mem_per_node_mib=8000),
        grant=Grant(mem_per_node_mib=512),
        applied=True,
        model="20260101T000000",
        rule="gpu",
    )
    token = format_token(made)
    assert not any(name in token for name in ("alice", "phys", "secret"))
    for text in (token, f"JS1:abc by alice {token}", f"{token} note of bob"):
        hidden = HIDDEN.comment(text)
        assert find_token(hidden) == find_token(text) is not None
        assert "alice" not in hidden
        assert "bob" not in hidden
        assert HIDDEN.comment(text) == hidden


def test_our_words_in_a_comment_stay() -> None:
    word = carried_word("0123456789ab")
    hidden = HIDDEN.comment(f"for bob rightsize=off {word}")
    assert hidden.endswith(f" rightsize=off {word}")
    assert "bob" not in hidden
    assert HIDDEN.comment(word) == word
    assert "rightsizer" not in HIDDEN.comment("norightsizer-cli=0123456789ab2")


def test_a_clients_decision_is_still_found_under_pseudonyms() -> None:
    row = job_row(comment=carried_word("0123456789ab"), job_name="fit-1", submit_s=T0)
    asked = request(job_name="fit-1", cpus_per_task=8, mem_per_node_mib=8000)
    made = decision(id="0123456789ab", time_s=T0 - 1.0, request=asked)
    assert carried_out(made, row) is not None
    hidden_row, hidden = HIDDEN.row(row), HIDDEN.decision(made)
    assert client_decision_ids(records_of([(hidden_row, [])]).jobs) == {0: "0123456789ab"}
    found = carried_out(hidden, hidden_row)
    assert found is not None
    assert found.request.user == HIDDEN.user("alice") == hidden_row.user


def test_uids_in_states_are_hidden_and_outcomes_stay() -> None:
    row = HIDDEN.row(job_row(state="CANCELLED by 1000"))
    assert re.fullmatch(r"CANCELLED by uid-[a-z2-7]{10}", row.state)
    assert outcome_of(row.state) == "cut_short"
    assert HIDDEN.row(job_row(state="COMPLETED")).state == "COMPLETED"


def test_rows_tables_and_documents_have_the_same_pseudonyms() -> None:
    row = job_row(
        user="bob", account="chem", job_name="Dock-7", comment="hush", admin_comment="x", state="FAILED"
    )
    hidden = HIDDEN.row(row)
    assert hidden.job_id == row.job_id
    assert {"bob", "chem", "hush"}.isdisjoint(msgspec.structs.astuple(hidden))
    columns = {name: [getattr(row, name, None)] for name in JOBS.names}
    table = HIDDEN.table(pa.Table.from_pydict(columns, schema=JOBS))
    assert table.schema == JOBS
    assert {name: table[name][0].as_py() for name in JOBS.names if hasattr(row, name)} == {
        name: getattr(hidden, name) for name in JOBS.names if hasattr(row, name)
    }
    made = decision(request=request(user="bob", account="chem", job_name="Dock-7"))
    document = HIDDEN.document(encode_decision(made).decode())
    assert decode_decision(document.encode()) == HIDDEN.decision(made)
    assert "bob" not in document
    assert "ock" not in document
    assert HIDDEN.document("{damaged") == ""


@pytest.mark.parametrize("kind", ["user+name+script", "user+name", "user"])
@pytest.mark.parametrize("number", [1, 30])
def test_the_reasons_of_a_decision_name_neither_its_user_nor_its_job(kind: str, number: int) -> None:
    asked = request(user="bob", job_name="dock\nsecret", cpus_per_task=8, mem_per_node_mib=8000)
    family = (kind, asked.user, normal_name(asked.job_name), "abc")
    told: dict[Dimension, str] = {
        "memory": "history",
        "cores": f"{basis_of(number, describe_family(family))}, slowed",
        "gpus": "not asked for",
    }
    made = decision(
        request=asked,
        dimensions=tuple(
            DimensionReason(dimension=name, asked=None, predicted=None, granted=None, reason=reason)
            for name, reason in told.items()
        ),
    )
    hidden = HIDDEN.decision(made)
    assert [one.reason for one in hidden.dimensions] == [
        "history", basis_of(number, f"jobs of {HIDDEN.user('bob')}"), "not asked for",
    ]  # fmt: skip
    assert not any(name in encode_decision(hidden) for name in (b"bob", b"dock", b"secret"))


def test_tables_of_many_chunks_and_nulls_get_pseudonyms() -> None:
    parts = [
        pa.table({"user": pa.array(["a", None, "b"]), "cores": [1, 2, 3]}),
        pa.table({"user": pa.array(["b", "a", ""]), "cores": [4, 5, 6]}),
        pa.table({"user": pa.array([], pa.string()), "cores": pa.array([], pa.int64())}),
    ]
    table = HIDDEN.table(pa.concat_tables(parts))
    a, b = HIDDEN.user("a"), HIDDEN.user("b")
    assert table["user"].to_pylist() == [a, None, b, b, a, ""]
    assert table["cores"].to_pylist() == [1, 2, 3, 4, 5, 6]
    assert HIDDEN.table(parts[2]).num_rows == 0


def test_a_quarantined_line_keeps_only_its_reason() -> None:
    item = HIDDEN.quarantined(Quarantined(line="1|alice|", reason="2 columns", source="sacct"))
    assert "alice" not in item.line
    assert (item.reason, item.source) == ("2 columns", "sacct")


def test_a_key_is_made_once_and_only_for_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "key"
    make_key(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(read_key(file)) == 64
    with pytest.raises(ConfigError, match="exists already"):
        make_key(file)
    other = tmp_path / "other"
    make_key(other)
    assert read_key(other) != read_key(file)
    with pytest.raises(ConfigError, match="cannot make"):
        make_key(tmp_path / "none" / "key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    make_key(file)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=r"other users may read .*; run `chmod 600"):
        read_key(file)


def test_a_key_of_another_user_is_to_be_given_to_this_one_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_arguments: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    file = tmp_path / "key"
    make_key(file)
    monkeypatch.setattr(Path, "open", closed)
    with pytest.raises(
        ConfigError, match=r"Permission denied; make the user of this process its owner \(chown\)$"
    ):
        read_key(file)


def test_a_key_that_is_missing_or_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*; `rightsizer config pseudonym-key"):
        read_key(tmp_path / "none")
    with pytest.raises(ConfigError, match="cannot read"):
        read_key(tmp_path)
    file = tmp_path / "short"
    file.write_text("x" * 31 + "\n\n")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="has 31 characters"):
        read_key(file)
