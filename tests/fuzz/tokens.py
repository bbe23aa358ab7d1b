"""The audit token: whatever is in a comment, and whatever a decision holds."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from accounting.decisions.decision import Decision
from accounting.decisions.token import (
    asked_request,
    carried_id,
    carried_word,
    find_token,
    format_token,
    granted_by,
    mark_recovery,
    replace_token,
)
from accounting.request import Grant, JobRequest
from slurm_plugin.policy.submission import opts_out
from tests.builders import decision, request
from tests.fuzz.corpus import found, text_of
from tests.fuzz.target import Target

NUMBER = re.compile(r"[0-9]{1,18}")
# The most that Slurm can count, and the least that can be requested.
LEAST, MOST = 1, 2**32 - 3
CUT = "\x1f"


def check(data: bytes) -> None:
    """Check that what is read in a comment stays the same when it is written again."""
    comment = text_of(data)
    token = find_token(comment)
    opts_out(comment)
    identity = carried_id(comment)
    assert not identity or comment.endswith(carried_word(identity))
    if token is not None:
        asked = asked_request(token, "alice")
        assert asked is None or isinstance(asked, JobRequest)
        assert isinstance(granted_by(token), Grant)
        marked = find_token(mark_recovery(comment, "out_of_memory", 3))
        assert marked is not None
        assert marked.recovered_at == 3
    made = made_decision(comment)
    written = format_token(made)
    assert written.isascii()
    assert " " not in written
    read = find_token(written)
    if made.id:
        assert read is not None
        assert read.granted == (amounts(made.grant) if made.applied else {})
        assert read.asked["cpus"] == made.request.cpus_per_task
        assert find_token(f"{comment} {written}") == read
        if token is not None:
            assert find_token(replace_token(comment, written)) == read


def amounts(grant: Grant) -> dict[str, int]:
    """Return a grant in the token's words."""
    words = {"cpus": grant.cpus_per_task, "mem": grant.mem_per_node_mib}
    return {word: value for word, value in words.items() if value is not None}


def made_decision(text: str) -> Decision:
    """Return a decision whose texts and numbers come from a text."""
    texts = [*text.split(CUT), *[""] * 6]
    numbers = [*(min(max(int(one), LEAST), MOST) for one in NUMBER.findall(text)), 1, 1, 1]
    asked = request(
        cpus_per_task=numbers[0], mem_per_node_mib=numbers[1], script_signature=texts[0], job_name=texts[1]
    )
    plain = decision(request=asked, applied=len(text) % 2 == 1)
    return msgspec.structs.replace(
        plain,
        id=texts[2],
        reason=texts[3],
        model=texts[4],
        rule=texts[5],
        grant=Grant(cpus_per_task=numbers[2], mem_per_node_mib=numbers[1]),
    )


def seeds() -> Iterator[bytes]:
    """Yield comments with tokens of each kind."""
    plain = format_token(made_decision(f"a1{CUT}fit{CUT}d1{CUT}resized{CUT}m{CUT}r 8000 4 2"))
    yield plain.encode()
    yield f"other words {plain} more rightsizer-cli=0123456789ab".encode()
    refused = f"{plain.replace('granted', 'would')};refused=coupled_field"
    yield f"x\x1fy\x1fid9\x1fwhy\x1fm\x1frule 4 4000 2 {refused}".encode()
    yield mark_recovery(plain, "timeout", 1).encode()
    yield f"rightsize=off {plain};was=abc;via=0123456789ab {plain}".encode()
    yield from found("tokens")


WORDS = tuple(
    word.encode()
    for word in (
        "rightsizer/1;", ";id=", ";mode=enforce", ";why=", ";asked=", ";granted=", "cpus:", "mem:", "tasks:",
        "mem-per-gpu:", "gpus-per-job:", "nodes:", ";refused=", ";recovery=", "out_of_memory:1", ";via=", ";was=",
        "rightsizer-cli=", "0123456789ab", "rightsize=off", "\u2028", "\xa0", CUT,
    )
)  # fmt: skip
TARGETS = (Target("tokens", check, seeds, share=250, words=WORDS, most_bytes=2048),)
