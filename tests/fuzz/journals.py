"""Files of our own that something damaged: lines that are skipped, and states that are refused with an error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from accounting.decisions.decision import decode_decision, encode_decision
from accounting.errors import ModelError, StoreError
from accounting.gpu_spool.samples import parse_line
from accounting.journal.advice import AdvisedJob, Cycle, decode_cycle, encode_cycle, read_cycles
from accounting.journal.files import read_journal
from models.demand.prediction import ChainSettings, Predictor
from models.past.history import History
from models.past.recent import decode_finished, encode_finished, finished
from models.versions.artefact import MANIFEST, read_manifest
from models.versions.feed import FeedReader
from models.versions.succession import Promotion, decode_promotions, encode_promotion
from slurm_plugin.advisor import state_file
from slurm_plugin.recovery.journal import Entry, Journal
from slurm_plugin.slurm.factor_log import STATE, FactorLog
from slurm_plugin.slurm.factor_state import Entry as Factor
from slurm_plugin.slurm.factor_state import FactorState
from slurm_plugin.slurm.lease import Clock, Lease
from tests.builders import attempt, decision, gpu_use, request
from tests.fuzz.corpus import found, scratch
from tests.fuzz.target import Target

Reader = Callable[[Path, bytes], None]


def _feed(folder: Path, data: bytes) -> None:
    """Join a job of the feed, and check that it does not stop the next prediction."""
    feed = folder / "recent"
    feed.mkdir(exist_ok=True)
    (feed / "jobs-20260101.jsonl").write_bytes(data + b"\n")
    part = FeedReader(folder).read_on()
    for one in part.jobs:
        assert decode_finished(encode_finished(one)) is not None
        predictor = Predictor("fuzz", History(5), {}, ChainSettings())
        predictor.join(one.request, one.job)
        predictor.predict(one.request)
        predictor.wall_time(one.request)


def _decisions(folder: Path, data: bytes) -> None:
    (folder / "decisions-20260101.jsonl").write_bytes(data + b"\n")
    (part,) = read_journal(folder, {})
    for one, _ in part.taken:
        assert decode_decision(encode_decision(one)) == one
    assert len(part.taken) + len(part.quarantined) == sum(map(bool, data.split(b"\n")))


def _cycles(folder: Path, data: bytes) -> None:
    (folder / "cycles-20260101.jsonl").write_bytes(data + b"\n")
    for part in read_cycles(folder, {}):
        for one in part.taken:
            assert decode_cycle(encode_cycle(one)) == one


def _recoveries(folder: Path, data: bytes) -> None:
    (folder / "recoveries-20260101.jsonl").write_bytes(data + b"\n")
    Journal(folder).newest()


def _promotions(_folder: Path, data: bytes) -> None:
    for one in decode_promotions(data.splitlines()):
        assert decode_promotions([encode_promotion(one)]) == [one]


def _samples(_folder: Path, data: bytes) -> None:
    use, reason = parse_line(data)
    assert (use is None) == bool(reason)


def _state(folder: Path, data: bytes) -> None:
    (folder / state_file.NAME).write_bytes(data)
    state_file.write_state(folder, state_file.read_state(folder))


def _factors(folder: Path, data: bytes) -> None:
    (folder / STATE).write_bytes(data)
    with contextlib.suppress(StoreError):
        FactorLog(folder, "blue").read()


def _manifest(folder: Path, data: bytes) -> None:
    (folder / MANIFEST).write_bytes(data)
    with contextlib.suppress(ModelError):
        read_manifest(folder)


READERS: tuple[Reader, ...] = (
    _feed,
    _decisions,
    _cycles,
    _recoveries,
    _promotions,
    _samples,
    _state,
    _factors,
    _manifest,
)


def check(data: bytes) -> None:
    """Read a file: the first byte of the input chooses the file, the rest is its content."""
    if data:
        READERS[data[0] % len(READERS)](scratch("journals"), data[1:])


def seeds() -> Iterator[bytes]:
    """Yield one whole file of each kind, and nothing but brackets."""
    one = finished(attempt(gpus=1), 1e9)
    assert one is not None
    job = AdvisedJob(job_id=1, submit_s=1.0, before=0, after=5, base_start_s=10.0, reason="moved")
    cycle = Cycle(
        id="c1", time_s=1.0, cluster="blue", objective="wait", order="short", why="", gain=0.1, pending=1, running=0,
        applied=True, jobs=(job,), tried=(("short", 1.0),),
    )  # fmt: skip
    entry = Entry(
        job_id=7,
        restarts=0,
        what="lost",
        time_s=1.0,
        cause="timeout",
        user="ann",
        decision_id="d1",
        why="gone",
    )
    factors = FactorState("blue", (Factor(3, 0, (5, 6)),), Lease(Clock(1.0, "b", 2.0), 600.0))
    promoted = Promotion(time_s=1.0, who="root", version="v1", why="gate", before=None)
    contents = (
        encode_finished(one),
        encode_decision(decision(dimensions=(), request=request(num_tasks=3))),
        encode_cycle(cycle),
        msgspec.json.encode(entry),
        encode_promotion(promoted),
        msgspec.json.encode(gpu_use()),
        msgspec.json.encode(state_file.State()),
        msgspec.json.encode(factors),
        b'{"format": 3, "version": "v1", "digests": {"history.json": "00"}, "growth": {}}',
    )
    for number, content in enumerate(contents):
        yield bytes([number]) + content
        yield bytes([number]) + b'{"x":' + b"[" * 3000
    yield from found("journals")


WORDS = (
    b'{"', b'":', b"null", b"1e308", b"-1", b"-1e308", b"1e-320", b"99999999999999999999", b"[[[[[[[[", b'{"a":{"a":',
    b"\\ud800", b'"told_s":', b'"request":', b'"job":', b'"num_tasks":', b'"entries":', b'"shadow":', b'"lease":',
)  # fmt: skip
TARGETS = (Target("journals", check, seeds, share=200, words=WORDS),)
