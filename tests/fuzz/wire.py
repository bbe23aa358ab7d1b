"""The wire: request lines, and the whole way from such a line to the reply and the journal."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from accounting.decisions.decision import decode_decision
from accounting.decisions.token import find_token
from accounting.request import Grant
from models.training import training
from models.versions import registry
from slurm_plugin.config.settings import Config
from slurm_plugin.policy.facts import MemoryTerms, Minimum, Partition, SiteFacts
from slurm_plugin.policy.submission import Submission
from slurm_plugin.service.answers import Answers
from slurm_plugin.service.clients import make_client_handler
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.protocol import (
    ClientRequest,
    Reply,
    Request,
    decode_client_request,
    decode_reply,
    decode_request,
    encode_request,
)
from tests.builders import past, submission
from tests.fuzz.corpus import found, frames, scratch
from tests.fuzz.target import Target
from tests.slurm_plugin.service.asking import json_line, model_in_use

MOST_REPLY_BYTES, MOST_TEXT_BYTES, MOST_JOURNAL_BYTES = 16 * 1024, 512, 2**20
PRINTABLE = re.compile(r"[ -~]*\Z")
UID = 1000
# One line in so many is rehearsed.
REHEARSED = 8
KINDS = (
    {"mem_per_node_mib": 8000, "gpus_per_node": 4},
    {"mem_per_cpu_mib": 1000, "gpus_per_job": 4, "num_tasks": 1},
    {"mem_per_gpu_mib": 2000, "gpus_per_task": 4},
    {"nodes_min": 2, "nodes_max": 2, "ntasks_per_node": 1, "partition": "main,side", "qos": "least"},
    {"time_limit_min": 60, "comment": "rightsizer-cli=0123456789ab", "batch": False},
)


def check_lines(line: bytes) -> None:
    """Check both decoders: each gives a request or words, and a request is encoded to itself."""
    for request in (decode_request(line), decode_client_request(line)):
        if isinstance(request, str):
            continue
        again = (decode_request if isinstance(request, Request) else decode_client_request)(
            encode_request(request)
        )
        assert again == request


def seeds() -> Iterator[bytes]:
    """Yield the golden requests, and jobs that the model knows."""
    yield from (json_line(frame["job"]) for frame in frames()["requests"])
    yield from (json_line(frame["job"], "cli") for frame in frames()["cli_requests"] if frame.get("job"))
    yield from known_jobs()
    yield from found("answers")


def known_jobs() -> Iterator[bytes]:
    """Yield requests that are cut, in each form of request."""
    for kind in KINDS:
        job = msgspec.to_builtins(submission(cpus_per_task=8, **kind))
        told = {name: value for name, value in job.items() if value not in (None, "", False)}
        for name, batch in (("submit", job["batch"]), ("cli", False)):
            yield json_line({**told, "other": [], "batch": batch}, name)


class Service:
    """The service's way from line to line, with a real model and a real journal."""

    def __init__(self, folder: Path) -> None:
        attempts = past(60)
        models = folder / "models"
        registry.promote(models, training.save(training.train(attempts, 50), models, 0))
        config = msgspec.convert(
            {
                "mode": "enforce",
                "models": {"directory": str(models)},
                "policy": {"def_mem_per_cpu_mib": 0, "most_slowdown": 0.2},
                "rules": [{"name": "r1", "partition": ["side*"], "percent": 50, "headroom": 0.2}],
            },
            Config,
        )
        model = model_in_use(config)
        assert model.predictor is not None
        facts = CurrentFacts(config)
        facts.facts = SiteFacts(
            qos_minimums={"least": Minimum(cpus=2, mem_mib=300)},
            partitions={"main": Partition(memory=MemoryTerms(max_per_cpu_mib=4000), is_default=True)},
            memory=MemoryTerms(),
            cpus_per_core={"main": 2},
        )
        journal = Journal(folder / "journal")
        self._answers = Answers(config, model, facts, journal)
        self._client = make_client_handler(config, model, facts, journal)
        (self._written,) = (folder / "journal").iterdir()
        self.granted = 0

    def check(self, line: bytes) -> None:
        """Answer as for the hook, and as for a client."""
        sent: list[bytes] = []
        request = decode_request(line)
        if self._answers.handle(line, sent.append):
            assert isinstance(request, Request)
            (reply,) = sent
            self._check_reply(request, decode_reply(reply), reply)
            if zlib.crc32(line) % REHEARSED == 0:
                assert self._answers.rehearse(line, sent.append)
                assert decode_reply(sent[1]).grant == decode_reply(reply).grant
        else:
            assert isinstance(request, str)
            assert not sent
        asked = decode_client_request(line)
        answer = self._client(line, UID, "alice")
        if isinstance(asked, ClientRequest) and answer is not None:
            self._check_reply(asked, decode_reply(answer), answer)

    def _check_reply(self, request: Request | ClientRequest, reply: Reply, line: bytes) -> None:
        assert (reply.v, reply.id) == (1, request.id)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        for text in (reply.token, reply.message):
            assert PRINTABLE.match(text)
            assert len(text) <= MOST_TEXT_BYTES
        assert len(line) <= MOST_REPLY_BYTES + 6 * len(request.id)
        self.granted += bool(reply.grant)
        never_above(reply.grant, request.job)
        token = find_token(reply.token)
        assert token is not None or isinstance(request, ClientRequest)
        decision = decode_decision(self._last_journalled())
        assert decision is not None
        assert decision.grant == reply.grant or not decision.applied

    def _last_journalled(self) -> bytes:
        content = self._written.read_bytes()
        line = content[content.rfind(b"\n", 0, -1) + 1 :]
        if len(content) > MOST_JOURNAL_BYTES // 64:
            with self._written.open("r+b") as file:
                file.truncate(0)
        return line


def never_above(grant: Grant, job: Submission) -> None:
    """Check what the hook checks too: nothing that was not requested, and amounts from 1 to the request."""
    for name, value in msgspec.structs.asdict(grant).items():
        asked = getattr(job, name)
        assert value is None or (asked is not None and 1 <= value <= asked), (name, value, asked)


@cache
def service() -> Service:
    """Return the single service of this process; training its model takes a second."""
    return Service(scratch("answers"))


def check_answers(line: bytes) -> None:
    """Check all that the service does with a line."""
    service().check(line)


WORDS = (
    *(f'"{name}":'.encode() for name in Submission.__struct_fields__),
    b'"alice"', b"null", b"true", b"false", b'"submit"', b'"cli"', b'"fit"', b"-1", b"0", b"18446744073709551615",
    b"\\u0000", b"\\ud800", b"1e99",
)  # fmt: skip
TARGETS = (
    Target("requests", check_lines, seeds, share=300, words=WORDS),
    Target("answers", check_answers, seeds, share=60, words=WORDS),
)
