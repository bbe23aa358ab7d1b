"""Memory that was freed goes back to the system, even if it lies between pieces that are still held."""

import ctypes
from pathlib import Path

import pyarrow as pa
import pytest

from slurm_plugin.freed_memory import give_back_memory

PIECE_BYTES, PIECES = 16 * 1024, 6_000


def resident_mib() -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library is not glibc")
def test_freed_memory_between_held_pieces_goes_back() -> None:
    pieces = [bytes(bytearray([1]) * PIECE_BYTES) for _ in range(PIECES)]
    some = pieces[::100]
    held_mib = resident_mib()
    del pieces
    kept_mib = resident_mib()
    freed_mib = PIECE_BYTES * PIECES / 1024**2
    assert kept_mib > held_mib - freed_mib / 2, "nothing is kept that could be given back"
    give_back_memory()
    assert resident_mib() < held_mib - 0.8 * freed_mib
    assert len(some) == PIECES // 100


@pytest.mark.skipif(pa.default_memory_pool().backend_name == "system", reason="Arrow has no pool of its own")
def test_memory_that_arrow_keeps_goes_back() -> None:
    before = pa.total_allocated_bytes()
    columns = [pa.array(range(at, at + 50_000), pa.int64()) for at in range(200)]
    held_mib, freed_mib = resident_mib(), sum(column.nbytes for column in columns) / 1024**2
    del columns
    assert pa.total_allocated_bytes() == before
    give_back_memory()
    assert resident_mib() < held_mib - 0.8 * freed_mib
