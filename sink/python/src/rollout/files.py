"""Rows of shards by number: Parquet by row groups, Arrow from mapped memory.

A block is what is decoded at once: a row group of a Parquet shard. An Arrow shard is
mapped and never decoded, so any row of it is as near as any other.
"""

from __future__ import annotations

import bisect
import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rollout._types import Row
from rollout.errors import CorruptError
from rollout.index import Ints
from rollout.log import Check, Shard, check_once, getter

TOUCHED_BYTES = 8 << 20
"""Mapped bytes that are read before a process lets go of the pages, of all its files.
They stay in the page cache of the system, so reading one again is no access to the disk.
The system maps the pages around those that are read, which makes it more than twice as
much memory."""
PIECE_BYTES = 1 << 20
"""Of a row group that are decoded at once."""
OPEN_FILES = 16
"""Shards that a process keeps open."""
CHECKERS = 8
"""Shards that are compared with the log at the same time."""

# Columns that schema version 2 added: None in the rows of older shards.
_ADDED = frozenset(["policy_version_min", "policy_version_max", "keep", "keep_reason"])

class Part:
    """Rows of a block, in pieces."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._pieces: list[Piece] = []

    def add(self, start: int, piece: Piece) -> None:
        """Add a piece that has no row before start, and none before those that are there."""
        self._starts.append(start)
        self._pieces.append(piece)

    def row(self, number: int) -> Row:
        """Return a row by its number in the shard."""
        return self._pieces[bisect.bisect_right(self._starts, number) - 1].row(number)


class Piece:
    """Some rows of a shard, in memory or mapped: rows[i] is the number of the i-th."""

    def __init__(self, batch: pa.RecordBatch, columns: Sequence[str] | None, first: int, rows: Ints | None = None) -> None:
        self._first, self._rows = first, rows
        self.bytes_per_row = batch.nbytes // max(1, batch.num_rows)
        have = batch.schema.names
        self._get: list[tuple[str, Callable[[int], Any]]] = []
        for name in have if columns is None else columns:
            if name in have:
                self._get.append((name, getter(batch.column(name))))
            else:
                self._get.append((name, lambda _: None))

    def row(self, number: int) -> Row:
        """Return a row by its number in the shard; numbers are views of the part's memory."""
        at = number - self._first if self._rows is None else int(np.searchsorted(self._rows, number))
        return {name: get(at) for name, get in self._get}


