"""The commit log of a run, its shards and their rows, one file after the other.

A run's folder holds shards in data/ and a commit log in _commits/. A shard exists
only if an entry of the log names it: never list data/ yourself, for it may hold
what an interrupted run left behind. The log grows while rollouts are collected;
what it names never changes. Every entry has a checksum, and so has every file that
it names: what differs is a CorruptError. Whoever trusts the disk and wants each
Arrow file mapped without being read once before passes check="size".

This module reads rows in the order of the files. Dataset reads whole groups.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rollout._types import Row
from rollout.errors import CorruptError, NewerError

Path = str | os.PathLike[str]
Check = Literal["sha256", "size"]

COMMIT_VERSION = 3
"""The newest version of an entry that this package reads."""
SCHEMA_VERSION = 2
"""The newest version of the columns that this package reads."""

_ENTRY = re.compile(r"^\d{20}\.json$")
# An entry of version 2 or later ends so: the SHA-256 of all bytes before that comma.
_SUM = re.compile(rb',"sha256":"([^"]{64})"}\n\Z')
_checked: set[tuple[str, str | None]] = set()  # by this process or by the one it was forked from
_MORE = "; rollout verify says more"


class Shard(NamedTuple):
    """A committed file; see the commit entry for what else it says."""

    path: str
    """Absolute, or relative to where the run's folder is."""
    format: str
    """parquet or arrow."""
    kind: str
    """data or failures."""
    rows: int
    tokens: int
    commit: int
    """The seq of the entry."""
    bytes: int | None = None
    """None where the entry does not say."""
    sha256: str | None = None


def _read_entry(path: str) -> dict[str, Any]:
    """Return one entry, after its checksum was compared."""
    with open(path, "rb") as f:
        body = f.read()
    end = _SUM.search(body, max(0, len(body) - 100))
    # The checksum first: a damaged version must not look like another one.
    if end and hashlib.sha256(memoryview(body)[: end.start()]).hexdigest().encode() != end.group(1):
        raise CorruptError(f"{path}: the checksum of the entry is wrong{_MORE}")
    try:
        entry: dict[str, Any] = json.loads(body)
        version, schema = entry["version"], entry["schema_version"]
        newer = version > COMMIT_VERSION or schema > SCHEMA_VERSION
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise CorruptError(f"{path}: cannot be read: {err!r}{_MORE}") from err
    if newer or "replaces" in entry:
        raise NewerError(f"{path}: written by a newer version of rollout; install that version of rollout-rl")
    if (version >= 2) != bool(end):
        raise CorruptError(f"{path}: an entry of version {version} has {'no' if end is None else 'a'} checksum{_MORE}")
    return entry


