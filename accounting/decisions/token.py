"""The audit token: one word in a job's admin comment that says what was asked, granted, why and by which model.

    rightsizer/1;id=9f2c4d;mode=enforce;why=resized;asked=tasks:2,cpus:8,mem:8000;granted=cpus:2,mem:512;sig=…

If the hook cannot carry out a grant because the job's fields do not fit it, it writes the token with `would=` in
place of `granted=` and `;refused=REASON` at the end: the decision was not applied, whatever the journal says. If a
pending job is sized again, the new decision's token replaces the old one, and its `was=` names the old decision. If
a job failed because we cut it, and was requeued with its original request, `;recovery=CAUSE:RESTARTS` is appended,
with how often the job had been restarted when it failed. If another tool has replaced the admin comment in slurmdbd,
the store keeps that comment with the token of the decision that the journal has of the job, and `;known=journal`.

`cpus` are per task, `mem` is MiB per node, `gpus` are per node; the other words say what they are per. Other tools
write to the same comment, so the token has no spaces and is found anywhere in it. slurmctld is the only other place
that knows the user's original request, and it forgets.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import attrgetter

import msgspec

from accounting.decisions.decision import Decision
from accounting.request import Grant, JobRequest
from accounting.units import whole

PREFIX = "rightsizer/1"
NOTHING = Grant()
_TOKEN = re.compile(r"(?:^|\s)rightsizer/1;(\S+)")
_REFUSAL = re.compile(r"[a-z_]{1,40}")
_RECOVERY = re.compile(r"([a-z_]{1,40}):(\d{1,9})")
# A client's decision travels to slurmctld as the last word of the job's comment.
_CARRIED = re.compile(r"(?:^|\s)rightsizer-cli=([0-9a-f]{12})\Z")
_UNSAFE = re.compile(r"[^!-:<-~]")  # white space, `;` and everything that is not printable ASCII
_ASKED = {
    "tasks": "num_tasks",
    "cpus": "cpus_per_task",
    "mem": "mem_per_node_mib",
    "mem-per-cpu": "mem_per_cpu_mib",
    "mem-per-gpu": "mem_per_gpu_mib",
    "gpus": "gpus_per_node",
    "gpus-per-job": "gpus_per_job",
    "gpus-per-task": "gpus_per_task",
    "nodes": "nodes",
}
# What a decision and a token of the same job have in common.
AMOUNTS = tuple(_ASKED.values())


def _words_of(
    kind: type[JobRequest | Grant],
) -> tuple[tuple[str, ...], Callable[[object], tuple[int | None, ...]]]:
    """Return the words for a kind's amounts, and a function that reads these amounts from an instance."""
    fields = {word: field for word, field in _ASKED.items() if field in kind.__struct_fields__}
    return tuple(fields), attrgetter(*fields.values())


_WORDS_OF = {kind: _words_of(kind) for kind in (JobRequest, Grant)}
# Slurm counts in 32 bits, with the two highest numbers meaning "none"; memory in bytes fits into 63 bits. These
# bound a job's totals too: we did not write a number that Slurm cannot hold.
_MOST_COUNT, _MOST_MIB = 2**32 - 3, 2**43 - 1
_AT_LEAST_ONE = ("tasks", "cpus", "nodes")


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a token. `asked`, `granted` and `would` map the words of the token to whole numbers.

    `would` is what was not granted, because of observe mode or a refusal. `refused` is why the hook did not carry
    out the decision, '' if it did. `recovered_at` is how often the job had been restarted when it failed and was
    requeued with its original request; None if that never happened. `from_journal`: Slurm's accounting does not have
    the token any more.
    """

    decision_id: str
    mode: str
    reason: str
    asked: dict[str, int]
    granted: dict[str, int]
    model: str = ""
    signature: str = ""
    refused: str = ""
    via: str = ""
    was: str = ""
    recovered_at: int | None = None
    would: dict[str, int] = {}
    rule: str = ""
    from_journal: bool = False


def carried_word(decision_id: str) -> str:
    """Return the word that carries the id of a client's decision in the job's comment."""
    return f"rightsizer-cli={decision_id}"


def carried_id(comment: str) -> str:
    """Return the id of the client's decision in a comment, '' if there is none."""
    found = _CARRIED.search(comment)
    return found[1] if found else ""


def format_token(decision: Decision) -> str:
    """Return the token of a decision: printable ASCII without white space."""
    granted, would = (decision.grant, NOTHING) if decision.applied else (NOTHING, decision.grant)
    parts = (
        ("id", _safe(decision.id)),
        ("mode", decision.mode),
        ("why", _safe(decision.reason)),
        ("asked", _amounts(decision.request)),
        ("granted", _amounts(granted)),
        ("would", _amounts(would)),
        ("rule", _safe(decision.rule)),
        ("model", _safe(decision.model)),
        ("sig", _safe(decision.request.script_signature)),
        ("via", _safe(decision.via)),
        ("was", _safe(decision.replaces)),
    )
    return PREFIX + "".join([f";{key}={value}" for key, value in parts if value])


