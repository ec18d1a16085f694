"""Reads the commit log of a run, its shards, and the rows in the shards.

A run's folder has shards in data/ and a commit log in _commits/. A shard is part of the run only
if an entry of the log names it. Never list data/ yourself, because it can contain leftovers of an
interrupted run, and files that a merge is about to move. The log grows during the run. The
content of the files that the log names never changes, but the files can move (see
rollout.runs.entries). Every entry and every file that it names has a checksum. If a checksum
differs, CorruptError is raised. check="size" skips the checksums of files, so an Arrow file does
not have to be read before it is mapped.

A run can also be in a bucket, or be a fleet; see rollout.runs._store and Dataset. The functions commits, shards and table
then read all partitions. In a bucket, only check_shard reads a whole Parquet shard; check="sha256" does not.

This module reads rows in file order. Dataset reads whole groups.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rollout._args import filepath, integer, one_of, texts
from rollout._types import Path, Row
from rollout.errors import SEE_VERIFY, CorruptError
from rollout.runs import _store as store
from rollout.runs.entries import Entry, Log, corrupt_entry, entries
from rollout.runs.scores import REPLACED, Scores, open_again, open_scores, scores_name

Check = Literal["sha256", "size"]
T = TypeVar("T")

CHECKED = 1 << 12
"""How many verified files a process remembers."""
MOVES = 16
"""How many times to search for a file that keeps moving."""

# The files that this process or its parent has verified, oldest first.
_checked: dict[tuple[str, str | None], None] = {}


class Shard(NamedTuple):
    """A committed file. The log entry contains more information about the file."""

    path: str
    """The path of the file: absolute, or relative to the parent of the run's folder."""
    format: str
    """parquet or arrow."""
    kind: str
    """data or failures."""
    rows: int
    tokens: int
    commit: int
    """The seq of the entry that names the file."""
    bytes: int
    sha256: str
    first: int = sys.maxsize
    """The seq of the first commit with rows or failures in the file. For a merge, it is less than
    the field commit."""

    @property
    def merged(self) -> bool:
        """Whether a merge wrote the file."""
        return self.first < self.commit


