"""Pure functions that determine which groups are in each batch of each rank, and in which order.

An epoch has n batches of g groups for each of R ranks. Batch j of rank r is batch k = j·R + r
of the epoch. Worker w of W yields the rank's batches w, w + W, ….

If rows are memory-mapped, the epoch is one permutation of all groups. If blocks (Parquet row
groups) must be decoded, the groups of a block stay close to each other. The blocks are permuted,
and so are the groups within each block. The epoch is then cut into R·L consecutive lanes, L for
each rank. Batch j of a rank comes from the rank's lane j mod L:

    blocks, permuted   5 5 5 2 2 2 7 7 7 1 1 1 4 4 4 0 0 0      3 groups each
    lanes              └─ lane 0 ──┘└─ lane 1 ──┘└─ lane 2 ──┘
    batches            lane 0, lane 1, lane 2, lane 0, lane 1, …

So consecutive batches are from different blocks, and a rank has L blocks in memory. If the number
of workers W divides L, no two workers decode the same block, except at the ends of lanes. The
order never depends on W.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from rollout._arrays import Ints

Fill = Literal["drop", "repeat"]

LANES = (4, 2)
"""The numbers that lanes() chooses from, in addition to 1."""
LANE_BLOCKS = 3
"""The minimum number of blocks per lane. If a block is divided between two lanes, it is decoded
twice."""
LANES_BYTES = 32 << 20
"""The maximum number of bytes for the decoded blocks of a rank, over all its workers."""


def mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the bits of each number with the finalizer of SplitMix64,
    https://prng.di.unimi.it/splitmix64.c.

    A saved state must remain valid after an upgrade of numpy, but the permutations from numpy
    itself can differ between versions (NEP 19).
    """
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def keys(count: int, seed: int, epoch: int, salt: int) -> npt.NDArray[np.uint64]:
    """Return a pseudorandom number for each item. To shuffle the items, sort them by these
    numbers."""
    start = np.zeros(1, dtype=np.uint64)
    for word in (seed, epoch, salt):
        start = mix(start ^ np.uint64(word % (1 << 64)))
    return mix(np.arange(count, dtype=np.uint64) ^ start)


def shuffled(count: int, seed: int, epoch: int, block: Ints | None) -> Ints:
    """Return a permutation of count groups, shape [count].

    `block` contains the number of each group's block, or is None. If it is given, the blocks are
    permuted, and so are the groups within each block.
    """
    own = keys(count, seed, epoch, 1)
    if block is None or not count:
        return np.argsort(own, kind="stable").astype(np.int64)
    blocks = keys(int(block.max()) + 1, seed, epoch, 2)
    order: Ints = np.lexsort((own, block, blocks[block])).astype(np.int64)
    return order


def lanes(blocks: int, block_bytes: int, world: int) -> int:
    """Return the number of lanes for each rank. block_bytes is the mean size of a decoded
    block."""
    for n in LANES:
        if n * block_bytes <= LANES_BYTES and n * world * LANE_BLOCKS <= blocks:
            return n
    return 1


@dataclass(frozen=True)
class Deal:
    """Divides the groups into the batches of an epoch. Equal inputs always give equal batches."""

    groups: int
    """Groups in a batch, g."""
    world: int
    """Ranks, R."""
    lanes: int
    """Lanes of a rank, L."""
    fill: Fill
    total: int
    """Groups in the dataset."""

    @property
    def batches(self) -> int:
        """Batches of every rank, n."""
        step = self.groups * self.world
        return self.total // step if self.fill == "drop" else -(-self.total // step)

    @property
    def dealt(self) -> int:
        """The total number of groups in all batches of all ranks, including repetitions of a
        group."""
        return self.batches * self.world * self.groups

    @property
    def dropped(self) -> int:
        """The number of groups that are not in any batch of the epoch."""
        return max(0, self.total - self.dealt)

    @property
    def repeated(self) -> int:
        """How many times groups are repeated in the batches of the epoch."""
        return max(0, self.dealt - self.total)

    def lane(self, rank: int, lane: int, order: Ints) -> Ints:
        """Return the groups of a lane, batch by batch, shape [batches, g]."""
        n, g = self.batches, self.groups
        before = rank * n + sum(self.length(i) for i in range(lane))
        at = np.arange(before * g, (before + self.length(lane)) * g) % max(1, self.total)
        out: Ints = order[at].reshape(-1, g)
        return out

    def length(self, lane: int) -> int:
        """Return the number of batches in a lane."""
        return max(0, -(-(self.batches - lane) // self.lanes))

    def in_turn(self, rank: int, order: Ints) -> Ints:
        """Return the groups of a rank if the epoch is not cut into lanes, shape [n, g]. Batch j
        of the rank is then batch j·R + rank of the epoch."""
        at = np.arange(self.dealt) % max(1, self.total)
        out: Ints = order[at].reshape(-1, self.world, self.groups)[:, rank]
        return out