def _safe(text: str) -> str:
    return _UNSAFE.sub("_", text)


def _amounts(source: JobRequest | Grant) -> str:
    words, values = _WORDS_OF[type(source)]
    pairs = zip(words, values(source), strict=True)
    return ",".join([f"{word}:{value}" for word, value in pairs if value is not None])


def find_token(comment: str) -> Token | None:
    """Return the last token in a comment; None if there is none or it is invalid."""
    found = _TOKEN.findall(comment)
    if not found:
        return None
    parts = dict(part.split("=", 1) for part in found[-1].split(";") if "=" in part)
    asked, grant, would = (_numbers(parts.get(name, "")) for name in ("asked", "granted", "would"))
    if "id" not in parts or asked is None or grant is None or would is None or not _is_refusal(parts):
        return None
    if not fits_slurm(_request("", asked)):
        return None
    return Token(
        decision_id=parts["id"],
        mode=parts.get("mode", ""),
        reason=parts.get("why", ""),
        asked=asked,
        granted=grant,
        model=parts.get("model", ""),
        signature=parts.get("sig", ""),
        refused=parts.get("refused", ""),
        via=parts.get("via", ""),
        was=parts.get("was", ""),
        recovered_at=_recovered_at(parts.get("recovery", "")),
        would=would,
        rule=parts.get("rule", ""),
        from_journal=parts.get("known") == "journal",
    )


def replace_token(comment: str, token: str) -> str:
    """Return a comment with its last token, the one `find_token` reads, replaced; ValueError if it has none."""
    last = _last(comment)
    return comment[: last.start(1) - len(PREFIX) - 1] + token + comment[last.end(1) :]


def mark_recovery(comment: str, cause: str, restarts: int) -> str:
    """Return a comment whose last token says that its job was requeued as first asked; ValueError without a token."""
    end = _last(comment).end(1)
    return f"{comment[:end]};recovery={cause}:{restarts}{comment[end:]}"


def with_journalled(comment: str, decision: Decision) -> str:
    """Return a comment that has lost its token, with the token that a decision in the journal gives."""
    return f"{comment} {format_token(decision)};known=journal"


def _last(comment: str) -> re.Match[str]:
    found = list(_TOKEN.finditer(comment))
    if not found:
        raise ValueError("a comment without a token")
    return found[-1]


def _recovered_at(text: str) -> int | None:
    found = _RECOVERY.fullmatch(text)
    return int(found[2]) if found else None


def _is_refusal(parts: dict[str, str]) -> bool:
    """Whether a token with `refused` gives a valid reason and grants nothing; true for a token without `refused`."""
    if "refused" not in parts:
        return True
    return "granted" not in parts and _REFUSAL.fullmatch(parts["refused"]) is not None


def _numbers(text: str) -> dict[str, int] | None:
    numbers: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        word, _, value = part.partition(":")
        number = whole(value)
        most = _MOST_MIB if word.startswith("mem") else _MOST_COUNT
        if word not in _ASKED or number is None or not int(word in _AT_LEAST_ONE) <= number <= most:
            return None
        numbers[word] = number
    return numbers


def fits_slurm(request: JobRequest) -> bool:
    """Whether Slurm can hold the totals of a request."""
    return max(request.cpus, request.gpus or 0) <= _MOST_COUNT and (request.mem_mib or 0) <= _MOST_MIB


def asked_request(token: Token, user: str) -> JobRequest | None:
    """Return what the user asked for, as far as the token records it; None if it records nothing."""
    return _request(user, token.asked) if token.asked else None


def _request(user: str, asked: dict[str, int]) -> JobRequest:
    return msgspec.convert(
        {"user": user, **{_ASKED[word]: value for word, value in asked.items()}}, JobRequest
    )


def tells_of(asked: JobRequest | None, decision: Decision) -> bool:
    """Whether the request in a job's token is the decision's: the same user, the same amounts."""
    return (
        asked is not None
        and decision.request.user == asked.user
        and all(getattr(decision.request, name) == getattr(asked, name) for name in AMOUNTS)
    )


def granted_by(token: Token) -> Grant:
    """Return what a token says was granted; empty if it was not carried out."""
    return _grant(token.granted)


def would_grant(token: Token) -> Grant:
    """Return what a token says would have been granted."""
    return _grant(token.would)


def _grant(amounts: dict[str, int]) -> Grant:
    return msgspec.convert({_ASKED[word]: value for word, value in amounts.items()}, Grant)
