"""A compact set for the ids in a followed run."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

SLACK = 1 << 10
"""The number of extra slots at the end of the table. The first bits of a hash never select an
extra slot."""


class Hashes:
    """A set of byte strings. It keeps a 64-bit hash of each string, and uses 16 to 32 bytes per string.

    The probability that any two of a million strings have the same hash is 3 in 10^8.
    """

    def __init__(self) -> None:
        self._bits, self._used = 10, 0
        # Each hash is at the index that its first bits select, or in the next free slot. 0 marks
        # a free slot. The hashes are sorted only when the table grows.
        self._table: npt.NDArray[np.uint64] = np.zeros((1 << self._bits) + SLACK, np.uint64)

    def __len__(self) -> int:
        return self._used

    def __contains__(self, text: bytes) -> bool:
        return bool(self._used) and self._table[self._find(hashed(text))] != 0

    def add(self, text: bytes) -> None:
        """Add a string. Adding it again has no effect."""
        number = hashed(text)
        at = self._find(number)
        if self._table[at]:
            return
        self._table[at] = number
        self._used += 1
        if self._used > 1 << self._bits - 1 or at >= len(self._table) - 2:
            self._grow()

    def _find(self, number: int) -> int:
        """Return the index of a hash, or of the free slot for it."""
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
    """Return the 64-bit hash of a string, which is never 0."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") or 1
