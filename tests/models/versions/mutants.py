"""Artefacts changed at random: bits, lengths, files of another model, and manifests that were made to fit."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from models.versions.artefact import MANIFEST, Manifest, sealed

# Files by name; None: the file is missing.
Files = Mapping[str, bytes | None]
Whole = Mapping[str, bytes]
# Replacements for a value of a manifest: of another type, out of range, or as large as can be.
VALUES: tuple[object, ...] = (
    0,
    -1,
    2**63,
    10**12,
    10**30,
    1e308,
    "",
    "/dev/zero",
    "../other",
    "a\x00b",
    [],
    {},
    None,
    True,
    [[[[]]]],
)


def flipped(ours: Whole, _other: Whole, draw: random.Random) -> Files:
    """Flip one to eight bits of a file."""
    name = draw.choice([name for name in ours if ours[name]])
    content = bytearray(ours[name])
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    return {name: bytes(content)}


def cut(ours: Whole, _other: Whole, draw: random.Random) -> Files:
    """Cut a file off, or remove its beginning or a piece within it."""
    name = draw.choice([*ours])
    content = ours[name]
    begin = draw.randrange(len(content) + 1)
    return {name: draw.choice((content[:begin], content[begin:], content[:begin] + content[begin + 64 :]))}


def grown(ours: Whole, _other: Whole, draw: random.Random) -> Files:
    """Insert bytes into a file, or append them."""
    name = draw.choice([*ours])
    content = ours[name]
    begin = draw.choice((len(content), draw.randrange(len(content) + 1)))
    return {name: content[:begin] + draw.randbytes(draw.choice((1, 16, 4096))) + content[begin:]}


def gone(ours: Whole, _other: Whole, draw: random.Random) -> Files:
    """Remove a file."""
    return {draw.choice([*ours]): None}


def another_models(ours: Whole, other: Whole, draw: random.Random) -> Files:
    """Take one or several files from another model."""
    names = [name for name in ours if ours[name] != other.get(name)]
    return {name: other.get(name) for name in draw.sample(names, draw.choice((1, 1, 2, len(names))))}


def swapped(ours: Whole, _other: Whole, draw: random.Random) -> Files:
    """Swap two files."""
    one, two = draw.sample([*ours], 2)
    return {one: ours[two], two: ours[one]}


def other_manifest(ours: Whole, other: Whole, draw: random.Random) -> Files:
    """Change a value of the manifest, and leave its seal as it was."""
    del other
    document: dict[str, Any] = msgspec.json.decode(ours[MANIFEST])
    _change(document, draw)
    return {MANIFEST: msgspec.json.encode(document)}


def _change(document: dict[str, Any], draw: random.Random) -> None:
    inner = [value for value in document.values() if isinstance(value, dict) and value]
    table = draw.choice([document, document, *inner])
    key = draw.choice([*table])
    kind = draw.randrange(4)
    if kind == 0:
        del table[key]
    elif kind == 1:
        table[str(draw.choice(VALUES))] = table[key]
    else:
        table[key] = draw.choice(VALUES)


def respaced(ours: Whole, _other: Whole, draw: random.Random) -> Files:
    """Write the manifest with other white space, and the same content."""
    return {MANIFEST: msgspec.json.format(ours[MANIFEST], indent=draw.choice((-1, 0, 2, 7)))}


def refitted(ours: Whole, other: Whole, draw: random.Random) -> Files:
    """Change a file of figures, and the manifest with it, so that all digests and the seal match."""
    figures = {name: content for name, content in ours.items() if name.endswith(".json") and name != MANIFEST}
    changed = draw.choice((flipped, cut, grown, swapped, figure_changed))(figures, other, draw)
    return {**changed, **fitting(ours, changed)}


def figure_changed(ours: Whole, _other: Whole, draw: random.Random) -> Files:
    """Replace a digit in a file with another number."""
    name = draw.choice([*ours])
    numbers = [place for place, byte in enumerate(ours[name]) if 48 <= byte <= 57]
    if not numbers:
        return {name: ours[name] + b" "}
    place = draw.choice(numbers)
    number = draw.choice((b"0", b"-1", b"9" * 30, b"1e308", b"-1e308", b"null", b'""', b"[]"))
    return {name: ours[name][:place] + number + ours[name][place + 1 :]}


def refitted_manifest(ours: Whole, _other: Whole, draw: random.Random) -> Files:
    """Change a value of the manifest so that it stays a valid manifest, and seal it again."""
    document: dict[str, Any] = msgspec.json.decode(ours[MANIFEST])
    _change(document, draw)
    try:
        changed = sealed(msgspec.convert(document, Manifest))
    except (msgspec.ValidationError, OverflowError):
        return {MANIFEST: msgspec.json.encode(document)}
    return {MANIFEST: msgspec.json.encode(changed)}


def fitting(ours: Whole, changed: Files) -> Files:
    """Return the manifest that matches changed files."""
    manifest = msgspec.json.decode(ours[MANIFEST], type=Manifest)
    digests = {
        **manifest.digests,
        **{name: hashlib.sha256(content or b"").hexdigest() for name, content in changed.items()},
    }
    return {MANIFEST: msgspec.json.encode(sealed(msgspec.structs.replace(manifest, digests=digests)))}


Maker = Callable[[Whole, Whole, random.Random], Files]
# What damage and mistakes make, which no manifest matches …
DAMAGE: tuple[Maker, ...] = (
    flipped,
    flipped,
    flipped,
    cut,
    grown,
    gone,
    another_models,
    swapped,
    other_manifest,
)
# … and what was made to look whole: only the log of promotions tells it apart.
MADE_TO_FIT: tuple[Maker, ...] = (respaced, refitted, refitted, refitted_manifest)
