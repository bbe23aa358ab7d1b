"""Columns of texts that repeat, as places in a list of the different ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.frames import Flags, Ints


@dataclass(frozen=True)
class Texts:
    """A column of texts: `codes` has the place of each in `words`, of which '' is the first."""

    codes: Ints
    words: list[str]

    def part(self, rows: Flags) -> Texts:
        """Return some of the texts."""
        return Texts(self.codes[rows], self.words)

    def is_any(self, wanted: Sequence[str]) -> Flags:
        """Return which texts are among those wanted."""
        return np.isin(self.codes, [place for place, word in enumerate(self.words) if word in wanted])

    def at(self, rows: Ints) -> list[str]:
        """Return the texts of some rows."""
        return [self.words[code] for code in self.codes[rows].tolist()]


def texts_of(column: pa.ChunkedArray) -> Texts:
    """Return a column of texts, given as texts or as bytes."""
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    encoded = encoded.combine_chunks()
    words = [_text(word) for word in encoded.dictionary.to_pylist()]
    places = {word: place for place, word in enumerate(dict.fromkeys(("", *words)))}
    codes = np.array([places[word] for word in words], np.int64)
    found = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return Texts(np.append(codes, 0)[found], list(places))


def _text(word: str | bytes | None) -> str:
    return word.decode(errors="surrogatepass") if isinstance(word, bytes) else word or ""
