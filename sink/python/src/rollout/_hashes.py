"""A set that grows for as long as a run is followed."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

SLACK = 1 << 10
"""Places behind the last one that a hash begins at."""


class Hashes:
    """A set of texts, of which it keeps 64 bits each: 16 to 32 bytes per text.

    Of a million texts, two have one hash with a probability of 3 in 10^8.
    """

    def __init__(self) -> None:
        self._bits, self._used = 10, 0
        # Sorted but for what was added since it grew: a hash lies at its first bits, or in
        # the next free place. 0 is free.
        self._table: npt.NDArray[np.uint64] = np.zeros((1 << self._bits) + SLACK, np.uint64)

    def __len__(self) -> int:
        return self._used

    def __contains__(self, text: bytes) -> bool:
        return bool(self._used) and self._table[self._find(hashed(text))] != 0

    def add(self, text: bytes) -> None:
        """Add a text, which may be there."""
        number = hashed(text)
        at = self._find(number)
        if self._table[at]:
            return
        self._table[at] = number
        self._used += 1
        if self._used > 1 << self._bits - 1 or at >= len(self._table) - 2:
            self._grow()

    def _find(self, number: int) -> int:
        """Return the place of a hash, or the free one where it would be."""
        at = number >> 64 - self._bits
        while (there := int(self._table[at])) and there != number:
            at += 1
        return at

    def _grow(self) -> None:
        self._bits += 1
        have = np.sort(self._table[self._table != 0])
        home = (have >> np.uint64(64 - self._bits)).astype(np.int64)
        steps = np.arange(len(have))
        place = np.maximum.accumulate(home - steps) + steps
        self._table = np.zeros(max((1 << self._bits) + SLACK, int(place[-1]) + SLACK), np.uint64)
        self._table[place] = have


def hashed(text: bytes) -> int:
    """Return 64 bits of a hash, which are not 0."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") or 1
