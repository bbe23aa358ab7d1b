"""A trained model on disk: how it is checked and loaded. It needs what the service needs, and nothing heavier.

    <version>/manifest.json     what it is, what it was trained on, the SHA-256 of every other file
    <version>/history.json      the recent past of every family
    <version>/<dimension>.onnx  the growth model of a dimension, as it is served
    <version>/<dimension>.ubj   the same model in XGBoost's own format, for analysts
    <version>/<dimension>.splits.json  the values of each feature at which any of its trees splits, in rising order
    <version>/card.md, card.json  what a person should know before trusting it (judging/card.py)
    <version>/golden.json       inputs with the outputs that training saw: the self-test

A model is loaded only if every digest matches and the self-test passes. The digests are in the manifest: anybody who
can write both can write any model. Therefore a promoted version must still have the manifest that it was promoted
with (registry.py).
"""

from __future__ import annotations

import errno
import hashlib
import math
import stat
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy
import onnxruntime

from accounting.damage import UNREADABLE
from accounting.errors import ModelError, UnreadModelError
from models.demand.chain import Growth, GrowthModel
from models.demand.features import FEATURES
from models.demand.prediction import ChainSettings, Predictor
from models.past.families import Family, renamed
from models.past.held import Held, HeldByUsers
from models.past.history import History
from models.past.jobs import Learned, PastJob

FORMAT = 3
# These say that the path itself is wrong. All other failures (EMFILE, ENOMEM, EIO, EACCES, ESTALE, …) are the
# machine's.
LIES_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
# A larger file is none of ours: the history of a million families takes a few gigabytes.
MOST_FILE_BYTES = 8 * 2**30
MANIFEST, HISTORY, GOLDEN = "manifest.json", "history.json", "golden.json"
CARD_JSON, CARD_MD = "card.json", "card.md"
# ONNX Runtime adds tree outputs in float32; so does XGBoost, in another order.
SELF_TEST_TOLERANCE = 1e-4
# No more different answers of a growth model than this are cached.
MOST_ANSWERS = 4096
# In the history file: no user's text can hold these, since JSON has no line ends within texts.
FAMILIES_BEGIN, FAMILY_END = b',\n "families": [\n', b"\n  ]"

Decoded = TypeVar("Decoded")
_onnx: Any = onnxruntime.capi.onnxruntime_pybind11_state
ONNX_FAILURES = (
    _onnx.Fail,
    _onnx.InvalidProtobuf,
    _onnx.InvalidGraph,
    _onnx.InvalidArgument,
    _onnx.NotImplemented,
    _onnx.RuntimeException,
)


class Offset(msgspec.Struct, frozen=True, kw_only=True):
    """What to add to a growth model so that no more than a share `failures` of later jobs exceeds it."""

    failures: float
    log_growth: float


class TrainedOn(msgspec.Struct, frozen=True, kw_only=True):
    """A growth model: the rows it learned from, the quantile it predicts, and its calibration.

    `calibrated_on` settled jobs came after those rows. `offsets` are in rising order of failures, without the shares
    for which these jobs were too few. Nothing was learned from the users in `apart`, and nothing is said of them
    (training/weights.py).
    """

    rows: int
    quantile: float
    calibrated_on: int
    offsets: tuple[Offset, ...]
    apart: tuple[str, ...] = ()

    def offset(self, most_failures: float) -> float | None:
        """Return what to add if `most_failures` may fail; None if no share up to that was calibrated."""
        known = [offset.log_growth for offset in self.offsets if offset.failures <= most_failures]
        return known[-1] if known else None

    def calibrated(self, predict: GrowthModel, most_failures: float) -> Growth:
        """Return the growth model, with what to add to it if `most_failures` may fail."""
        return Growth(predict, self.offset(most_failures), frozenset(self.apart))


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an artefact is. Times are unix seconds; it was learned from `attempts`, of `families`.

    `seal` is the SHA-256 of the manifest without the seal; `digests` are those of the other files.
    """

    format: int
    version: str
    created_s: int
    first_submit_s: int
    last_end_s: int
    attempts: int
    families: int
    recent_jobs: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    gpu_sources: tuple[str, ...]
    features: tuple[str, ...]
    growth: dict[Learned, TrainedOn]
    libraries: dict[str, str]
    digests: dict[str, str]
    seal: str = ""


class Formatted(msgspec.Struct, frozen=True, kw_only=True):
    """What the manifest of any format says."""

    format: int


class Golden(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the self-test; None stands for NaN."""

    dimension: Learned
    features: tuple[float | None, ...]
    log_growth: float


class StoredFamily(msgspec.Struct, frozen=True, array_like=True):
    """One family of the history file, with the jobs that are remembered beside its recent ones (History.beside)."""

    family: Family
    jobs: tuple[PastJob, ...]
    beside: tuple[PastJob, ...] = ()


class StoredHeld(msgspec.Struct, frozen=True, kw_only=True):
    """The history file without its families."""

    held: dict[Learned, Held]


class StoredHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history file: what all jobs held, and each family's recent past."""

    held: dict[Learned, Held]
    families: tuple[StoredFamily, ...]


class OnnxGrowth:
    """A growth model served by ONNX Runtime, which is called once for all features that its trees cannot tell apart.

    `splits` are the values at which the trees split each feature. After an idle moment, a cached answer comes some
    100 µs sooner.
    """

    def __init__(self, content: bytes, splits: Sequence[Sequence[float]]) -> None:
        options = onnxruntime.SessionOptions()
        # Rows come one at a time: a thread pool would cost more than it computes.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name
        self._splits = splits
        self._answers: dict[tuple[int, ...], float] = {}

    def __call__(self, features: Sequence[float]) -> float:
        """Return the logarithm of next use over the family's maximum, at the trained quantile."""
        # As the trees compare them: in float32.
        places = tuple(map(place, self._splits, array("f", features)))
        known = self._answers.get(places)
        if known is None:
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()
            known = self._answers[places] = self.compute(features)
        return known

    def compute(self, features: Sequence[float]) -> float:
        """Return what the trees say, without the cache."""
        row = numpy.asarray([features], dtype=numpy.float32)
        return float(self._session.run(None, {self._input: row})[0].reshape(-1)[0])


def place(splits: Sequence[float], value: float) -> int:
    """Return between which splits a value lies; -1 for NaN, which has a branch of its own.

    A tree goes left if the value is less than its split, so two values in the same place take the same branches.
    """
    return -1 if value != value else bisect_right(splits, value)


def read_manifest(folder: Path, digest: str = "") -> Manifest:
    """Return the manifest of an artefact; ModelError if it is missing, damaged or of another format.

    If a digest is given (SHA-256 of the file), the manifest must match it to the byte.
    """
    content = _content(folder / MANIFEST)
    if digest not in ("", hashlib.sha256(content).hexdigest()):
        raise ModelError(
            f"the model in {folder} is not the promoted one: {MANIFEST} was changed; run `rightsizer train`"
        )
    other = f"the model in {folder} was made by another version; run `rightsizer train`"
    try:
        # Checked first: another format may have other fields.
        if msgspec.json.decode(content, type=Formatted).format != FORMAT:
            raise ModelError(other)
        manifest = msgspec.json.decode(content, type=Manifest)
    except UNREADABLE as error:
        raise ModelError(
            f"the model in {folder} is damaged: {MANIFEST}: {error}; run `rightsizer train`"
        ) from None
    if manifest.features != FEATURES:
        raise ModelError(other)
    if manifest != sealed(manifest):
        raise ModelError(f"the model in {folder} is damaged: {MANIFEST} was changed; run `rightsizer train`")
    return manifest


def sealed(manifest: Manifest) -> Manifest:
    """Return the manifest with its seal."""
    bare = msgspec.structs.replace(manifest, seal="")
    return msgspec.structs.replace(bare, seal=hashlib.sha256(msgspec.json.encode(bare)).hexdigest())


def load_predictor(folder: Path, settings: ChainSettings, digest: str = "") -> Predictor:
    """Check an artefact and return its predictor; ModelError if any check fails.

    `digest`, if given, is that of the manifest it must have. If this machine cannot read the artefact now, the error
    is an UnreadModelError.
    """
    try:
        return _load_predictor(folder, settings, digest)
    except MemoryError:
        raise UnreadModelError(
            f"there is too little memory for the model in {folder}; a running service tries again"
        ) from None


def _load_predictor(folder: Path, settings: ChainSettings, digest: str) -> Predictor:
    manifest = read_manifest(folder, digest)
    content = read_all(folder, manifest)
    try:
        history = _history(content[HISTORY], manifest.recent_jobs)
        growth = {dimension: _growth(content, dimension) for dimension in manifest.growth}
        golden = _decode(content[GOLDEN], tuple[Golden, ...])
    except (KeyError, *UNREADABLE) as error:
        raise ModelError(f"the model in {folder} is damaged: {error}; run `rightsizer train`") from None
    _self_test(folder, golden, growth)
    calibrated = {
        dimension: manifest.growth[dimension].calibrated(model, settings.most_failures)
        for dimension, model in growth.items()
    }
    return Predictor(manifest.version, history, calibrated, settings)


def read_all(folder: Path, manifest: Manifest) -> dict[str, bytes]:
    """Return every file of an artefact by name; ModelError at the first whose digest does not match."""
    outside = [name for name in manifest.digests if Path(name).name != name]
    if outside:
        raise ModelError(
            f"the model in {folder} names a file outside it: {outside[0]!r}; run `rightsizer train`"
        )
    return {name: read_checked(folder / name, digest) for name, digest in manifest.digests.items()}


def read_part(folder: Path, name: str) -> bytes | None:
    """Return a file of an artefact after checking its digest; None if the artefact has no such file."""
    digest = read_manifest(folder).digests.get(name)
    return None if digest is None else read_checked(folder / name, digest)


