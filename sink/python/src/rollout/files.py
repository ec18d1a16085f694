"""The shards of a dataset by number, and rows of several of them."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from rollout._types import Row
from rollout.index import Ints, Span
from rollout.log import Check, Shard, check_once
from rollout.shardfile import ArrowFile, Pages, ParquetFile, Part, Piece, Source, cut

OPEN_FILES = 16
"""Shards that a process keeps open."""
CHECKERS = 8
"""Shards that are compared with the log at the same time."""

_all: weakref.WeakSet[Files] = weakref.WeakSet()


def _unlock() -> None:
    for files in list(_all):
        files._lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # a worker may be forked while another thread reads
    os.register_at_fork(after_in_child=_unlock)


class Files:
    """The shards of a dataset, opened when they are needed, the last OPEN_FILES kept.

    The workers of each epoch are new processes. Forked ones have the files that were open,
    whose positions nobody uses, and what one process has compared with the log the others
    do not compare again. Copies that were pickled open and compare files of their own.
    """

    def __init__(self, shards: Sequence[Shard], columns: Sequence[str] | None, check: Check) -> None:
        self.shards = list(shards)
        self._columns, self._check = columns, check
        self._starts: dict[int, Ints] = {}
        self._open: OrderedDict[int, ParquetFile | ArrowFile] = OrderedDict()
        self._lock = threading.RLock()
        self._compared = mmap.mmap(-1, max(1, len(self.shards)))  # a byte per shard, shared with forked processes
        self._pages = Pages()
        _all.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"shards": self.shards, "_columns": self._columns, "_check": self._check}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["shards"], state["_columns"], state["_check"])  # type: ignore[misc]

    def file(self, number: int) -> ParquetFile | ArrowFile:
        """Return a shard that was compared with the log, open."""
        self.compare(number)
        return self._opened(number)

    def _opened(self, number: int) -> ParquetFile | ArrowFile:
        """Return a shard, open: its rows have not been compared with the log."""
        with self._lock:
            file = self._open.pop(number, None)
            if file is None:
                shard = self.shards[number]
                file = ParquetFile(shard, self._columns) if shard.format == "parquet" else ArrowFile(shard, self._columns)
                if len(self._open) >= OPEN_FILES:
                    self._open.popitem(last=False)
            self._open[number] = file
            return file

    def compare(self, number: int) -> None:
        """Compare a shard with the log, once."""
        counted = number < len(self._compared)  # the shards of a followed run are not
        if not (counted and self._compared[number]):
            check_once(self.shards[number], self._check)
            if counted:
                self._compared[number] = 1

    def compare_mapped(self) -> None:
        """Compare all Arrow shards with the log, several at a time.

        An order that goes back and forth between them needs all from the beginning.
        """
        mapped = [i for i, shard in enumerate(self.shards) if shard.format == "arrow"]
        mapped.sort(key=lambda i: -(self.shards[i].bytes or 0))  # so that none of the longest is left for the end
        with ThreadPoolExecutor(min(CHECKERS, os.cpu_count() or 1)) as pool:
            list(pool.map(self.compare, mapped))

    def let_go(self) -> None:
        """Unmap pages where many were read."""
        with self._lock:
            mapped = [f for f in self._open.values() if isinstance(f, ArrowFile)]
        read = sum(f.touched for f in mapped)
        for f in mapped:
            f.touched = 0
        if self._pages.full(read):
            for f in mapped:
                f.let_go()
            self._pages.gone()

    def starts(self, number: int) -> Ints:
        """Return the first row of each block of a shard, and the number of its rows.

        The file is not compared with its checksum for that.
        """
        if number not in self._starts:
            self._starts[number] = self._opened(number).starts
        return self._starts[number]

    def all_null(self, number: int, name: str) -> bool:
        """Report whether a column of a shard has only null, or is not there; no row is read."""
        return self._opened(number).all_null(name)

    def add(self, shards: Sequence[Shard]) -> None:
        """Add shards, numbered after those before."""
        self.shards += shards

    def places(self, addresses: Ints, ends: Ints) -> tuple[list[Source], Ints, Ints]:
        """Return the mapped files that are open, and which of them memory is a part of, and
        where it begins there: -1 where it is a part of none."""
        with self._lock:
            mapped = [file for file in self._open.values() if isinstance(file, ArrowFile)]
        which = np.full(len(addresses), -1)
        offset = which.copy()
        for number, file in enumerate(mapped):
            here = file.offsets(addresses, ends)
            which[here >= 0] = number
            offset = np.maximum(offset, here)
        return [file.source for file in mapped], which, offset


class Parts:
    """Rows of several blocks, each of which is decoded once."""

    def __init__(self, files: Files, spans: Sequence[Span]) -> None:
        self._parts: dict[tuple[int, int], Part | Piece] = {}
        self._starts: dict[int, list[int]] = {}
        wanted: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for shard, begin, end in joined(spans):
            if shard not in self._starts:
                self._starts[shard] = files.file(shard).starts.tolist()
            for block, first, last in cut(self._starts[shard], begin, end):
                wanted.setdefault((shard, block), []).append((first, last))
        for (shard, block), here in wanted.items():
            self._parts[shard, block] = files.file(shard).part(block, here)
        files.let_go()

    def rows(self, spans: Sequence[Span]) -> list[Row]:
        """Return some of the wanted rows, in the order given."""
        have: dict[tuple[int, int], Row] = {}
        for shard, begin, end in joined(spans):  # few long reads: the samples of a group lie together, in any order
            for block, first, last in cut(self._starts[shard], begin, end):
                for number, row in enumerate(self._parts[shard, block].rows(first, last), first):
                    have[shard, number] = row
        return [have[shard, number] for shard, begin, end in spans for number in range(begin, end)]


def joined(spans: Sequence[Span]) -> list[Span]:
    """Return spans in order, those that touch or overlap as one."""
    out: list[Span] = []
    for span in sorted(spans):
        shard, begin, end = span
        if out and out[-1][0] == shard and begin <= out[-1][2]:
            out[-1] = (shard, out[-1][1], max(end, out[-1][2]))
        else:
            out.append(span)
    return out
