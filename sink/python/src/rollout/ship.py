"""Groups on their way from a worker to the process that trains.

Pickled one by one, the arrays of a batch would be copied four times and go through a
pipe. They are put into one block of shared memory instead, which the other process
maps: one copy, one file descriptor per batch. What is a view of a mapped shard is not
copied at all: the other process maps the shard as well, and is told where to look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rollout._blocks import ALIGN, lend, memory
from rollout._types import Group
from rollout.files import Files, known
from rollout.shardfile import address

Where = tuple[int, int, int, str]
"""Of an array: its shard, or -1 for the block, and its offset there; its length and dtype."""


class Shipment(list[Group]):
    """A list of groups that is pickled as one block of shared memory.

    Unpickled it is a plain list, whose arrays are views of that block or of shards.
    """

    def __init__(self, groups: Iterable[Group], files: Files | None) -> None:
        super().__init__(groups)
        self._files = files

    def __reduce__(self) -> tuple[Callable[..., list[Group]], tuple[Any, ...]]:
        arrays: list[np.ndarray[Any, Any]] = []
        rows = []
        for group in self:
            for row in group.rows:
                plain = {}
                for name, value in row.items():
                    if isinstance(value, np.ndarray):
                        arrays.append(value)
                        value = Place(len(arrays) - 1)
                    plain[name] = value
                rows.append(plain)
        sizes = np.array([a.nbytes for a in arrays], dtype=np.int64)
        shards = offsets = np.full(len(arrays), -1)
        if self._files is not None:
            begins = np.array([address(a) for a in arrays], dtype=np.int64)
            shards, offsets = self._files.places(begins, begins + sizes)
        copied = shards < 0
        ends = np.cumsum(np.where(copied, -(-sizes // ALIGN) * ALIGN, 0))
        offsets = np.where(copied, ends - -(-sizes // ALIGN) * ALIGN, offsets)
        where: list[Where] = [(s, at, len(a), a.dtype.str) for a, s, at in zip(arrays, shards.tolist(), offsets.tolist(), strict=True)]
        sent = None
        if copied.any():
            block, room = lend(int(ends[-1]))
            for a, (shard, at, _, _) in zip(arrays, where, strict=True):
                if shard < 0:
                    room[at : at + a.nbytes] = a.view(np.uint8)
            sent = block.send()
        heads = [(g.run, g.id, g.size, len(g.rows), g.failed, g.empty, g.missing, g.left_out) for g in self]
        return unpack, (sent, self._files and self._files.name, where, heads, rows)


class Place(int):
    """The number of an array, in its place in a row."""


def unpack(sent: Any, name: str | None, where: list[Where], heads: list[tuple[Any, ...]], rows: list[dict[str, Any]]) -> list[Group]:
    """Return the groups of a shipment."""
    held = None if sent is None else memory(sent)
    files = known[name] if name is not None and any(shard >= 0 for shard, _, _, _ in where) else None
    arrays: list[Any] = []
    for shard, at, n, kind in where:
        if files is not None and shard >= 0:
            arrays.append(files.view(shard, at, n, kind))
        elif held is not None:
            arrays.append(held[at : at + n * np.dtype(kind).itemsize].view(kind))
    if files is not None:
        files.let_go()
    for row in rows:
        for name, value in row.items():
            if type(value) is Place:
                row[name] = arrays[value]
    out, at = [], 0
    for run, id, size, n, failed, empty, missing, left_out in heads:
        out.append(Group(run, id, size, rows[at : at + n], failed, empty, missing, left_out))
        at += n
    return out
