"""Open shards. Parquet files are decoded by row group and column, and Arrow files are mapped into
memory.

A block of a Parquet shard is a row group, and is decoded as a whole. An Arrow shard is mapped and
never decoded, so its rows can be read in any order at the same speed.
"""

from __future__ import annotations

import bisect
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rollout._arrays import Ints
from rollout._process import worker
from rollout.errors import SEE_VERIFY, CorruptError
from rollout.runs import _store as store
from rollout.runs._mapped import Source
from rollout.runs._row import LazyRow, template
from rollout.runs.log import Check, Shard, follow_moves, getter, replaced, verify_once

AROUND_BYTES = 64 << 10
"""The number of bytes that Linux maps around each page that is read."""
HELD_BYTES = 2 << 20
"""The maximum number of bytes to copy from a mapped file. Columns of short values and list
offsets are copied."""
PIECE_BYTES = 900 << 10
"""The number of bytes of a row group that are decoded at once."""

_opening = threading.Lock()


def _unlock() -> None:
    global _opening
    _opening = threading.Lock()


if hasattr(os, "register_at_fork"):  # a worker can be forked while another thread opens a file
    os.register_at_fork(after_in_child=_unlock)


class Used:
    """The columns that the rows of a block used. The next block decodes these columns
    together."""

    def __init__(self) -> None:
        self._before: frozenset[str] = frozenset()
        self._now: set[str] = set()

    def begin(self) -> None:
        """Start to record the columns that the next block uses."""
        if self._now:
            self._before, self._now = frozenset(self._now), set()

    def use(self, name: str) -> frozenset[str]:
        """Record the use of a column, and return the columns used in the previous block."""
        self._now.add(name)
        return self._before


class Part:
    """Rows from one block of a Parquet shard. A column is decoded when a row first reads it."""

    def __init__(self, file: ParquetFile, wanted: Sequence[tuple[int, int]], used: Used) -> None:
        self._file = weakref.ref(file)  # weak, because the column metadata of an open file is large
        self._shard, self._check, self._wanted, self._used = file.shard, file.check, wanted, used
        self._take, self._row = file.take, file.row
        self._columns: dict[str, tuple[list[int], list[Callable[[int], Any]]]] = {}
        """For each column, the number of the first row in each of its pieces, and a getter for
        each piece."""
        self._asked: set[str] = set()
        self.bytes = 0
        """The size of all columns decoded so far."""
        used.begin()

    def rows(self, begin: int, end: int) -> list[LazyRow]:
        """Return the rows with the given numbers in the shard."""
        return [LazyRow(self._row, self, number) for number in range(begin, end)]

    def value(self, name: str, number: int) -> Any:
        """Return the value of a column in one row. A list of numbers is a view of the decoded
        column."""
        if name not in self._asked:
            before: Collection[str] = self._used.use(name)
            if name not in before and store.remote(self._shard.path):
                before = self._take  # one request instead of one for each column
            if name not in self._columns:
                self._decode([n for n in self._take if n not in self._columns and (n == name or n in before)])
            self._asked.add(name)
        starts, get = self._columns[name]
        at = bisect.bisect_right(starts, number) - 1
        return get[at](number - starts[at])

    def _decode(self, names: list[str]) -> None:
        pieces = follow_moves(self._shard, lambda shard, moved: self._pieces(shard, moved, names))
        starts = [first for first, _ in pieces]
        self.bytes += sum(batch.nbytes for _, batch in pieces)
        for name in names:
            self._columns[name] = starts, [getter(batch.column(name), batch.schema) for _, batch in pieces]

    def _pieces(self, shard: Shard, moved: int, names: list[str]) -> list[tuple[int, pa.RecordBatch]]:
        """Decode columns from the shard that contains the rows now. In this shard, `moved` must
        be added to the number of each row."""
        file = self._file() if shard is self._shard else None
        if file is None:
            verify_once(shard, self._check)
            file = ParquetFile(shard, None, self._check, self._used)
        out = []
        for block, first, last in cut(file.starts.tolist(), self._wanted[0][0] + moved, self._wanted[-1][1] + moved):
            wanted = [(begin + moved, end + moved) for begin, end in self._wanted if begin + moved < last and end + moved > first]
            out += [(at - moved, batch) for at, batch in file.pieces(block, names, wanted)]
        return out


