"""Transfer of groups from a worker to the training process.

Pickling arrays one by one would copy a batch four times and pass it through a pipe. Instead, the
worker copies the arrays once into a block of shared memory, and the training process maps this
block. Each batch needs one file descriptor. Views of a mapped shard are not copied. The training
process also maps the shard, and receives the offsets of the views.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rollout._types import Group, Row
from rollout.data._blocks import ALIGN, borrow, memory
from rollout.runs._mapped import Pages, Source
from rollout.runs._shardfile import address
from rollout.runs.shards import OPEN_FILES, Files

Where = tuple[int, int, int, str]
"""The place of an array: the number of its file (-1 for the block), its offset, its length and
its dtype."""


class Shipment(list[Group]):
    """A list of groups that is pickled as one block of shared memory.

    A Shipment unpickles to a plain list of groups, whose arrays are views of the block or of shards.
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
        sources: list[Source] = []
        which = offsets = np.full(len(arrays), -1)
        if self._files is not None:
            begins = np.array([address(a) for a in arrays], dtype=np.int64)
            sources, which, offsets = self._files.places(begins, begins + sizes)
        copied = which < 0
        ends = np.cumsum(np.where(copied, -(-sizes // ALIGN) * ALIGN, 0))
        offsets = np.where(copied, ends - -(-sizes // ALIGN) * ALIGN, offsets)
        where: list[Where] = [(s, at, len(a), a.dtype.str) for a, s, at in zip(arrays, which.tolist(), offsets.tolist(), strict=True)]
        sent = None
        if copied.any():
            block, room = borrow(int(ends[-1]))
            for a, (source, at, _, _) in zip(arrays, where, strict=True):
                if source < 0:
                    room[at : at + a.nbytes] = a.view(np.uint8)
            sent = block.send()
        heads = [(g.run, g.id, g.size, len(g.rows), g.failed, g.empty, g.missing, g.left_out) for g in self]
        return unpack, (sent, sources, where, heads, rows)


class Place(int):
    """Stands for an array in a pickled row. The value is the number of the array."""


class Maps:
    """Maps the files that workers refer to. The OPEN_FILES files that were used last stay
    mapped."""

    def __init__(self) -> None:
        self._maps: OrderedDict[tuple[int, int], mmap.mmap] = OrderedDict()
        self._pages = Pages()
        self.lock = threading.Lock()

    def get(self, source: Source) -> mmap.mmap:
        with self.lock:
            key = source.device, source.inode  # several processes can name the same file
            found = self._maps.pop(key, None)
            if found is None:
                found = source.map()
                if len(self._maps) >= OPEN_FILES:
                    self._maps.popitem(last=False)
            self._maps[key] = found
            return found

    def read(self, size: int) -> None:
        """Record that `size` bytes will be read. If too many pages are resident, release all
        pages."""
        with self.lock:
            if self._pages.full(size) and hasattr(mmap, "MADV_DONTNEED"):
                for mapping in self._maps.values():
                    mapping.madvise(mmap.MADV_DONTNEED)
                self._pages.released()


_maps = Maps()


def _unlock() -> None:
    _maps.lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # a process can be forked while another thread unpacks
    os.register_at_fork(after_in_child=_unlock)


def unpack(sent: Any, sources: list[Source], where: list[Where], heads: list[tuple[Any, ...]], rows: list[dict[str, Any]]) -> list[Group]:
    held = None if sent is None else memory(sent)
    used = {number: _maps.get(sources[number]) for number in {source for source, _, _, _ in where if source >= 0}}
    arrays: list[Any] = []
    read = 0
    for source, at, n, kind in where:
        if source >= 0:
            arrays.append(np.frombuffer(used[source], kind, n, at))
            read += 2 * arrays[-1].nbytes  # twice, to include the readahead around the array
        elif held is not None:
            arrays.append(held[at : at + n * np.dtype(kind).itemsize].view(kind))
    _maps.read(read)
    for row in rows:
        for name, value in row.items():
            if type(value) is Place:
                row[name] = arrays[value]
    out, at = [], 0
    for run, id, size, n, failed, empty, missing, left_out in heads:
        out.append(Group(run, id, size, [Row(row) for row in rows[at : at + n]], failed, empty, missing, left_out))
        at += n
    return out
