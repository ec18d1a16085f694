"""Groups on their way from a worker to the process that trains.

Pickled one by one, the arrays of a batch would be copied four times and go through a
pipe. They are put into one block of shared memory instead, which the other process
maps: one copy, one file descriptor per batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rollout._blocks import ALIGN, lend, memory
from rollout._types import Group


class Shipment(list[Group]):
    """A list of groups that is pickled as one block of shared memory.

    Unpickled it is a plain list, whose arrays are views of that block.
    """

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
        ends = np.cumsum(-(-sizes // ALIGN) * ALIGN)
        block, room = lend(int(ends[-1]) if len(ends) else 0)
        where = []
        for a, end in zip(arrays, ends.tolist(), strict=True):
            begin = end - -(-a.nbytes // ALIGN) * ALIGN
            room[begin : begin + a.nbytes] = a.view(np.uint8)
            where.append((begin, len(a), a.dtype.str))
        heads = [(g.run, g.id, g.size, len(g.rows), g.failed, g.empty, g.missing, g.left_out) for g in self]
        return unpack, (block.send(), where, heads, rows)


class Place(int):
    """The number of an array, in its place in a row."""


def unpack(block: Any, where: list[tuple[int, int, str]], heads: list[tuple[Any, ...]], rows: list[dict[str, Any]]) -> list[Group]:
    """Return the groups of a shipment."""
    held = memory(block)
    arrays = [held[begin : begin + n * np.dtype(kind).itemsize].view(kind) for begin, n, kind in where]
    for row in rows:
        for name, value in row.items():
            if type(value) is Place:
                row[name] = arrays[value]
    out, at = [], 0
    for run, id, size, n, failed, empty, missing, left_out in heads:
        out.append(Group(run, id, size, rows[at : at + n], failed, empty, missing, left_out))
        at += n
    return out