class Piece:
    """The rows of a mapped record batch. `first` is the number that the batch's first row has in
    the shard."""

    def __init__(self, batch: pa.RecordBatch, columns: Sequence[str] | None, first: int) -> None:
        self._first, self._batch = first, batch
        self.bytes_per_row = batch.nbytes // max(1, batch.num_rows)
        self._row = template(batch.schema.names, columns)
        self.columns = len(self._row)
        self._get: dict[str, Callable[[int], Any]] = {}

    def rows(self, begin: int, end: int) -> list[LazyRow]:
        """Return the rows with the given numbers in the shard."""
        return [LazyRow(self._row, self, number) for number in range(begin, end)]

    def value(self, name: str, number: int) -> Any:
        """Return the value of a column in one row. A list of numbers is a view of the batch's
        memory."""
        get = self._get.get(name)
        if get is None:
            get = self._get[name] = getter(self._batch.column(name), self._batch.schema)
        return get(number - self._first)


class ParquetFile:
    """A committed Parquet shard."""

    mapped = False

    def __init__(self, shard: Shard, columns: Sequence[str] | None, check: Check, used: Used) -> None:
        self.shard, self.check, self._used = shard, check, used
        with corrupt_file(shard):
            with store.parquet(shard.path) as file:
                self._meta = meta = file.metadata
                self._names = file.schema_arrow.names
            groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
            self._bytes = [g.total_byte_size for g in groups]
        self.starts = block_starts(shard, [g.num_rows for g in groups])
        self.take = choose(shard, self._names, columns)
        self.row = template(self._names, columns)

    def part(self, block: int, wanted: Sequence[tuple[int, int]]) -> Part:
        """Return a Part for some rows of a block. The given ranges of rows must be in ascending
        order."""
        return Part(self, wanted, self._used)

    def pieces(self, block: int, names: Sequence[str], wanted: Sequence[tuple[int, int]]) -> list[tuple[int, pa.RecordBatch]]:
        """Decode columns for the given ranges of rows in a block. Return pieces, each with the
        number of its first row.

        Decoding needs five times as much memory as its result, so decoding in pieces saves
        memory. Rows after the last range are not decoded. This helps if a group that began in the
        previous block ends at the start of this block.
        """
        size = int(self.starts[block + 1] - self.starts[block])
        step = max(1, PIECE_BYTES * size // max(1, self._bytes[block]))
        out, at = [], int(self.starts[block])
        with corrupt_file(self.shard), self._open() as file:
            for batch in file.iter_batches(step, row_groups=[block], columns=names, use_threads=worker() is None):
                until = at + batch.num_rows
                if any(begin < until and end > at for begin, end in wanted):
                    out.append((at, batch))
                at = until
                if at >= wanted[-1][1]:
                    break
        pool = pa.default_memory_pool()  # the compressed bytes that were read are in this pool
        if pool.backend_name != "system":
            pool.release_unused()
        return out

    def all_null(self, name: str) -> bool:
        """Report whether all values of a column are null, according to the statistics in the
        footer."""
        meta = self._meta
        at = [i for i in range(meta.num_columns) if meta.schema.column(i).path == name]
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        stats = [(g.column(i).statistics, g.num_rows) for i in at for g in groups]
        return all(s is not None and s.has_null_count and s.null_count == n for s, n in stats)

    def column(self, block: int, names: Sequence[str]) -> pa.RecordBatch:
        with corrupt_file(self.shard), self._open() as file:
            return one_batch(file.read_row_group(block, columns=names, use_threads=False))

    def _open(self) -> pq.ParquetFile:
        """Open the file to read one block. The file does not stay open, because an open file
        keeps the compressed bytes of the last block in memory.

        The file decodes into the memory pool that is the default at the time it is opened.
        """
        with _opening:
            default = pa.default_memory_pool()
            decode_small()
            try:
                return store.parquet(self.shard.path, self._meta)
            finally:
                pa.set_memory_pool(default)


def decode_small() -> None:
    """Make the system's allocator the default memory pool of pyarrow.

    The system's allocator returns most of the freed memory to the system. The pools that pyarrow
    prefers keep twice as much memory, or are slower if they must release memory after each block.
    """
    pa.set_memory_pool(pa.system_memory_pool())


class ArrowFile:
    """A committed Arrow shard that is mapped into memory. Its parts are views of the mapping and
    stay valid."""

    mapped = True

    def __init__(self, shard: Shard, columns: Sequence[str] | None) -> None:
        self._shard = shard
        with corrupt_file(shard):
            self._source, self._fd, self._map, self._batches = open_arrow(shard)
        if self._fd >= 0:
            weakref.finalize(self, os.close, self._fd)
        self._base = address(np.frombuffer(self._map, np.uint8))
        self.starts = block_starts(shard, [b.num_rows for b in self._batches])
        self._columns, self._room = columns, HELD_BYTES
        self._take = choose(shard, self._batches[0].schema.names, columns)
        self._parts: dict[int, Piece] = {}
        self.touched = 0
        """The size in bytes of the rows that were requested since this counter was last reset."""
        self.release_pages()  # the headers of all batches were read

    def part(self, block: int, wanted: Sequence[tuple[int, int]]) -> Piece:
        """Return a Piece for a block, and count the given ranges of rows as read."""
        part = self._parts.get(block)
        if part is None:
            part = self._parts[block] = Piece(self._hold(block), self._columns, int(self.starts[block]))
        self.touched += part.bytes_per_row * sum(end - begin for begin, end in wanted) + part.columns * AROUND_BYTES
        return part

    def _hold(self, block: int) -> pa.RecordBatch:
        """Return the selected columns of a block. Short columns are copied, up to HELD_BYTES in
        total.

        The columns are far apart in the file, so reading a few rows from each column would map
        many pages.
        """
        batch = self._batches[block]
        batch = batch.select(self._take)
        columns = []
        for column in batch.columns:
            size = sum(b.size for b in outer(column) if b is not None)
            if size <= self._room:
                self._room -= size
                column = held(column)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, batch.schema.names)

    @property
    def source(self) -> Source | None:
        """A Source with which another process can map the file. It is None if a merge has
        replaced the file, so that other processes do not keep the file open. It is also None for the
        copy of a shard in a bucket."""
        path = self._source.path
        if not path:
            return None
        there = path != replaced(path) and os.path.exists(path)
        return self._source._replace(kept=f"/proc/{os.getpid()}/fd/{self._fd}") if there else None

    def offsets(self, addresses: Ints, ends: Ints) -> Ints:
        """Return the file offset of each memory range, or -1 if the range is not in the file.

        Also ask the system to read the ranges from disk in the background.
        """
        inside = (addresses >= self._base) & (ends <= self._base + len(self._map))
        order = np.flatnonzero(inside)[np.argsort(addresses[inside])]
        begin, end = addresses[order] - self._base, ends[order] - self._base
        cuts = np.flatnonzero(begin[1:] - end[:-1] > AROUND_BYTES) + 1
        if len(order) and hasattr(mmap, "MADV_WILLNEED"):
            for first, last in zip([0, *cuts.tolist()], [*(cuts - 1).tolist(), len(order) - 1], strict=True):
                at = int(begin[first]) // mmap.PAGESIZE * mmap.PAGESIZE
                self._map.madvise(mmap.MADV_WILLNEED, at, int(end[last]) - at)
        return np.where(inside, addresses - self._base, -1)

    def release_pages(self) -> None:
        """Release all pages. The system maps a page again when it is next read."""
        self.touched = 0
        if hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def all_null(self, name: str) -> bool:
        """Report whether all values of a column are null, according to the headers of the
        batches."""
        out = all(b[name].null_count == b.num_rows for b in self._batches)
        self.release_pages()
        return out

    def column(self, block: int, names: Sequence[str]) -> pa.RecordBatch:
        return self._batches[block].select(names)


