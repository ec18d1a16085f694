"""Reads groups in a given order. It divides the order into windows, and decodes each block once
per window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rollout._arrays import Ints
from rollout._types import Group
from rollout.runs.select import Selection
from rollout.runs.shards import Parts

WINDOW_GROUPS = 4096
"""The maximum number of groups in a window. This limit matters only if the groups are small."""


BLOCK_TOKENS = 1_000_000
"""The maximum number of tokens in a block that consists of several commits. A row group has about
the same number."""


def first_blocks(s: Selection) -> Ints | None:
    """Return the number of the block that contains each group's first row, shape [G].

    Blocks are numbered over all shards. Returns None if all shards are memory-mapped, because
    blocks then do not matter.
    """
    files = s.files
    if mapped(s):
        return None
    shard, row = first_rows(s)
    out = np.zeros(len(row), dtype=np.int64)
    ends = np.searchsorted(shard, np.arange(len(files.given) + 1))  # groups are in the order of their first rows
    base = 0
    for number in range(len(files.given)):
        at = slice(ends[number], ends[number + 1])
        starts = files.starts(number)
        out[at] = base + np.searchsorted(starts, row[at], side="right") - 1
        base += len(starts) - 1
    return out


class Blocks(NamedTuple):
    """The blocks that a shuffled order permutes. Merges of shards do not change these blocks."""

    home: Ints
    """The number of each group's block, shape [G]."""
    number: int
    tokens: int
    """The number of tokens in all blocks."""


def blocks(s: Selection) -> Blocks | None:
    """Return the blocks that a shuffled order permutes, or None if all shards are memory-mapped.

    A commit with several row groups has one block per row group; such a commit is never merged.
    Smaller commits that follow each other share a block of up to BLOCK_TOKENS tokens, no matter
    which shards contain them now.
    """
    if mapped(s):
        return None
    cuts: list[int] = []
    before = [0]  # the number of rows before each shard
    at, tokens, base = 0, 0, 0
    for index in s.indexes:
        held: int | None = None  # tokens of the open block
        for number, rows, own in index.commits:
            tokens += own
            if not rows:
                continue
            starts: list[int] = [] if index.shards[number].merged else s.files.starts(base + number).tolist()
            if len(starts) > 2:
                cuts += [at + start for start in starts[:-1]]
                held = None
            elif held is None or held + own > BLOCK_TOKENS:
                cuts.append(at)
                held = own
            else:
                held += own
            at += rows
        for _, held_rows in index.extents:
            before.append(before[-1] + held_rows)
        base += len(index.shards)
    shard, row = first_rows(s)
    skipped = np.array([first for index in s.indexes for first, _ in index.extents], dtype=np.int64)
    place = np.asarray(before)[shard] + row - skipped[shard] if len(row) else row
    return Blocks(np.searchsorted(cuts, place, side="right").astype(np.int64) - 1, len(cuts), tokens)


def mapped(s: Selection) -> bool:
    """Report whether all shards are memory-mapped."""
    return all(shard.format == "arrow" for shard in s.files.given)


def first_rows(s: Selection) -> tuple[Ints, Ints]:
    """Return the shard of each group's first row, and the number of this row in the shard. Both
    arrays have the shape [G]."""
    if not len(s):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    place = np.minimum.reduceat(s.shard.astype(np.int64) << 32 | s.first, s.start[:-1])
    return place >> 32, place & 0xFFFFFFFF


def stream(s: Selection, batches: Ints, home: Ints | None = None) -> Iterator[list[Group]]:
    """Yield groups, batch by batch. batches contains the numbers of the groups,
    shape [n, groups].

    A window is a sequence of groups with the same entry in `home`, by default the block of the
    group's first row. The rows of a window are read together, and stay in memory until they are
    yielded.
    """
    order = batches.reshape(-1)
    if home is None:
        home = first_blocks(s)
    ends = windows(order, home)
    have: dict[int, Group] = {}
    end = 0
    for batch in range(len(batches)):
        last = (batch + 1) * batches.shape[1]
        while end < last:
            begin, end = end, next(ends)
            have.update(read(s, begin, order[begin:end]))
        yield [have.pop(at) for at in range(batch * batches.shape[1], last)]


def windows(order: Ints, home: Ints | None) -> Iterator[int]:
    """Yield the end of each window in an order of groups."""
    if home is None:
        yield from range(1, len(order) + 1)
        return
    here = home[order]
    cuts = np.flatnonzero(np.diff(here)) + 1
    begin = 0
    for cut in [*cuts.tolist(), len(order)]:
        while begin < cut:
            begin = min(cut, begin + WINDOW_GROUPS)
            yield begin


def read(s: Selection, at: int, numbers: Ints) -> Iterator[tuple[int, Group]]:
    """Read groups together. Yield each group with its position in the order, which starts at
    `at`."""
    spans = {i: s.spans(i) for i in numbers.tolist()}
    parts = Parts(s.files, [span for of_group in spans.values() for span in of_group])
    for place, i in enumerate(numbers.tolist(), start=at):
        yield place, s.assemble(i, parts.rows(spans[i]))
