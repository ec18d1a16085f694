"""The numbered shards of a dataset. Reads can cover several shards."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np

from rollout._arrays import Ints
from rollout._types import Row
from rollout.errors import SEE_VERIFY, CorruptError
from rollout.runs._mapped import Pages, Source
from rollout.runs._shardfile import ArrowFile, MovedError, ParquetFile, Part, Piece, Used, cut
from rollout.runs.index import Span
from rollout.runs.log import MOVES, Check, Shard, find, run_of, verify_once
from rollout.runs.scores import ScoredSource, Scores

T = TypeVar("T")

OPEN_FILES = 16
"""The number of shards that a process keeps open."""
ADDED = 256
"""How many of the added shards to remember; see Files.trim."""
KEPT_BYTES = 64 << 20
"""The maximum size of the cached blocks, in decoded bytes. If groups are read in order, the
following groups use the cached blocks."""
KEPT_BLOCKS = (2, 256)
"""The minimum and maximum number of cached blocks. The minimum applies even if the blocks exceed
KEPT_BYTES."""
SCORED_SHARDS = 64
"""The number of shards for which the numbers of the scores are cached."""
CHECKERS = 8
"""The number of shards to verify at the same time."""

_all: weakref.WeakSet[Files] = weakref.WeakSet()


def _unlock() -> None:
    for files in list(_all):
        files._lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # a worker can be forked while another thread reads
    os.register_at_fork(after_in_child=_unlock)


class Files:
    """The shards of a dataset. They are opened on demand, and the OPEN_FILES shards that were
    used last stay open.

    A shard keeps its number until trim() forgets the shard. A merge can replace the file of a
    shard. The method place returns the shard that contains the rows now. Readers use retry_moved,
    which repeats a read if a file has moved.

    Each epoch has new worker processes. Forked workers inherit the open files. This is safe,
    because reads do not use the file position. A process and its forked workers verify each file
    only once. Unpickled copies open and verify files themselves.
    """

    def __init__(self, shards: Sequence[Shard], columns: Sequence[str] | None, check: Check, scores: Mapping[str, Scores] | None = None) -> None:
        self.shards = dict(enumerate(shards))
        self._scores = dict(scores or {})  # by the folder of the run
        self._scored: OrderedDict[int, Ints] = OrderedDict()  # for each row of a shard, the number of its score
        self._columns, self._check = columns, check
        self._next = self._given = len(self.shards)
        self._moved: dict[int, tuple[int, int]] = {}  # the shard that has the rows now, and their start in it
        self._numbers: dict[str, int] = {}  # the numbers of added shards, by path
        self._merged: dict[str, int] = {}  # the numbers of shards that replaced others, by path
        self._starts: dict[int, Ints] = {}
        self._open: OrderedDict[int, ParquetFile | ArrowFile] = OrderedDict()
        self._lock = threading.RLock()
        self._verified = mmap.mmap(-1, max(1, len(self.shards)))  # a byte per shard, shared with forked processes
        self._pages = Pages()
        self._used = Used()
        self._parts: OrderedDict[tuple[int, int], Part] = OrderedDict()
        _all.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"shards": self.given, "_columns": self._columns, "_check": self._check, "_scores": self._scores}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["shards"], state["_columns"], state["_check"], state["_scores"])  # type: ignore[misc]

    @property
    def given(self) -> list[Shard]:
        """The shards that this object was created with, at their current paths."""
        return [self.shards[i] for i in range(self._given)]

    def add(self, shard: Shard) -> int:
        """Return the number of a shard. A new shard gets the next number, and trim() can forget
        this shard later."""
        with self._lock:
            number = self._numbers.pop(shard.path, None)
            if number is None:
                number, self._next = self._next, self._next + 1
                self.shards[number] = shard
            self._numbers[shard.path] = number
            return number

    def trim(self) -> None:
        """Forget all added shards except the ADDED shards that were used last."""
        with self._lock:
            while len(self._numbers) > ADDED:
                old = self._numbers.pop(next(iter(self._numbers)))
                for known in (self.shards, self._moved, self._starts, self._open, self._scored):
                    known.pop(old, None)

    def place(self, number: int) -> tuple[int, int]:
        """Return the number of the shard that contains a shard's rows now, and the number of
        their first row in that shard."""
        begin = 0
        while number in self._moved:
            number, more = self._moved[number]
            begin += more
        return number, begin

    def retry_moved(self, read: Callable[[], T]) -> T:
        """Call `read`. If a merge has moved the rows to another shard in the meantime, call it
        again."""
        for left in range(MOVES, -1, -1):
            try:
                return read()
            except MovedError as gone:
                if not left:
                    raise CorruptError(f"{gone.shard.path}: the file is missing, although the commit log lists it{SEE_VERIFY}") from gone
                self._find(gone.shard)
        raise AssertionError

    def _find(self, shard: Shard) -> None:
        found, begin = find(shard)
        with self._lock:
            for number in [n for n, s in self.shards.items() if s.path == shard.path and n not in self._moved]:
                if (found.sha256, found.rows) == (shard.sha256, shard.rows):
                    self.shards[number] = found
                    self._open.pop(number, None)
                    continue
                if found.path not in self._merged:
                    self._merged[found.path], self._next = self._next, self._next + 1
                    self.shards[self._merged[found.path]] = found
                self._moved[number] = self._merged[found.path], begin

    def file(self, number: int) -> ParquetFile | ArrowFile:
        """Return an open, verified shard."""
        self.verify(number)
        return self._opened(number)

    def _opened(self, number: int) -> ParquetFile | ArrowFile:
        """Return an open shard without verifying it."""
        with self._lock:
            file = self._open.pop(number, None)
        if file is None:  # without the lock, so that several threads can open files of a bucket
            shard = self.shards[number]
            parquet = shard.format == "parquet"
            file = ParquetFile(shard, self._columns, self._check, self._used) if parquet else ArrowFile(shard, self._columns)
        with self._lock:
            while len(self._open) >= OPEN_FILES and number not in self._open:
                self._open.popitem(last=False)
            self._open[number] = file
            self._starts.setdefault(number, file.starts)
            return file

    def scored(self, number: int) -> tuple[Scores, Ints] | None:
        """Return the scores for the rows of a shard, and the number of the score of each row, or -1. Return
        None if the rewards in the rows count."""
        scores = self._scores.get(run_of(self.shards[number].path)) if self._scores else None
        if scores is None:
            return None
        with self._lock:
            index = self._scored.pop(number, None)
        if index is None:
            file = self.file(number)
            keys = [file.column(block, ["sample_key"])["sample_key"] for block in range(len(file.starts) - 1)]
            index = np.concatenate([scores.index(k) for k in keys]) if keys else np.empty(0, np.int64)
        with self._lock:
            while len(self._scored) >= SCORED_SHARDS:
                self._scored.popitem(last=False)
            self._scored[number] = index
        return scores, index

    def verify(self, number: int) -> None:
        """Verify a shard against the log if it has not yet been verified."""
        counted = number < len(self._verified)  # added shards have no byte in _verified
        if not (counted and self._verified[number]):
            try:
                verify_once(self.shards[number], self._check)
            except FileNotFoundError as err:
                raise MovedError(self.shards[number]) from err
            if counted:
                self._verified[number] = 1

    def verify_mapped(self) -> None:
        """Verify all Arrow shards in parallel.

        If the order is shuffled, the first batches can need any of the shards.
        """
        mapped = [i for i in range(self._given) if self.shards[i].format == "arrow"]
        mapped.sort(key=lambda i: -self.shards[i].bytes)  # largest first, so that no large shard is verified last
        with ThreadPoolExecutor(min(CHECKERS, os.cpu_count() or 1)) as pool:
            list(pool.map(lambda i: self.retry_moved(lambda: self.verify(self.place(i)[0])), mapped))

    def release_pages(self) -> None:
        """Release the pages of the mapped files if many pages are resident."""
        with self._lock:
            mapped = [f for f in self._open.values() if isinstance(f, ArrowFile)]
        read = sum(f.touched for f in mapped)
        for f in mapped:
            f.touched = 0
        if self._pages.full(read):
            for f in mapped:
                f.release_pages()
            self._pages.released()

    def starts(self, number: int) -> Ints:
        """Return the number of the first row in each block of a shard, and the shard's number of
        rows.

        This does not verify the file.
        """
        if number not in self._starts:
            self._starts[number] = self.retry_moved(lambda: self._cuts(number))
        return self._starts[number]

    def _cuts(self, number: int) -> Ints:
        at, begin = self.place(number)
        starts = self._opened(at).starts
        return starts if at == number else np.unique(np.clip(starts - begin, 0, self.shards[number].rows))

    def all_null(self, number: int, name: str) -> bool:
        """Report whether all values of a column in a shard are null, without reading rows."""
        return self._opened(number).all_null(name)

    def places(self, addresses: Ints, ends: Ints) -> tuple[list[Source], Ints, Ints]:
        """Return the open mapped files. For each memory range, also return the number of its file
        and its offset in the file, or -1 if the range is not in any of the files."""
        with self._lock:
            mapped = [file for file in self._open.values() if isinstance(file, ArrowFile)]
        sources = [(file, source) for file in mapped if (source := file.source) is not None]
        which = np.full(len(addresses), -1)
        offset = which.copy()
        for number, (file, _) in enumerate(sources):
            here = file.offsets(addresses, ends)
            which[here >= 0] = number
            offset = np.maximum(offset, here)
        return [source for _, source in sources], which, offset

    def read(self, spans: Sequence[Span]) -> list[Row]:
        """Read rows, and cache their blocks for later groups."""
        return Parts(self, spans, self._part).rows(spans)

    def _part(self, shard: int, block: int, wanted: Sequence[tuple[int, int]]) -> Part | Piece:
        """Return a block, from the cache if possible. A new Parquet block is decoded as a whole,
        and the least recently used blocks are evicted."""
        file = self.file(shard)
        if isinstance(file, ArrowFile):
            return file.part(block, wanted)
        with self._lock:
            part = self._parts.pop((shard, block), None)
            if part is None:
                part = file.part(block, [(int(file.starts[block]), int(file.starts[block + 1]))])
                held = sum(p.bytes for p in self._parts.values())
                least, most = KEPT_BLOCKS
                while len(self._parts) >= (least if held > KEPT_BYTES else most):
                    held -= self._parts.popitem(last=False)[1].bytes
            self._parts[shard, block] = part
            return part

    def part(self, shard: int, block: int, wanted: Sequence[tuple[int, int]]) -> Part | Piece:
        """Return a block, of which only the given ranges of rows are needed."""
        return self.file(shard).part(block, wanted)


class Parts:
    """Reads rows from several blocks, and decodes each block once."""

    def __init__(self, files: Files, spans: Sequence[Span], part: Callable[..., Part | Piece] | None = None) -> None:
        files.retry_moved(lambda: self._read(files, spans, part or files.part))
        files.release_pages()

    def _read(self, files: Files, spans: Sequence[Span], part: Callable[..., Part | Piece]) -> None:
        self._parts: dict[tuple[int, int], Part | Piece] = {}
        self._starts: dict[int, list[int]] = {}
        self._places = {number: files.place(number) for number in {span[0] for span in spans}}
        self._scored = {number: files.scored(number) for number in {place[0] for place in self._places.values()}}
        wanted: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for shard, begin, end in joined(self._now(spans)):
            if shard not in self._starts:
                self._starts[shard] = files.starts(shard).tolist()
            for block, first, last in cut(self._starts[shard], begin, end):
                wanted.setdefault((shard, block), []).append((first, last))
        for (shard, block), here in wanted.items():
            self._parts[shard, block] = part(shard, block, here)

    def _now(self, spans: Sequence[Span]) -> list[Span]:
        """Return the places that rows had when the blocks were read."""
        out = []
        for shard, begin, end in spans:
            number, more = self._places[shard]
            out.append((number, begin + more, end + more))
        return out

    def rows(self, spans: Sequence[Span]) -> list[Row]:
        """Return the rows in the given spans, which must be part of the requested spans."""
        have: dict[tuple[int, int], Row] = {}
        now = self._now(spans)
        for shard, begin, end in joined(now):  # few long reads, because a group's samples are close together, in any order
            scored = self._scored[shard]
            for block, first, last in cut(self._starts[shard], begin, end):
                for number, row in enumerate(self._parts[shard, block].rows(first, last), first):
                    if scored is not None:
                        row.use(partial(ScoredSource, scores=scored[0], index=int(scored[1][number])))
                    have[shard, number] = row
        return [have[shard, number] for shard, begin, end in now for number in range(begin, end)]


def joined(spans: Sequence[Span]) -> list[Span]:
    """Sort spans, and join adjacent and overlapping spans."""
    out: list[Span] = []
    for span in sorted(spans):
        shard, begin, end = span
        if out and out[-1][0] == shard and begin <= out[-1][2]:
            out[-1] = (shard, out[-1][1], max(end, out[-1][2]))
        else:
            out.append(span)
    return out
