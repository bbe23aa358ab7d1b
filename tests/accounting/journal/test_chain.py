"""The journal's links: any change to a line shows, and where; a write that was cut off is not a change."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.decisions.decision import decode_decision, encode_decision
from accounting.journal.chain_check import ChainCheck, Found, Place
from accounting.journal.links import Head, Linker, anchor_of, chain_name, newest_head, read_anchor, split_line
from tests.builders import DEEP, decision, request

KEY = b"0123456789abcdef" * 4
NAME, FILE = "decisions", "decisions-20260101.jsonl"
LINES = 12


def body(number: int) -> bytes:
    return encode_decision(decision(id=f"d{number}", request=request(job_name=f"job {number}")))[:-1]


def linked(count: int = LINES, key: bytes = KEY, head: Head | None = None) -> list[bytes]:
    """Lines of a chain, without their newlines."""
    linker, lines = Linker(key), []
    head = head or linker.begin(NAME)
    for number in range(count):
        line, head = linker.linked(body(number), head)
        lines.append(line[:-1])
    return lines


def check_of(lines: Iterable[bytes], key: bytes = KEY, start: Head | None = None) -> ChainCheck:
    check = ChainCheck(NAME, key, start or Linker(key).begin(NAME))
    for number, line in enumerate(lines, 1):
        check.take(Place(FILE, number), line)
    return check


def found_in(lines: Iterable[bytes], key: bytes = KEY) -> list[tuple[str, int]]:
    return [(one.kind, one.place.line) for one in check_of(lines, key).finish()]


AT = st.integers(0, LINES - 1)
INNER = st.integers(0, LINES - 2)


def test_a_linked_line_says_what_it_said_before_it_was_linked() -> None:
    for number, line in enumerate(linked()):
        parts = split_line(line)
        assert parts is not None
        assert parts[0] == body(number)
        assert decode_decision(line) == decode_decision(body(number))
        assert parts[1].number == number + 1
    assert split_line(body(0)) is None


@pytest.mark.parametrize("key", [KEY, b""])
def test_a_chain_as_written_has_no_findings(key: bytes) -> None:
    check = check_of(linked(key=key), key)
    assert check.finish() == []
    assert (check.lines, check.head.number, check.without_key) == (LINES, LINES, 0)


@given(AT, st.data())
def test_any_change_of_a_line_shows_where_it_was_made(at: int, data: st.DataObject) -> None:
    lines = linked()
    place = data.draw(st.integers(0, len(lines[at]) - 1))
    byte = data.draw(st.sampled_from(sorted(set(range(32, 127)) - {lines[at][place]})))
    lines[at] = lines[at][:place] + bytes([byte]) + lines[at][place + 1 :]
    found = check_of(lines).finish()
    told = ("changed", "inserted", "torn") if at else ("changed", "inserted", "torn", "without link")
    assert any(one.place.line == at + 1 and one.kind in told for one in found)
    # A line that is cut off is harmless by itself: that it was in the chain is shown by the line after it.
    assert at == LINES - 1 or any(one.kind in ("changed", "inserted", "removed") for one in found)
    assert all(one.place.line in (at + 1, at + 2) for one in found)


@pytest.mark.parametrize("key", [KEY, b""])
@pytest.mark.parametrize("number", [7, 10**17])
@pytest.mark.parametrize("at", [0, 5])
def test_a_changed_number_moves_no_other_line(at: int, number: int, key: bytes) -> None:
    lines = linked(key=key)
    lines[at] = lines[at].replace(b'"link":[%d,' % (at + 1), b'"link":[%d,' % number)
    assert found_in(lines, key) == [("changed", at + 1), ("removed", at + 2)]


def test_a_first_line_whose_link_was_damaged_is_reported() -> None:
    """It looks like a line from before lines had links; the number that is missing after it shows what it was."""
    lines = linked()
    lines[0] = lines[0].replace(b'"link":', b'"lank":')
    assert found_in(lines, KEY) == [("changed", 1), ("removed", 2)]


def test_a_changed_first_line_of_later_files_is_reported_by_itself() -> None:
    lines = [line.replace(b"job 4", b"job 5") for line in linked()[4:]]
    check = ChainCheck(NAME, KEY, None)
    for number, line in enumerate(lines, 1):
        check.take(Place(FILE, number), line)
    assert [(one.kind, one.place.line) for one in check.finish()] == [("changed", 1)]


def test_lines_with_another_key_stand_where_their_numbers_say() -> None:
    check = check_of(linked()[4:], b"other key" * 5)
    found = [(one.kind, one.place.line) for one in check.finish()]
    assert found == [("changed", 1), ("removed", 1), *(("changed", line) for line in range(2, LINES - 3))]
    assert check.first is not None
    assert check.first.number == 5


def test_a_forged_number_takes_no_memory_and_moves_no_other_line() -> None:
    lines = linked(key=b"")
    forged, _ = Linker().linked(body(50), Head(10**17, b"0" * 32))
    assert found_in([*lines[:4], forged[:-1], *lines[4:]], b"") == [("inserted", 5)]


@pytest.mark.parametrize(
    ("key", "own"),
    [(b"", "f9366c9a8ac7e94ecaec75995bd8534b"), (KEY, "f93b63c1baa4e254551a33dab7393e89")],
)
def test_a_line_linked_once_is_intact_in_every_release(key: bytes, own: str) -> None:
    line, _ = Linker(key).linked(b'{"id":"d1"}', Linker(key).begin(NAME))
    parts = split_line(line[:-1])
    assert parts is not None
    assert parts[1].own.decode() == own


@given(AT, st.text(max_size=9), st.booleans())
def test_a_line_forged_without_the_key_does_not_fit(at: int, name: str, with_plain_hash: bool) -> None:
    lines = linked()
    forged = encode_decision(decision(id=f"d{at}", request=request(job_name=f"forged {name}")))[:-1]
    parts = split_line(lines[at])
    assert parts is not None
    link = parts[1]
    own = Linker().own(link.number, link.previous, forged) if with_plain_hash else link.own
    lines[at] = b'%b,"link":[%d,"%b","%b"]}' % (forged[:-1], link.number, link.previous, own)
    # The first line may be from before there was a key: its link to the next shows the change.
    expected = at + 1 if at or not with_plain_hash else 2
    assert found_in(lines) == [("changed", expected)]


@given(INNER, st.integers(1, 4))
def test_removed_lines_are_named_at_the_line_after_them(at: int, count: int) -> None:
    lines = linked()
    count = min(count, LINES - 1 - at)
    [found] = check_of(lines[:at] + lines[at + count :]).finish()
    assert (found.kind, found.place.line) == ("removed", at + 1)
    assert found.what.startswith(f"line {at + 1} is" if count == 1 else f"lines {at + 1} to {at + count} are")


@given(AT, AT)
def test_a_copy_of_a_line_is_reported_wherever_it_stands(of: int, before: int) -> None:
    lines = linked()
    found = found_in([*lines[:before], lines[of], *lines[before:]])
    if of in (before, before - 1):
        assert found == [("inserted", before + 1 + (of == before))]
    elif of < before:
        assert found == [("inserted", before + 1)]
    else:  # the copy came too early: the lines in between are late
        assert {kind for kind, _ in found} == {"moved", "inserted"}


@given(INNER, st.data())
def test_lines_that_changed_places_are_reported(one: int, data: st.DataObject) -> None:
    lines = linked()
    other = data.draw(st.integers(one + 1, LINES - 1))
    lines[one], lines[other] = lines[other], lines[one]
    found = found_in(lines)
    assert found
    assert {kind for kind, _ in found} == {"moved"}
    assert ("moved", other + 1) in found


@given(AT, st.data())
def test_a_write_that_was_cut_off_is_no_change(before: int, data: st.DataObject) -> None:
    lines = linked()
    cut = data.draw(st.integers(1, len(lines[before]) - 1))
    torn = data.draw(st.sampled_from([lines[before][:cut], lines[before][:cut] + b"\0" * 40, b"\0" * 64]))
    if torn.rstrip(b"\0").endswith(b"}"):
        return  # it ends where an inner object does
    assert found_in([*lines[:before], torn, *lines[before:]]) == [("torn", before + 1)]


@given(INNER, st.data())
def test_a_line_cut_short_on_purpose_is_missing_from_the_chain(at: int, data: st.DataObject) -> None:
    lines = linked()
    lines[at] = lines[at][: data.draw(st.integers(0, len(lines[at]) - 1))]
    assert ("removed", at + 2) in found_in(lines) or ("removed", at + 1) in found_in(lines)


def test_rubbish_counts_as_inserted_and_lines_from_before_links_are_counted() -> None:
    lines = linked(3)
    old = [body(90), b"rubbish", body(91)]
    check = check_of([*old, *lines[:2], b"rubbish", body(7), lines[2]])
    found = check.finish()
    assert [(one.kind, one.place.line) for one in found] == [
        ("without link", 2),
        ("inserted", 6),
        ("inserted", 7),
    ]
    assert check.unlinked == 2


def test_lines_from_before_the_key_count_until_the_first_line_with_the_key() -> None:
    plain = linked(3, b"")
    head = newest_head(b"\n".join(plain))
    assert head is not None
    keyed = linked(3, KEY, head)
    check = check_of([*plain, *keyed])
    assert check.finish() == []
    assert (check.without_key, check.newest_is_keyed) == (3, True)
    newest = newest_head(keyed[-1])
    assert newest is not None
    again = linked(2, b"", newest)
    assert found_in([*plain, *keyed, *again]) == [("changed", 7), ("changed", 8)]
    assert found_in(keyed, b"other key" * 5)[0] == ("changed", 1)


def test_lines_of_another_chain_and_with_another_beginning_do_not_fit() -> None:
    begun = Linker(KEY).begin("decisions-advisor")
    assert found_in(linked(3, KEY, begun)) == [("changed", 1)]
    assert found_in(linked()[4:]) == [("removed", 1)]


def test_two_processes_that_wrote_at_once_are_reported() -> None:
    lines = linked(3)
    head = newest_head(lines[0])
    assert head is not None
    other, _ = Linker(KEY).linked(body(50), head)
    assert found_in([*lines[:2], other[:-1], lines[2]]) == [("inserted", 3)]


def test_an_anchor_stands_for_the_lines_before_it() -> None:
    lines, linker = linked(), Linker(KEY)
    head = newest_head(lines[4])
    assert head is not None
    text = b'{"number":5,"own":"%b","seal":"%b"}' % (head.own, anchor_of(NAME, head, linker).seal.encode())
    anchor = read_anchor(text, NAME, linker)
    assert anchor is not None
    assert check_of(lines[5:], start=anchor.head).finish() == []
    # If pruning was interrupted before the files went, the anchor stands for more lines than have gone.
    assert check_of(lines[2:], start=anchor.head).finish() == []
    [found] = check_of(lines[6:], start=anchor.head).finish()
    assert found.what.startswith("line 6 is")
    assert read_anchor(text.replace(b"5", b"6", 1), NAME, linker) is None
    assert read_anchor(text, NAME, Linker(b"another" * 9)) is None
    assert read_anchor(text, "decisions-advisor", linker) is None
    for damaged in (b"rubbish", DEEP):
        assert read_anchor(damaged, NAME, linker) is None


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("decisions-20260101.jsonl", "decisions"),
        ("decisions-clients-login1-20260101.jsonl", "decisions-clients-login1"),
        ("decisions-20260101.jsonl.gz", ""),
        ("decisions.jsonl", ""),
    ],
)
def test_a_chain_is_named_like_its_files_without_their_days(file: str, name: str) -> None:
    assert chain_name(file) == name


def test_findings_come_in_the_order_of_the_lines() -> None:
    lines = linked()
    lines[8] = lines[8].replace(b"job 8", b"job 9")
    del lines[2]
    found: list[Found] = check_of(lines).finish()
    assert [(one.kind, one.place.line) for one in found] == [("removed", 3), ("changed", 8)]
