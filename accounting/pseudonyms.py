"""Replaces names of people and of their work by pseudonyms made with a site's key. Pure: no file, no clock.

A pseudonym is the start of the name's HMAC-SHA-256: the same name always gives the same pseudonym, and without
the key nobody can find the name. Job names change word by word and keep their numbers, endings and separators,
so that `train-0012` and `train-0013` remain alike; words that reveal nothing (`wrap`, `sbatch`) stay. Of
comments, only our own words stay: they hold no names. Names of clusters, partitions, QOS, nodes and the site's
own rules are kept.
"""

from __future__ import annotations

import base64
import functools
import hmac
import re
from collections.abc import Callable, Mapping

import msgspec
import pyarrow as pa

from accounting.decisions.decision import Decision, decode_decision, encode_decision
from accounting.records import JobRow, Quarantined
from accounting.request import JobRequest
from accounting.units import whole

# Fifty bits: among a million names, no two are expected to share a pseudonym.
CHARS = 10
WORD_CHARS = 12
REMEMBERED = 100_000

# The words of a job name: everything but numbers and punctuation.
_WORD = re.compile(r"(?:[^\W\d_]|[^\x00-\x7f\d])+")
# Our own words in comments: the token, a client's decision, and a user's opt-out.
_OURS = re.compile(
    r"(?:^|(?<=\s))(?:rightsizer/1;\S+|rightsizer-cli=[0-9a-f]{12}\Z|rightsize=[a-z]+(?=\s|\Z))"
)
_BY = re.compile(r"^(\S+ by )(\S+)$")
# How a decision's reason names the jobs that it rests on (models/past/families.py). What follows may be any job's name.
_JOBS_OF = re.compile(r"\b(jobs?) of .*", re.DOTALL)
# Letters only: a digit in a word would be taken for one of the job name's numbers.
_LETTERS = bytes.maketrans(b"0123456789abcdef", b"abcdefghijklmnop")


class Pseudonyms:
    """Turns names into pseudonyms; `plain_words` are lower-case words of job names that stay as they are.

    `plain_name` removes machine-generated parts from a job name: pseudonyms of these would make each job's name unique.
    """

    def __init__(
        self,
        key: bytes,
        plain_words: frozenset[str] = frozenset(),
        plain_name: Callable[[str], str] = str,
    ) -> None:
        self._key = key
        self._plain_name = plain_name
        self._plain_words = plain_words
        self._word = functools.lru_cache(REMEMBERED)(self._hidden_word)
        self.columns: Mapping[str, Callable[[str], str]] = {
            "user": functools.lru_cache(REMEMBERED)(lambda name: self._name("user", name)),
            "account": functools.lru_cache(REMEMBERED)(lambda name: self._name("account", name)),
            "job_name": self.job_name,
            "comment": self.comment,
            "admin_comment": self.comment,
            "state": state_hidden_by(lambda uid: self._name("uid", uid)),
            "document": self.document,
        }

    @property
    def mark(self) -> str:
        """An identifier of the key that reveals nothing of the key."""
        return self._name("key", "mark")

    def user(self, name: str) -> str:
        """Return a user's pseudonym; '' for ''."""
        return self.columns["user"](name)

    def account(self, name: str) -> str:
        """Return an account's pseudonym; '' for ''."""
        return self.columns["account"](name)

    def job_name(self, name: str) -> str:
        """Return a job name with every word replaced; names that differed only in numbers still do."""
        return _WORD.sub(lambda found: self._word(found[0]), self._plain_name(name).lower())

    def comment(self, text: str) -> str:
        """Return our own words of a comment, preceded by one pseudonym for all other words, if there are any."""
        ours = _OURS.findall(text)
        others = _OURS.sub("", text).strip()
        return " ".join([*([self._name("comment", others)] if others else []), *ours])

    def document(self, text: str) -> str:
        """Return a decision's journal line with its request under pseudonyms; '' if the line is damaged."""
        decision = decode_decision(text.encode())
        return "" if decision is None else encode_decision(self.decision(decision)).decode().rstrip("\n")

    def decision(self, decision: Decision) -> Decision:
        """Return a decision with its request under pseudonyms, and with no other name in its reasons."""
        request = self.request(decision.request)
        return msgspec.structs.replace(
            decision,
            request=request,
            dimensions=tuple(
                msgspec.structs.replace(one, reason=_JOBS_OF.sub(rf"\1 of {request.user}", one.reason))
                for one in decision.dimensions
            ),
        )

    def request(self, request: JobRequest) -> JobRequest:
        """Return a request under pseudonyms."""
        return msgspec.structs.replace(
            request,
            user=self.user(request.user),
            account=self.account(request.account),
            job_name=self.job_name(request.job_name),
        )

    def row(self, row: JobRow) -> JobRow:
        """Return sacct's row of an attempt under pseudonyms."""
        hidden = {
            name: change(getattr(row, name))
            for name, change in self.columns.items()
            if name in JobRow.__struct_fields__
        }
        return msgspec.structs.replace(row, **hidden)

    def quarantined(self, item: Quarantined) -> Quarantined:
        """Return rejected input without its text, which may hold any name. It can then not be tried again."""
        return msgspec.structs.replace(item, line=self._name("line", item.line))

    def table(self, table: pa.Table) -> pa.Table:
        """Return a table in which the columns that hold names, found by column name, are replaced; nulls stay."""
        for place, name in enumerate(table.column_names):
            if name in self.columns:
                hidden = _changed(table.column(place), self.columns[name])
                table = table.set_column(place, table.schema.field(place), hidden)
        return table

    def _name(self, kind: str, name: str) -> str:
        if not name:
            return ""
        return f"{kind}-{base64.b32encode(self._digest(kind, name)).decode().lower()[:CHARS]}"

    def _hidden_word(self, word: str) -> str:
        if word in self._plain_words:
            return word
        return self._digest("word", word).hex().encode().translate(_LETTERS).decode()[:WORD_CHARS]

    def _digest(self, kind: str, name: str) -> bytes:
        # A kind holds no NUL, so that no two pairs of kind and name give the same input.
        return hmac.digest(self._key, f"{kind}\x00{name}".encode(errors="surrogatepass"), "sha256")


def state_hidden_by(hide: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that replaces the uid in `CANCELLED by 1000` and leaves other states unchanged."""

    def state(text: str) -> str:
        found = _BY.match(text)
        return f"{found[1]}{hide(found[2])}" if found and whole(found[2]) is not None else text

    return state


def _changed(column: pa.ChunkedArray, change: Callable[[str], str]) -> pa.Array:
    """Change each distinct text once."""
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    hidden = [None if text is None else change(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(hidden, pa.string()).take(encoded.indices)
