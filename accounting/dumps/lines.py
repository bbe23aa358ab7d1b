"""Reads a dump in blocks of lines: decompressed, decoded, never more than one block in memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from accounting.errors import DumpError

BLOCK_BYTES = 4 * 1024**2
LONGEST_LINE_BYTES = 4 * 1024**2
# Why a last line is doubted if nothing else shows that the file was cut off.
NO_NEWLINE = "the file ends in the middle of this line"
_PACKED = {b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
_WIDE = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


class Block(msgspec.Struct, frozen=True):
    """Some lines, the number of the first (the heading is line 1), and why the last is incomplete; '' if it is not."""

    first: int
    lines: list[str]
    cut_off: str = ""


def read_blocks(file: Path, block_bytes: int) -> Iterator[Block]:
    """Yield the lines of a file, compressed with gzip or not; the last one may be cut off.

    Bytes that are not UTF-8 become backslash escapes. Raises DumpError if the file is not text.
    """
    try:
        with file.open("rb") as raw:
            start = raw.read(8)
            raw.seek(0)
            _refuse_other_formats(file, start)
            if not start.startswith(b"\x1f\x8b"):
                yield from _blocks(_plain(raw, block_bytes), file)
                return
            _check_packed(file, raw)
            yield from _blocks(_unpacked(raw, block_bytes), file)
    except OSError as error:
        raise DumpError(f"cannot read {file}: {error.strerror or error}") from None


def _refuse_other_formats(file: Path, start: bytes) -> None:
    if not start:
        raise DumpError(f"{file} is empty; make the dump again")
    for magic, name in _PACKED.items():
        if start.startswith(magic):
            raise DumpError(
                f"{file} is compressed with {name}; decompress it first, or compress it with gzip"
            )
    if start.startswith(_WIDE) or start[1:2] == b"\x00":
        raise DumpError(
            f"{file} is UTF-16 or UTF-32; convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8 {file.name})"
        )


def _blocks(chunks: Iterator[bytes], file: Path) -> Iterator[Block]:
    number, rest, cut_off = 1, b"", ""
    for chunk in chunks:
        if not chunk:
            cut_off = f"{file.name} ends too early; get the whole file and read it again"
            break
        start = b"\xef\xbb\xbf" if number == 1 and not rest else b""
        whole, end, rest = (rest + chunk.removeprefix(start)).rpartition(b"\n")
        if number == 1 and not end and b"\r" in rest[:-1]:
            raise DumpError(
                f"{file} has carriage returns as line ends; convert them to newlines first, for example "
                "with tr '\\\\r' '\\\\n'"
            )
        if end:
            lines = _decoded(whole)
            yield Block(number, lines)
            number += len(lines)
        if len(rest) > LONGEST_LINE_BYTES:
            raise DumpError(
                f"{file}: line {number} is longer than {LONGEST_LINE_BYTES} bytes; this is not a dump"
            )
    if rest:
        yield Block(number, _decoded(rest), cut_off or NO_NEWLINE)
    elif cut_off:
        yield Block(number, [], cut_off)


def _plain(stream: BinaryIO, block_bytes: int) -> Iterator[bytes]:
    while chunk := stream.read(block_bytes):
        yield chunk


def _unpacked(stream: BinaryIO, block_bytes: int) -> Iterator[bytes]:
    """Yield the decompressed data in pieces, with an empty piece at the end if the file ends too soon.

    Not done with the gzip module: for a file that was cut off, it does not return the end of what there is.
    """
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    packed = b""
    while packed := packed or stream.read(block_bytes):
        if unpacker.eof:
            unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
        piece = unpacker.decompress(packed, block_bytes)
        packed = unpacker.unused_data.lstrip(b"\x00") if unpacker.eof else unpacker.unconsumed_tail
        if piece:
            yield piece
    if not unpacker.eof:
        yield b""


def _check_packed(file: Path, stream: BinaryIO) -> None:
    """Read the file once to its end: only there does gzip reveal whether any of it is damaged."""
    try:
        for _ in _unpacked(stream, BLOCK_BYTES):
            pass
    except zlib.error as error:
        raise DumpError(f"{file} is damaged ({error}); get it again") from None
    stream.seek(0)


def _decoded(data: bytes) -> list[str]:
    # Not splitlines(): names may hold any other character that Unicode counts as a line end. No store accepts a NUL.
    text = data.decode("utf-8", "backslashreplace").replace("\x00", "\\x00")
    return [line.removesuffix("\r") for line in text.split("\n")] if "\r" in text else text.split("\n")