def commits(run_dir: Path, after: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the entries of the commit log that have commits with seq > after, in commit order.

    The entry of a merge contains the samples of several commits, and replaces their entries. The
    entry's member "merged" contains the number of samples per commit. The first commits in it can
    have numbers up to `after`. To follow a run in progress, call this function again with the
    last seq. For a fleet, the entries of the partitions follow each other, so `after` must be 0.
    """
    return (entry.body for folder in _folders(run_dir, after) for entry in entries(folder, after))


def _folders(run_dir: Path, after: int) -> list[str]:
    """Check the arguments, and return the folders of the partitions, or the run's own."""
    filepath("run_dir", run_dir)
    integer("after", after, 0)
    folders = store.partitions(run_dir)
    if after and folders != [os.fspath(run_dir)]:
        raise ValueError(f"after={after}: the partitions of a fleet have their own numbers: pass the folder of a partition")
    return folders


def entry_shards(run_dir: Path, entry: dict[str, Any]) -> list[Shard]:
    """Return the shards that an entry names. There is at most one of each kind."""
    with corrupt_entry(run_dir, entry.get("seq")):
        return [
            Shard(
                path=store.join(run_dir, *s["path"].split("/")),
                format=s["format"],
                kind=s["kind"],
                rows=s["rows"],
                tokens=s["tokens"]["total"],
                commit=entry["seq"],
                bytes=s["bytes"],
                sha256=s["sha256"],
                first=entry["merged"][0]["seq"] if "merged" in entry else entry["seq"],
            )
            for s in entry["shards"]
        ]
    raise AssertionError  # corrupt_entry raises


def fits(entry: Entry, files: dict[str, Shard]) -> None:
    """Raise ValueError or IndexError unless the samples in an entry are valid and match its
    shards."""
    samples = entry.body["samples"] or []
    if min((s["group"] for s in samples), default=0) < 0:
        raise IndexError("a sample has a negative group")
    if min((s[what] for what in ("rows", "failures") for s in samples), default=0) < 0:
        raise ValueError("a sample has a negative number of rows or failures")
    rows, held = sum(s["rows"] for s in samples), files["data"].rows if "data" in files else 0
    if rows != held:
        raise ValueError(f"its samples have {rows} rows, but its shard has {held}")


def shards(run_dir: Path, kind: str = "data", after: int = 0) -> list[Shard]:
    """Return the committed shards of the kind "data" or "failures", in log order.

    A merge can copy the rows of a shard to another shard, move the shard from data/ to replaced/
    and delete it later. Every function in this package that reads a shard still finds its rows.
    """
    one_of("kind", kind, ("data", "failures"))
    return [
        s
        for folder in _folders(run_dir, after)
        for entry in entries(folder, after)
        for s in entry_shards(folder, entry.body)
        if s.kind == kind
    ]


def find(shard: Shard) -> tuple[Shard, int]:
    """Find the rows of a shard.

    Return the shard that contains these rows now, and the number of their first row in that
    shard. It is the given shard, in data/ or replaced/, or the shard of a merge that has replaced
    it. Raises CorruptError if the rows are in neither shard.
    """
    for path in (shard.path, replaced(shard.path)):
        if store.exists(path):
            return shard._replace(path=path), 0
    run_dir = run_of(shard.path)
    merge = Log(run_dir).merge_of(shard.commit)
    if merge is None:
        raise CorruptError(f"{shard.path}: the file is missing, although the commit log lists it{SEE_VERIFY}")
    with corrupt_entry(run_dir, merge.seq):
        first = min(c.begin for c in merge.commits if c.seq >= shard.first)
        (found,) = (s for s in entry_shards(run_dir, merge.body) if s.kind == shard.kind)
        return found, merge.before(first, "rows" if shard.kind == "data" else "failures")
    raise AssertionError  # corrupt_entry raises


def replaced(path: str) -> str:
    """Return the path to which a merge moves a file from data/ or failures/."""
    folder, name = store.split(path)
    run_dir, kind = store.split(folder)
    return path if store.split(run_dir)[1] == "replaced" else store.join(run_dir, "replaced", kind, name)


def run_of(path: str) -> str:
    """Return the folder of the run to which a shard belongs."""
    folder, name = store.split(store.split(store.split(path)[0])[0])
    return folder if name == "replaced" else store.join(folder, name)


def follow_moves(shard: Shard, use: Callable[[Shard, int], T]) -> T:
    """Call `use` with the result of find. If the rows move during the call, find them again and
    repeat the call."""
    begin = 0
    for _ in range(MOVES):
        try:
            return use(shard, begin)
        except FileNotFoundError:
            shard, more = find(shard)
            begin += more
    raise CorruptError(f"{shard.path}: the file is missing, although the commit log lists it{SEE_VERIFY}")


def verify_file(shard: Shard, check: Check, whole: bool = False) -> None:
    """Like check_shard, but only check the file at the shard's path. Raises FileNotFoundError if
    no file is there. In a bucket, check the digest only if `whole` is true."""
    one_of("check", check, ("sha256", "size"))
    size = store.size(shard.path)
    if size != shard.bytes:
        raise CorruptError(f"{shard.path}: the file has {size} bytes, but the commit log lists {shard.bytes}{SEE_VERIFY}")
    if check == "size" or store.remote(shard.path) and not whole:
        return
    digest = store.digest(shard.path)
    if digest != shard.sha256:
        raise CorruptError(f"{shard.path}: the file has sha256 {digest}, but the commit log lists {shard.sha256}{SEE_VERIFY}")


def check_shard(shard: Shard, check: Check = "sha256") -> None:
    """Raise CorruptError unless the file is identical to the file that was committed.

    check="sha256" reads the whole file, at the speed of the disk, or at a few GB/s from the page
    cache. check="size" only compares the size. The file is located with find.
    """
    follow_moves(shard, lambda at, _: verify_file(at, check, whole=True))


def verify_once(shard: Shard, check: Check) -> None:
    """Like verify_file, but verify each file only once per process."""
    mark = (shard.path if store.remote(shard.path) else os.path.abspath(shard.path), shard.sha256 if check == "sha256" else None)
    if mark not in _checked:
        verify_file(shard, check)
        _checked[mark] = None
        if len(_checked) > CHECKED:
            del _checked[next(iter(_checked))]


def batches(
    shard: Shard, columns: Sequence[str] | None = None, check: Check = "sha256", *, scores: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a shard; columns=None means all columns.

    The file is verified first; see check_shard. An Arrow shard is mapped into memory and its
    batches are views. A Parquet shard is decoded one row group at a time.

    scores: the scores set whose rewards the rows get; see Dataset.
    """
    scores_name(scores)
    found = open_again(run_of(shard.path), scores) if shard.kind == "data" else None
    return _scored(shard, columns, check, found)


def _scored(shard: Shard, columns: Sequence[str] | None, check: Check, found: Scores | None) -> Iterator[pa.RecordBatch]:
    texts("columns", columns, none=True)
    if found is None or columns is not None and not set(columns) & set(REPLACED):
        yield from _stored(shard, columns, check)
        return
    names = columns if columns is None or "sample_key" in columns else [*columns, "sample_key"]
    for batch in _stored(shard, names, check):
        batch = found.replaced(batch, found.index(batch["sample_key"]))
        yield batch if columns is None else batch.select(list(columns))


def _stored(shard: Shard, columns: Sequence[str] | None, check: Check) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a shard with the scores in the rows."""

    def opened(at: Shard, begin: int) -> tuple[Shard, int, Any]:
        verify_file(at, check)
        if at.format == "parquet":
            with store.requests(at.path):
                return at, begin, store.parquet(at.path)
        return at, begin, pa.BufferReader(store.copied(at.path, at.sha256)) if store.remote(at.path) else pa.memory_map(at.path)

    at, begin, source = follow_moves(shard, opened)
    n = 0
    with source:
        for batch in _all(source, at, columns):
            first, end = max(0, begin - n), min(batch.num_rows, begin + shard.rows - n)
            n += batch.num_rows
            if first < end:
                yield batch if end - first == batch.num_rows else batch.slice(first, end - first)
    if n != at.rows:  # an Arrow stream truncated between two batches looks complete
        raise CorruptError(f"{at.path}: the file has {n} rows, but the commit log lists {at.rows}{SEE_VERIFY}")


def _all(source: Any, shard: Shard, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    texts("columns", columns, none=True)
    names = None if columns is None else list(columns)
    if shard.format == "arrow":
        with pa.ipc.open_stream(source) as reader:
            for batch in reader:
                yield batch if names is None else batch.select(names)
    else:
        for group in range(source.num_row_groups):
            with store.requests(shard.path):
                table = source.read_row_group(group, columns=names)
            yield from table.combine_chunks().to_batches()


def table(
    run_dir: Path, kind: str = "data", columns: Sequence[str] | None = None, check: Check = "sha256", *, scores: str | None = None
) -> pa.Table:
    """Return all committed rows as one table, for analysis rather than training.

    scores: the scores set whose rewards the rows get; see Dataset.
    """
    one_of("kind", kind, ("data", "failures"))
    texts("columns", columns, none=True)
    one_of("check", check, ("sha256", "size"))
    scores_name(scores)
    folders = {folder: open_scores(folder, scores) for folder in _folders(run_dir, 0)} if kind == "data" else {}
    parts = [
        pa.Table.from_batches([batch]).replace_schema_metadata(None)
        for shard in shards(run_dir, kind)
        for batch in _scored(shard, columns, check, folders.get(run_of(shard.path)))
    ]
    return pa.concat_tables(parts) if parts else pa.table({})


def getter(column: pa.Array, schema: pa.Schema | None = None) -> Callable[[int], Any]:
    """Return a function that returns the value in the row with a given number. A list of numbers
    is returned as a numpy view, and so are routed experts if the schema of the file is given."""
    kind = column.type
    if pa.types.is_binary(kind) and schema is not None and (text := (schema.metadata or {}).get(b"rollout.routed_experts")):
        form = json.loads(text)
        dtype, shape = np.dtype(form["dtype"]), form["shape"]
        return lambda i: np.frombuffer(column[i].as_buffer(), dtype).reshape(-1, *shape) if column[i].is_valid else None
    if (pa.types.is_signed_integer(kind) or pa.types.is_floating(kind)) and not column.null_count:
        return numbers(column).item
    if not (pa.types.is_list(kind) and pa.types.is_primitive(kind.value_type)):
        return lambda i: column[i].as_py()
    values, ends = numbers(column.values), numbers(column.offsets).tolist()
    valid = column.is_valid().to_pylist() if column.null_count else None
    if valid is None:
        return lambda i: values[ends[i] : ends[i + 1]]
    return lambda i: values[ends[i] : ends[i + 1]] if valid[i] else None


def numbers(column: pa.Array) -> npt.NDArray[Any]:
    """Return a numpy view of a column of numbers without nulls.

    pyarrow's to_numpy would import pandas if pandas is installed, which takes 36 MB in every
    worker.
    """
    kind = column.type
    if not (pa.types.is_signed_integer(kind) or pa.types.is_floating(kind)) or column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=True))
    dtype = np.dtype(f"{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}")
    memory = column.buffers()[1]
    if memory is None or not len(column):
        return np.empty(0, dtype)
    return np.frombuffer(memory, dtype, len(column), column.offset * dtype.itemsize)


def rows(shard: Shard, columns: Sequence[str] | None = None, *, check: Check = "sha256", scores: str | None = None) -> Iterator[Row]:
    """Yield the rows of a shard.

    scores: the scores set whose rewards the rows get; see Dataset.
    """
    for batch in batches(shard, columns, check, scores=scores):
        get = {name: getter(column, batch.schema) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        for i in range(batch.num_rows):
            yield Row({name: value(i) for name, value in get.items()})