def outer(column: pa.Array) -> list[Any]:
    """Return the buffers of a column. For a column of lists, omit the buffers of the values."""
    buffers: list[Any] = column.buffers()
    return buffers[:2] if pa.types.is_list(column.type) else buffers


def held(column: pa.Array) -> pa.Array:
    """Return a column with copies of its outer buffers, which are no longer in the mapped
    file."""
    kind = column.type
    if pa.types.is_nested(kind) and not pa.types.is_list(kind) or pa.types.is_dictionary(kind):
        return column
    copies = [None if b is None else pa.py_buffer(b.to_pybytes()) for b in outer(column)]
    inner = [column.values] if pa.types.is_list(kind) else []
    return pa.Array.from_buffers(kind, len(column), copies, column.null_count, column.offset, inner)


class MovedError(FileNotFoundError):
    """The file of a shard is not at its path, because a merge has replaced it or because it is
    lost."""

    def __init__(self, shard: Shard) -> None:
        super().__init__(shard.path)
        self.shard = shard


class corrupt_file:
    """Turns errors from a file into MovedError, or into a CorruptError that names the file."""

    def __init__(self, shard: Shard) -> None:
        self._shard, self._path = shard, shard.path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, err: BaseException | None, trace: object) -> None:
        try:
            store.failed(self._path, err)
        except FileNotFoundError as missing:
            err = missing
        if isinstance(err, FileNotFoundError):
            raise MovedError(self._shard) from err
        if isinstance(err, (pa.ArrowException, OSError, ValueError)) and not isinstance(err, MemoryError):
            raise CorruptError(f"cannot read {self._path}: {err}{SEE_VERIFY}") from err