class ParquetFile:
    """A committed Parquet shard."""

    mapped = False

    def __init__(self, shard: Shard, columns: Sequence[str] | None) -> None:
        self._shard, self._columns = shard, columns
        with damage(shard):
            with pq.ParquetFile(shard.path) as file:
                self._meta = meta = file.metadata
                self._names = file.schema_arrow.names
            groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
            self._bytes = [g.total_byte_size for g in groups]
        self.starts = block_starts(shard, [g.num_rows for g in groups])
        self._take = choose(shard, self._names, columns)

    def part(self, block: int, rows: Ints) -> Part:
        """Decode a block for the given rows of it, which ascend.

        Piece by piece: decoding takes five times the memory of what it gives. What comes
        after the last of the rows is not decoded: the end of a group that began in the
        block before is at the beginning of this one.
        """
        size = int(self.starts[block + 1] - self.starts[block])
        step = max(1, PIECE_BYTES * size // max(1, self._bytes[block]))
        part, at = Part(), int(self.starts[block])
        with damage(self._shard), self._open() as file:
            for batch in file.iter_batches(step, row_groups=[block], columns=self._take, use_threads=False):
                here = rows[(rows >= at) & (rows < at + batch.num_rows)]
                if 2 * len(here) >= batch.num_rows:
                    part.add(at, Piece(batch, self._columns, at))
                elif len(here):  # the few alone: views would keep all of it
                    part.add(at, Piece(batch.take(indices(here - at)), self._columns, at, here))
                at += batch.num_rows
                if at > rows[-1]:
                    break
        # The decoder took several times as much, and the pool would keep it.
        pa.default_memory_pool().release_unused()
        return part

    def column(self, block: int, names: Sequence[str], instead_of: Mapping[str, Sequence[str]]) -> pa.RecordBatch:
        """Decode some columns of a block; others instead of those that the file lacks."""
        with damage(self._shard), self._open() as file:
            return one_batch(file.read_row_group(block, columns=present(self._names, names, instead_of), use_threads=False))

    def _open(self) -> pq.ParquetFile:
        """Open the file for one block: an open one keeps the last block's compressed bytes."""
        return pq.ParquetFile(self._shard.path, metadata=self._meta)


class ArrowFile:
    """A committed Arrow shard, mapped. Its parts are views and stay valid for good."""

    mapped = True

    def __init__(self, shard: Shard, columns: Sequence[str] | None) -> None:
        self._shard = shard
        with damage(shard):
            self._map, self._batches = open_arrow(shard)
        self.starts = block_starts(shard, [b.num_rows for b in self._batches])
        choose(shard, self._batches[0].schema.names, columns)
        self._parts = [Piece(b, columns, int(s)) for b, s in zip(self._batches, self.starts, strict=False)]
        self.touched = 0
        """Bytes of the rows that were asked for since the pages were let go of."""

    def part(self, block: int, rows: Ints) -> Piece:
        """Return a block; the given rows of it are counted as read."""
        part = self._parts[block]
        self.touched += part.bytes_per_row * len(rows)
        return part

    def let_go(self) -> None:
        """Unmap the pages; what is read again is mapped again."""
        self.touched = 0
        if hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def column(self, block: int, names: Sequence[str], instead_of: Mapping[str, Sequence[str]]) -> pa.RecordBatch:
        """Return some columns of a block; others instead of those that the file lacks."""
        batch = self._batches[block]
        return batch.select(present(batch.schema.names, names, instead_of))


class Files:
    """The shards of a dataset, opened when they are needed, the last OPEN_FILES kept.

    Copies in other processes open files of their own. What one process has compared with
    the log, those that are forked from it, or it was forked from, do not compare again:
    the workers of each epoch are new processes.
    """

    def __init__(self, shards: Sequence[Shard], columns: Sequence[str] | None, check: Check) -> None:
        self.shards = list(shards)
        self._columns, self._check = columns, check
        self._starts: dict[int, Ints] = {}
        self._open: OrderedDict[int, ParquetFile | ArrowFile] = OrderedDict()
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._compared = mmap.mmap(-1, max(1, len(self.shards)))  # a byte per shard, shared with forked processes

    def __getstate__(self) -> dict[str, Any]:
        return {"shards": self.shards, "_columns": self._columns, "_check": self._check}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["shards"], state["_columns"], state["_check"])  # type: ignore[misc]

    def file(self, number: int) -> ParquetFile | ArrowFile:
        """Return a shard that was checked, open."""
        with self._lock:
            if self._pid != os.getpid():  # forked: the position of a file is shared
                self._open, self._pid = OrderedDict(), os.getpid()
            file = self._open.pop(number, None)
            if file is None:
                shard = self.shards[number]
                self.compare(number)
                file = ParquetFile(shard, self._columns) if shard.format == "parquet" else ArrowFile(shard, self._columns)
                if len(self._open) >= OPEN_FILES:
                    self._open.popitem(last=False)
            self._open[number] = file
            return file

    def compare(self, number: int) -> None:
        """Compare a shard with the log, once."""
        known = number < len(self._compared)  # not where a run is followed
        if not (known and self._compared[number]):
            check_once(self.shards[number], self._check)
            if known:
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
        mapped = [f for f in self._open.values() if isinstance(f, ArrowFile)]
        if sum(f.touched for f in mapped) > TOUCHED_BYTES:
            for f in mapped:
                f.let_go()

    def starts(self, number: int) -> Ints:
        """Return the first row of each block of a shard, and the number of its rows.

        The file is not compared with its checksum for that.
        """
        if number not in self._starts:
            shard = self.shards[number]
            with damage(shard):
                if shard.format == "parquet":
                    meta = pq.read_metadata(shard.path)
                    sizes = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
                else:
                    sizes = [b.num_rows for b in open_arrow(shard)[1]]
            self._starts[number] = block_starts(shard, sizes)
        return self._starts[number]

    def all_null(self, number: int, name: str) -> bool:
        """Report whether a column of a shard has only null, or is not there.

        The footer or the headers of the batches tell; no row is read.
        """
        shard = self.shards[number]
        with damage(shard):
            if shard.format != "parquet":
                return all(b.schema.get_field_index(name) < 0 or b[name].null_count == b.num_rows for b in open_arrow(shard)[1])
            meta = pq.read_metadata(shard.path)
            at = [i for i in range(meta.num_columns) if meta.schema.column(i).path == name]
            groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
            stats = [(g.column(i).statistics, g.num_rows) for i in at for g in groups]
        return all(s is not None and s.has_null_count and s.null_count == n for s, n in stats)

    def add(self, shards: Sequence[Shard]) -> None:
        """Add shards, numbered after those before."""
        self.shards += shards


