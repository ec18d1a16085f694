"""Groups in a given order, read by windows: every block of a window is decoded once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rollout._types import Group
from rollout.files import Parts
from rollout.index import Ints

if TYPE_CHECKING:
    from rollout.dataset import Dataset

WINDOW_GROUPS = 4096
"""Groups of one window at most, where blocks are small."""


BLOCK_TOKENS = 1_000_000
"""Tokens of a block of small commits at most, about as many as a row group has."""


def homes(ds: Dataset) -> Ints | None:
    """Return the block of each group's first row in the files, numbered over all shards,
    shape [G].

    None where all shards are mapped: then blocks do not matter.
    """
    files = ds.files
    if mapped(ds):
        return None
    shard, row = firsts(ds)
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
    """Blocks to shuffle by, which no merge of shards changes."""

    home: Ints
    """The block of each group, shape [G]."""
    number: int
    tokens: int
    """Of all blocks."""


def blocks(ds: Dataset) -> Blocks | None:
    """Return the blocks that an order is made of, None where all shards are mapped.

    A commit with several row groups has a block of each of them: it is in no merge. Others
    follow each other in a block up to BLOCK_TOKENS, whatever shard they are in by now.
    """
    if mapped(ds):
        return None
    cuts: list[int] = []
    before = [0]  # rows before each shard, over all
    at, tokens, base = 0, 0, 0
    for index in ds.indexes:
        held: int | None = None  # tokens of the block that commits are added to
        for number, rows, own in index.commits:
            tokens += own
            if not rows:
                continue
            starts: list[int] = [] if index.shards[number].merged else ds.files.starts(base + number).tolist()
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
    shard, row = firsts(ds)
    skipped = np.array([first for index in ds.indexes for first, _ in index.extents], dtype=np.int64)
    place = np.asarray(before)[shard] + row - skipped[shard] if len(row) else row
    return Blocks(np.searchsorted(cuts, place, side="right").astype(np.int64) - 1, len(cuts), tokens)


def mapped(ds: Dataset) -> bool:
    """Report whether all shards are mapped."""
    return all(shard.format == "arrow" for shard in ds.files.given)


def firsts(ds: Dataset) -> tuple[Ints, Ints]:
    """Return the shard of each group's first row, and its number there, shape [G] each."""
    s = ds.selection
    if not len(s):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    place = np.minimum.reduceat(s.shard.astype(np.int64) << 32 | s.first, s.start[:-1])
    return place >> 32, place & 0xFFFFFFFF


def stream(ds: Dataset, batches: Ints, home: Ints | None = None) -> Iterator[list[Group]]:
    """Yield groups by number, batches being an array of shape [n, groups].

    A window is as many groups as follow each other with one home; its rows are read
    together and held until they were given.
    """
    order = batches.reshape(-1)
    if home is None:
        home = homes(ds)
    ends = windows(order, home)
    have: dict[int, Group] = {}
    end = 0
    for batch in range(len(batches)):
        last = (batch + 1) * batches.shape[1]
        while end < last:
            begin, end = end, next(ends)
            have.update(read(ds, begin, order[begin:end]))
        yield [have.pop(at) for at in range(batch * batches.shape[1], last)]


def windows(order: Ints, home: Ints | None) -> Iterator[int]:
    """Yield the ends of the windows of an order."""
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


def read(ds: Dataset, at: int, numbers: Ints) -> Iterator[tuple[int, Group]]:
    """Read groups together and yield each with its place in the order."""
    spans = {i: ds.selection.spans(i) for i in numbers.tolist()}
    parts = Parts(ds.files, [span for of_group in spans.values() for span in of_group])
    for place, i in enumerate(numbers.tolist(), start=at):
        yield place, ds.assemble(i, parts.rows(spans[i]))