def address(array: npt.NDArray[Any]) -> int:
    """Return the start address of an array's memory."""
    return int(array.__array_interface__["data"][0])


def open_arrow(shard: Shard) -> tuple[Source, int, mmap.mmap, list[pa.RecordBatch]]:
    """Map an Arrow shard.

    Returns the source of the shard, an open file descriptor, the mapping, and the batches, which are
    views of the mapping. A shard in a bucket is copied first. It has no source and no descriptor.
    """
    if store.remote(shard.path):
        copy = store.copied(shard.path, shard.sha256)
        with pa.ipc.open_stream(pa.py_buffer(copy)) as reader:
            return Source("", 0, 0), -1, copy, list(reader)
    with open(shard.path, "rb") as f:
        status = os.fstat(f.fileno())
        mapping = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        fd = os.dup(f.fileno())
    source = Source(os.path.abspath(shard.path), status.st_dev, status.st_ino)
    try:
        with pa.ipc.open_stream(pa.py_buffer(mapping)) as reader:
            return source, fd, mapping, list(reader)
    except BaseException:
        os.close(fd)
        raise


def block_starts(shard: Shard, sizes: Sequence[int]) -> Ints:
    """Verify the number of rows, and return the number of the first row of each block."""
    starts = np.cumsum([0, *sizes]).astype(np.int64)
    if starts[-1] != shard.rows:  # an Arrow stream truncated between two batches looks complete
        raise CorruptError(f"{shard.path}: the file has {starts[-1]} rows, but the commit log lists {shard.rows}{SEE_VERIFY}")
    return starts


def cut(starts: Sequence[int], begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield each block that overlaps a range of rows, together with the overlap.

    `starts` contains the number of the first row of each block, and the number of the row after
    the last block.
    """
    block = bisect.bisect_right(starts, begin) - 1
    while begin < end:
        until = min(end, starts[block + 1])
        yield block, begin, until
        begin, block = until, block + 1


def one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    return pa.concat_batches(batches)


def choose(shard: Shard, have: Sequence[str], columns: Sequence[str] | None) -> list[str]:
    """Return the columns to read from a file. Raises ValueError if the file lacks a column."""
    if columns is None:
        return list(have)
    unknown = [c for c in columns if c not in have]
    if unknown:
        raise ValueError(f"columns={list(columns)!r}: {shard.path} has no column named {' or '.join(unknown)}; its columns are {', '.join(have)}")
    return list(columns)