def read_card(folder: Path, name: str) -> bytes:
    """Return a file of a model's card; ModelError if the model was made without one."""
    content = read_part(folder, name)
    if content is None:
        raise ModelError(f"model {folder.name} was made without a card; `rightsizer train` makes one with it")
    return content


def read_checked(file: Path, digest: str) -> bytes:
    """Return a file of an artefact; ModelError if it cannot be read or its digest does not match."""
    content = _content(file)
    if hashlib.sha256(content).hexdigest() != digest:
        raise ModelError(f"the model file {file} differs from its digest; run `rightsizer train`")
    return content


def _content(file: Path) -> bytes:
    """Return what a file holds; ModelError if it cannot be read, or might fill the memory (a device never ends)."""
    try:
        known = file.stat()
        if not stat.S_ISREG(known.st_mode) or known.st_size > MOST_FILE_BYTES:
            raise ModelError(f"{file} is not a file of a model; run `rightsizer train`")
        return file.read_bytes()
    except OSError as error:
        raise unread(file, error) from None
    except MemoryError:
        raise UnreadModelError(
            f"there is too little memory to read {file}; a running service tries again"
        ) from None
    except ValueError as error:  # a NUL in its name
        raise ModelError(
            f"the model file {str(file)!r} cannot be read: {error}; run `rightsizer train`"
        ) from None


def unread(path: Path, error: OSError) -> ModelError:
    """Return the error to raise if a file or a folder of a model cannot be read."""
    if error.errno in LIES_THERE:
        return ModelError(f"the model file {path} cannot be read: {error.strerror}; run `rightsizer train`")
    return UnreadModelError(
        f"the model file {path} cannot be read now: {error.strerror}; check that the service's user may "
        "read it (a running service tries again)"
    )


def _decode(content: bytes, kind: type[Decoded]) -> Decoded:
    return msgspec.json.decode(content, type=kind)


def _history(content: bytes, recent_jobs: int) -> History:
    history = History(recent_jobs)
    held, families = stored_history(content)
    history.held.update({dimension: HeldByUsers(one) for dimension, one in held.items()})
    for stored in families:
        history.load(renamed(stored.family), stored.jobs, stored.beside)
    history.keep_recent()
    return history


def stored_history(content: bytes) -> tuple[dict[Learned, Held], Iterator[StoredFamily]]:
    """Return what a history file holds, its families decoded one after the other.

    So a service that answers meanwhile waits for one family, not for a million jobs. The families are told apart by
    the layout that training writes (an indent of one); a file of another layout is decoded in one piece.
    """
    begin = content.find(FAMILIES_BEGIN)
    if begin < 0:
        whole = _decode(content, StoredHistory)
        return whole.held, iter(whole.families)
    return _decode(content[:begin] + b"}", StoredHeld).held, _families(content, begin + len(FAMILIES_BEGIN))


def _families(content: bytes, begin: int) -> Iterator[StoredFamily]:
    decode = msgspec.json.Decoder(StoredFamily).decode
    more = True
    while more:
        end = content.find(FAMILY_END, begin) + len(FAMILY_END)
        yield decode(content[begin:end])
        more = content.startswith(b",", end)
        begin = end + 1


def _growth(content: Mapping[str, bytes], dimension: Learned) -> GrowthModel:
    splits = _decode(content[f"{dimension}.splits.json"], tuple[tuple[float, ...], ...])
    if len(splits) != len(FEATURES) or any(list(places) != sorted(places) for places in splits):
        raise ModelError(f"the splits of the {dimension} model are damaged; run `rightsizer train`")
    try:
        return OnnxGrowth(content[f"{dimension}.onnx"], splits)
    except ONNX_FAILURES as error:
        raise ModelError(
            f"ONNX Runtime rejects the model: {str(error)[:120]}; run `rightsizer train`"
        ) from None


def _self_test(folder: Path, golden: Sequence[Golden], growth: dict[Learned, GrowthModel]) -> None:
    if {row.dimension for row in golden} != set(growth):
        raise ModelError(
            f"the model in {folder} has no self-test for each of its parts; run `rightsizer train`"
        )
    for row in golden:
        if len(row.features) != len(FEATURES):
            raise ModelError(f"the self-test of the model in {folder} is damaged; run `rightsizer train`")
        try:
            answer = growth[row.dimension]([math.nan if value is None else value for value in row.features])
        except ONNX_FAILURES as error:
            raise ModelError(
                f"ONNX Runtime cannot run the model in {folder}: {str(error)[:120]}; run `rightsizer train`"
            ) from None
        if not math.isclose(answer, row.log_growth, abs_tol=SELF_TEST_TOLERANCE):
            raise ModelError(
                f"the model in {folder} fails its self-test ({row.dimension}: {answer} instead of "
                f"{row.log_growth}); run `rightsizer train`"
            )