def commits(run_dir: Path, after: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the entries of the commit log with seq > after, in order.

    To follow a run that is still collecting, call it again with the last seq.
    """
    folder = os.path.join(run_dir, "_commits")
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    run_id = None
    for name in sorted(n for n in names if _ENTRY.match(n)):
        seq = int(name[:20])
        if seq <= after:
            continue
        if seq != after + 1:
            raise CorruptError(f"{folder}: entry {after + 1} is missing{_MORE}")
        entry = _read_entry(os.path.join(folder, name))
        if entry["seq"] != seq:
            raise CorruptError(f"{folder}/{name}: the entry is number {entry['seq']}{_MORE}")
        run_id = run_id or entry.get("run_id")
        if entry.get("run_id") != run_id:
            raise CorruptError(f"{folder}/{name}: the entry is of run {entry.get('run_id')!r}, the log of run {run_id!r}{_MORE}")
        yield entry
        after = seq


def entry_shards(run_dir: Path, entry: dict[str, Any]) -> list[Shard]:
    """Return the shards that an entry names: at most one of each kind."""
    try:
        return [
            Shard(
                path=os.path.join(run_dir, *s["path"].split("/")),
                format=s["format"],
                kind=s["kind"],
                rows=s["rows"],
                tokens=s["tokens"]["total"],
                commit=entry["seq"],
                bytes=s.get("bytes"),
                sha256=s.get("sha256"),
            )
            for s in entry["shards"]
        ]
    except (KeyError, TypeError, AttributeError) as err:
        raise CorruptError(f"{run_dir}: entry {entry.get('seq')} of the commit log cannot be read: {err!r}{_MORE}") from err


def shards(run_dir: Path, kind: str = "data", after: int = 0) -> list[Shard]:
    """Return the committed shards of a kind, data or failures, in the order of the log."""
    return [s for entry in commits(run_dir, after) for s in entry_shards(run_dir, entry) if s.kind == kind]


def check_shard(shard: Shard, check: Check = "sha256") -> None:
    """Raise CorruptError unless the file is the one that was committed.

    check="sha256" reads all of it, at the speed of the disk or some GB/s from memory;
    check="size" looks at its size only.
    """
    if check not in ("sha256", "size"):
        raise ValueError(f"check={check!r}: must be 'sha256' or 'size'")
    try:
        size = os.path.getsize(shard.path)
        if shard.bytes is not None and size != shard.bytes:
            raise CorruptError(f"{shard.path}: {size} bytes, the commit log says {shard.bytes}{_MORE}")
        if check == "size" or shard.sha256 is None:
            return
        digest, block = hashlib.sha256(), memoryview(bytearray(1 << 18))  # stays in the cache
        with open(shard.path, "rb", buffering=0) as f:
            while n := f.readinto(block):
                digest.update(block[:n])
    except FileNotFoundError as err:
        raise CorruptError(f"{shard.path}: is missing, the commit log names it{_MORE}") from err
    if digest.hexdigest() != shard.sha256:
        raise CorruptError(f"{shard.path}: sha256 {digest.hexdigest()}, the commit log says {shard.sha256}{_MORE}")


def check_once(shard: Shard, check: Check) -> None:
    """Compare a file with the log, once per process; see check_shard."""
    mark = (os.path.abspath(shard.path), shard.sha256 if check == "sha256" else None)
    if mark not in _checked:
        check_shard(shard, check)
        _checked.add(mark)


def batches(shard: Shard, columns: Sequence[str] | None = None, check: Check = "sha256") -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a shard; columns=None means all.

    The file is checked first, see check_shard. An Arrow shard is mapped into memory
    and its batches are views; of a Parquet shard one row group at a time is decoded.
    """
    check_shard(shard, check)
    n = 0
    if shard.format == "arrow":
        with pa.memory_map(shard.path) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                n += batch.num_rows
                yield batch if columns is None else batch.select(list(columns))
    else:
        with pq.ParquetFile(shard.path) as file:
            for group in range(file.num_row_groups):
                part = file.read_row_group(group, columns=None if columns is None else list(columns))
                for batch in part.combine_chunks().to_batches():
                    n += batch.num_rows
                    yield batch
    if n != shard.rows:  # an Arrow stream cut between two batches looks whole
        raise CorruptError(f"{shard.path}: {n} rows, the commit log says {shard.rows}{_MORE}")


def table(run_dir: Path, kind: str = "data", columns: Sequence[str] | None = None, check: Check = "sha256") -> pa.Table:
    """Return all committed rows as one table, for looking at data rather than training.

    Columns that only newer shards have are null in the rows of older ones.
    """
    parts = [
        pa.Table.from_batches([batch]).replace_schema_metadata(None)
        for shard in shards(run_dir, kind)
        for batch in batches(shard, columns, check)
    ]
    return pa.concat_tables(parts, promote_options="default") if parts else pa.table({})


def getter(column: pa.Array) -> Callable[[int, int], list[Any]]:
    """Return a function from a range of rows to their values: numpy views for lists of numbers."""
    kind = column.type
    if (pa.types.is_signed_integer(kind) or pa.types.is_floating(kind)) and not column.null_count:
        plain = numbers(column)
        return lambda begin, end: plain[begin:end].tolist()
    if not (pa.types.is_list(kind) and pa.types.is_primitive(kind.value_type)):
        return lambda begin, end: column.slice(begin, end - begin).to_pylist()
    values, offsets = numbers(column.values), numbers(column.offsets)

    def lists(begin: int, end: int) -> list[Any]:
        return [values[a:b] for a, b in itertools.pairwise(offsets[begin : end + 1].tolist())]

    def lists_or_none(begin: int, end: int) -> list[Any]:
        valid = column.slice(begin, end - begin).is_valid().to_pylist()
        return [value if there else None for value, there in zip(lists(begin, end), valid, strict=True)]

    return lists_or_none if column.null_count else lists


def rows_of(names: Sequence[str], get: Sequence[Callable[[int, int], list[Any]]], begin: int, end: int) -> list[Row]:
    """Return a range of rows, of what getter gave for each column."""
    if not names:
        return [{} for _ in range(begin, end)]
    return [dict(zip(names, values, strict=True)) for values in zip(*[f(begin, end) for f in get], strict=True)]


def numbers(column: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of a column without null as a view of its memory.

    to_numpy would import pandas where it is installed: 36 MB in every worker.
    """
    kind = column.type
    if not (pa.types.is_signed_integer(kind) or pa.types.is_floating(kind)) or column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=True))
    dtype = np.dtype(f"{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}")
    memory = column.buffers()[1]
    if memory is None or not len(column):
        return np.empty(0, dtype)
    return np.frombuffer(memory, dtype, len(column), column.offset * dtype.itemsize)


def rows(shard: Shard, columns: Sequence[str] | None = None, start: int = 0, step: int = 1, check: Check = "sha256") -> Iterator[Row]:
    """Yield every step-th row of a shard from start on."""
    at = 0  # of the batch's first row in the shard
    for batch in batches(shard, columns, check):
        names, get = batch.schema.names, [getter(column) for column in batch.columns]
        first = start - at if start > at else (start - at) % step
        for i in range(first, batch.num_rows, step):
            yield rows_of(names, get, i, i + 1)[0]
        at += batch.num_rows
