"""Read the data of a rollout run, from PyTorch or without it.

    from rollout_data import RolloutDataset, collate
    loader = torch.utils.data.DataLoader(
        RolloutDataset("runs/r1"), batch_size=8, num_workers=4, collate_fn=collate)

Needs pyarrow and numpy; torch only for RolloutDataset and collate. One file: copy
it where you need it.

A run's folder holds shards in data/ and a commit log in _commits/. A shard exists
only if an entry of the log names it: never list data/ yourself, for it may hold
what an interrupted run left behind. The log grows while rollouts are collected;
what it names never changes. Every entry has a checksum, and so has every file that
it names: what differs is a CorruptError. Whoever trusts the disk and wants each
Arrow file mapped without being read once before passes check="size".

A row is a dict by column name. The columns with an entry per token are numpy
arrays of length T, unshifted and unpadded:

    input_ids   int32    the whole sequence
    loss_mask   int8     1 where the policy sampled the token
    logprobs    float32  of token i at [i]; exactly 0.0 where the mask is 0
    versions    int32    policy version per token, -1 where not sampled; or None

turn_offsets (int32, K+1) and turn_roles (int8, K; 0 prompt, 1 assistant, 2 tool,
3 user) cut the row into spans. reward is a float, or None where it was not scored.
Arrays of Arrow shards are read-only views of the mapped file: no copy is made.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError:  # everything but RolloutDataset and collate works
    torch = None
    IterableDataset = object

    def get_worker_info():
        return None


COMMIT_VERSION = 2
SCHEMA_VERSION = 1

_ENTRY = re.compile(r"^\d{20}\.json$")
# An entry of version 2 ends so: the SHA-256 of all bytes before that comma.
_SUM = re.compile(rb',"sha256":"([^"]{64})"}\n\Z')


class Shard(NamedTuple):
    """A committed file; see the commit entry for what else it says."""

    path: str  # absolute, or relative to where run_dir is
    format: str  # parquet or arrow
    kind: str  # data or failures
    rows: int
    tokens: int
    commit: int  # seq of the entry
    bytes: Optional[int] = None  # None: the entry does not say
    sha256: Optional[str] = None


class CorruptError(Exception):
    """The log or a shard is not what it should be; `rollout verify` says more."""


def _read_entry(path: str) -> Dict[str, Any]:
    """One entry, after its checksum."""
    with open(path, "rb") as f:
        body = f.read()
    end = _SUM.search(body)
    # The checksum first: a damaged version must not look like another one.
    if end and hashlib.sha256(body[: end.start()]).hexdigest().encode() != end.group(1):
        raise CorruptError(f"{path}: the checksum of the entry is wrong; rollout verify says more")
    try:
        entry = json.loads(body)
        version, schema = entry["version"], entry["schema_version"]
        newer = version > COMMIT_VERSION or schema > SCHEMA_VERSION
    except (ValueError, KeyError, TypeError) as err:
        raise CorruptError(f"{path}: cannot be read: {err!r}; rollout verify says more") from err
    if newer or "replaces" in entry:
        raise CorruptError(f"{path}: written by a newer version of rollout; use its rollout_data.py")
    if (version >= 2) != bool(end):
        raise CorruptError(f"{path}: an entry of version {version} has {'no' if end else 'a'} checksum; rollout verify says more")
    return entry


def commits(run_dir: str, after: int = 0) -> Iterator[Dict[str, Any]]:
    """Yield the entries of the commit log with seq > after, in order.

    To follow a run that is still collecting, call it again with the last seq.
    """
    folder = os.path.join(run_dir, "_commits")
    if not os.path.isdir(folder):
        return
    run_id = None
    for name in sorted(n for n in os.listdir(folder) if _ENTRY.match(n)):
        seq = int(name[:20])
        if seq <= after:
            continue
        if seq != after + 1:
            raise CorruptError(f"{folder}: entry {after + 1} is missing")
        entry = _read_entry(os.path.join(folder, name))
        if entry["seq"] != seq:
            raise CorruptError(f"{folder}/{name}: the entry is number {entry['seq']}")
        run_id = run_id or entry.get("run_id")
        if entry.get("run_id") != run_id:
            raise CorruptError(f"{folder}/{name}: the entry is of run {entry.get('run_id')!r}, the log of run {run_id!r}")
        yield entry
        after = seq


def shards(run_dir: str, kind: str = "data", after: int = 0) -> List[Shard]:
    """The committed shards of a kind, data or failures, in the order of the log."""
    return [
        Shard(
            path=os.path.join(run_dir, *s["path"].split("/")),
            format=s["format"], kind=s["kind"], rows=s["rows"],
            tokens=s["tokens"]["total"], commit=entry["seq"], bytes=s.get("bytes"), sha256=s.get("sha256"),
        )
        for entry in commits(run_dir, after)
        for s in entry["shards"]
        if s["kind"] == kind
    ]


def check_shard(shard: Shard, check: str = "sha256") -> None:
    """Raise CorruptError unless the file is the one that was committed.

    check="sha256" reads all of it, at the speed of the disk or some GB/s from memory;
    check="size" looks at its size only.
    """
    if check not in ("sha256", "size"):
        raise ValueError(f"check={check!r}: must be 'sha256' or 'size'")
    try:
        size = os.path.getsize(shard.path)
        if shard.bytes is not None and size != shard.bytes:
            raise CorruptError(f"{shard.path}: {size} bytes, the commit log says {shard.bytes}; rollout verify says more")
        if check == "size" or shard.sha256 is None:
            return
        digest = hashlib.sha256()
        with open(shard.path, "rb", buffering=0) as f:
            while block := f.read(1 << 20):
                digest.update(block)
    except FileNotFoundError as err:
        raise CorruptError(f"{shard.path}: is missing, the commit log names it; rollout verify says more") from err
    if digest.hexdigest() != shard.sha256:
        raise CorruptError(f"{shard.path}: sha256 {digest.hexdigest()}, the commit log says {shard.sha256}; rollout verify says more")


def batches(shard: Shard, columns: Optional[Sequence[str]] = None, check: str = "sha256") -> Iterator[pa.RecordBatch]:
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
                table = file.read_row_group(group, columns=None if columns is None else list(columns))
                for batch in table.combine_chunks().to_batches():
                    n += batch.num_rows
                    yield batch
    if n != shard.rows:  # an Arrow stream cut between two batches looks whole
        raise CorruptError(f"{shard.path}: {n} rows, the commit log says {shard.rows}")


def table(run_dir: str, kind: str = "data", columns: Optional[Sequence[str]] = None, check: str = "sha256") -> pa.Table:
    """All committed rows as one table, for looking at data rather than training."""
    parts = [b for s in shards(run_dir, kind) for b in batches(s, columns, check)]
    if not parts:
        return pa.table({})
    schema = parts[0].schema.remove_metadata()
    return pa.Table.from_batches([b.replace_schema_metadata(None) for b in parts], schema=schema)


def _getter(column: pa.Array):
    """A function from the row's index to its value: a numpy view for lists of numbers."""
    kind = column.type
    if not (pa.types.is_list(kind) and pa.types.is_primitive(kind.value_type)):
        return lambda i: column[i].as_py()
    values = column.values.to_numpy(zero_copy_only=True)
    offsets = column.offsets.to_numpy(zero_copy_only=True)
    if column.null_count == 0:
        return lambda i: values[offsets[i] : offsets[i + 1]]
    return lambda i: values[offsets[i] : offsets[i + 1]] if column[i].is_valid else None


