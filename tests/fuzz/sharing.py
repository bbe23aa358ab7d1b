"""The tables of `rightsizer share`: an invalid one ends in an error that says where, and nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from accounting.errors import ConfigError
from slurm_plugin.cli.share import share
from tests.fuzz.corpus import found
from tests.fuzz.target import Target

# Separates the two tables of an input.
BETWEEN = b"\n--\n"
PAIRS = b"kind,beside,speed,seconds,mem_mib\nlm,resnet,0.68,600,8000\nresnet,lm,0.74,600,4000\nlm,lm,0,,\n"
LONG = (
    b"job,kind,gpu,waited_s,ran_s,mem_mib\n11,resnet,node1:0,,20000,\n12,lm,node1:0,,15000,\n22,lm,,100,,\n"
)
JOBS = b"job,kind,gpu,waited_s,ran_s,mem_mib\n11,resnet,node1:0,,60,\n22,lm,,100,,\n,,node1:1,,,\n"


def check(data: bytes) -> None:
    """Check that any two tables give an answer, or an error of ours that names a file."""
    pairs, _, jobs = data.partition(BETWEEN)
    with tempfile.TemporaryDirectory() as name:
        files = Path(name) / "pairs.csv", Path(name) / "now.csv"
        for file, content in zip(files, (pairs, jobs), strict=True):
            file.write_bytes(content)
        for move, suspend in ((False, False), (True, False), (False, True)):
            told = ""
            try:
                with redirect_stdout(StringIO()):
                    share.callback(*files, move, suspend, 0.5, 16_000.0, "csv")  # type: ignore[misc]
            except ConfigError as error:
                told = str(error)
            assert not told or name in told or told.startswith("kind "), told


def seeds() -> Iterator[bytes]:
    """Yield tables like those in docs/gpu-sharing.md, and one alone."""
    yield PAIRS + BETWEEN + JOBS
    yield PAIRS + BETWEEN + LONG
    yield PAIRS + BETWEEN
    yield b"kind,beside,speed\na,b,1\n" + BETWEEN + b"job,kind,gpu\n1,a,g\n2,b,\n3,a,\n"
    yield from found("sharing")


WORDS = (
    b",",
    b"\n",
    b'"',
    b"1e12",
    b"nan",
    b"-1",
    b"0",
    b"lm",
    b"resnet",
    b"node1:0",
    b"1e-300",
    b"\xef\xbb\xbf",
)
TARGETS = (Target("sharing", check, seeds, share=5, words=WORDS, most_bytes=1024),)
