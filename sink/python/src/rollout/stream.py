"""Groups in a given order, read by windows: every block of a window is decoded once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from rollout._types import Group
from rollout.files import Parts
from rollout.index import Ints

if TYPE_CHECKING:
    from rollout.dataset import Dataset

WINDOW_GROUPS = 4096
"""Groups of one window at most, where blocks are small."""


def homes(ds: Dataset) -> Ints | None:
    """Return the block of each group's first row in the files, numbered over all shards,
    shape [G].

    None where all shards are mapped: then blocks do not matter.
    """
    s, files = ds.selection, ds.files
    if all(shard.format == "arrow" for shard in files.shards):
        return None
    out = np.zeros(len(s), dtype=np.int64)
    if not len(s):
        return out
    place = np.minimum.reduceat(s.shard.astype(np.int64) << 32 | s.first, s.start[:-1])
    shard, row = place >> 32, place & 0xFFFFFFFF
    base = 0
    for number in range(len(files.shards)):
        at = np.flatnonzero(shard == number)
        starts = files.starts(number)
        out[at] = base + np.searchsorted(starts, row[at], side="right") - 1
        base += len(starts) - 1
    return out


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