class Parts:
    """Rows of several blocks, each of which is decoded once."""

    def __init__(self, files: Files, wanted: Sequence[tuple[int, Ints]]) -> None:
        self._parts: dict[tuple[int, int], Part | Piece] = {}
        self._starts: dict[int, Ints] = {}
        for number, rows in wanted:
            file = files.file(number)
            self._starts[number] = file.starts
            ascending = rows if (np.diff(rows) > 0).all() else np.unique(rows)
            cuts = np.searchsorted(ascending, file.starts)
            for b in np.flatnonzero(np.diff(cuts)).tolist():
                self._parts[number, b] = file.part(b, ascending[cuts[b] : cuts[b + 1]])
        files.let_go()

    def rows(self, wanted: Sequence[tuple[int, Ints]]) -> list[Row]:
        """Return some of the wanted rows, in the order given."""
        out = []
        for shard, rows in wanted:
            blocks = np.searchsorted(self._starts[shard], rows, side="right") - 1
            for number, block in zip(rows.tolist(), blocks.tolist(), strict=True):
                out.append(self._parts[shard, block].row(number))
        return out


class damage:
    """Turns what pyarrow says about a file into a CorruptError with its path."""

    def __init__(self, shard: Shard) -> None:
        self._path = shard.path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, err: BaseException | None, trace: object) -> None:
        if isinstance(err, FileNotFoundError):
            raise CorruptError(f"{self._path}: is missing, the commit log names it; rollout verify says more") from err
        if isinstance(err, (pa.ArrowException, OSError, ValueError)) and not isinstance(err, MemoryError):
            raise CorruptError(f"{self._path}: cannot be read: {err}; rollout verify says more") from err


def indices(of: Ints) -> pa.Array:
    """Return numbers as a column; pa.array would import pandas, as log.numbers says."""
    return pa.Array.from_buffers(pa.int64(), len(of), [None, pa.py_buffer(np.ascontiguousarray(of, dtype=np.int64))])


def open_arrow(shard: Shard) -> tuple[mmap.mmap, list[pa.RecordBatch]]:
    """Map an Arrow shard and return its batches, which are views of the mapping."""
    with open(shard.path, "rb") as f:
        mapping = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    with pa.ipc.open_stream(pa.py_buffer(mapping)) as reader:
        return mapping, list(reader)


def block_starts(shard: Shard, sizes: Sequence[int]) -> Ints:
    """Return where blocks begin, after comparing their rows with the log."""
    starts = np.cumsum([0, *sizes]).astype(np.int64)
    if starts[-1] != shard.rows:  # an Arrow stream cut between two batches looks whole
        raise CorruptError(f"{shard.path}: {starts[-1]} rows, the commit log says {shard.rows}; rollout verify says more")
    return starts


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch."""
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    return pa.concat_batches(batches)


def present(have: Sequence[str], names: Sequence[str], instead_of: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names that a file has, and others instead of those that it lacks."""
    out: list[str] = []
    for name in names:
        out += [name] if name in have else [n for n in instead_of.get(name, ()) if n in have]
    return out


def choose(shard: Shard, have: Sequence[str], columns: Sequence[str] | None) -> list[str] | None:
    """Return the columns to read of a file, which may be older than some of them."""
    if columns is None:
        return None
    unknown = [c for c in columns if c not in have and c not in _ADDED]
    if unknown:
        raise ValueError(f"columns={list(columns)!r}: {shard.path} has no column {', '.join(unknown)}; it has {', '.join(have)}")
    return [c for c in columns if c in have]