def rows(
    shard: Shard, columns: Optional[Sequence[str]] = None, start: int = 0, step: int = 1, check: str = "sha256"
) -> Iterator[Dict[str, Any]]:
    """Yield every step-th row of a shard from start on, as dicts."""
    at = 0  # of the batch's first row in the shard
    for batch in batches(shard, columns, check):
        get = [(name, _getter(batch.column(i))) for i, name in enumerate(batch.schema.names)]
        first = start - at if start > at else (start - at) % step
        for i in range(first, batch.num_rows, step):
            yield {name: f(i) for name, f in get}
        at += batch.num_rows


class RolloutDataset(IterableDataset):
    """The committed rows of one or several runs, shared out over ranks and workers.

    Every row is yielded exactly once over all ranks and the workers of their
    DataLoaders. by="shard" gives each of them whole files, the i-th to the worker
    i modulo their number: the fastest, but some stay empty if there are fewer
    files than workers. by="row" gives each every n-th row of every file: even, at
    the price of each decoding all of a Parquet file (an Arrow file costs its check).
    Each file is checked before its rows, see check_shard: check="size" is faster.

    rank and world_size are those of torch.distributed where it is initialised.
    The log is read anew by each iteration, so an epoch sees what was committed
    when it began.
    """

    def __init__(
        self,
        run_dirs,
        columns: Optional[Sequence[str]] = None,
        by: str = "shard",
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        check: str = "sha256",
    ):
        if torch is None:
            raise ImportError("RolloutDataset needs torch; rows() and table() do not")
        if by not in ("shard", "row"):
            raise ValueError(f"by={by!r}: must be 'shard' or 'row'")
        self.run_dirs = [run_dirs] if isinstance(run_dirs, (str, os.PathLike)) else list(run_dirs)
        if check not in ("sha256", "size"):
            raise ValueError(f"check={check!r}: must be 'sha256' or 'size'")
        self.columns, self.by, self.check = columns, by, check
        if rank is None or world_size is None:
            dist = torch.distributed
            on = dist.is_available() and dist.is_initialized()
            rank, world_size = (dist.get_rank(), dist.get_world_size()) if on else (0, 1)
        self.rank, self.world_size = rank, world_size

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        worker = get_worker_info()
        workers, me = (worker.num_workers, worker.id) if worker else (1, 0)
        count, number = self.world_size * workers, self.rank * workers + me
        files = [s for d in self.run_dirs for s in shards(os.fspath(d))]
        seen = 0  # rows of the files before
        for i, shard in enumerate(files):
            if self.by == "shard":
                if i % count == number:
                    yield from rows(shard, self.columns, check=self.check)
            else:
                yield from rows(shard, self.columns, start=(number - seen) % count, step=count, check=self.check)
                seen += shard.rows


def collate(batch: Sequence[Dict[str, Any]], pad_id: int = 0):
    """Pad rows on the right to the longest, as tensors of shape [B, T].

    attention_mask is 1 on tokens and 0 on padding, where loss_mask is 0 as well.
    reward is NaN where it is null.
    """
    length = max(len(r["input_ids"]) for r in batch)
    fill = {"input_ids": (torch.int64, pad_id), "loss_mask": (torch.int8, 0), "logprobs": (torch.float32, 0.0)}
    out = {name: torch.full((len(batch), length), value, dtype=dtype) for name, (dtype, value) in fill.items()}
    out["attention_mask"] = torch.zeros((len(batch), length), dtype=torch.int8)
    for i, row in enumerate(batch):
        n = len(row["input_ids"])
        out["attention_mask"][i, :n] = 1
        for name in fill:
            # A copy: the views are read-only, and tensors cannot be.
            out[name][i, :n] = torch.from_numpy(row[name].copy())
    if "reward" in batch[0]:
        nan = float("nan")
        out["reward"] = torch.tensor([nan if r["reward"] is None else r["reward"] for r in batch], dtype=torch.float64)
    for name in ("sample_key", "group_id"):
        if name in batch[0]:
            out[name] = [r[name] for r in batch]
    return out
