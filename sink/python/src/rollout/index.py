"""Which samples a run has, and where their rows are, as numpy arrays.

An Index is filled from the commit log alone where its entries name groups (version
3); of older entries the small columns that name sample and group are read from the
shards. It costs about 70 bytes per sample and 200 per group; rows cost nothing,
because the rows of a sample lie one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rollout.errors import CorruptError
from rollout.log import Check, Path, Shard, batches, check_once, commits, entry_shards

Ints = npt.NDArray[np.int64]
Span = tuple[int, int, int]
"""Rows of a shard: its number, the first row, and the row after the last."""

ROWS, FAILED, EMPTY, SUPERSEDED = 0, 1, 2, 3
"""Outcome of a sample: it has rows; it failed for good; it was committed without a
row and without a failure; it failed, and a later success took its place."""

_PLACE = ["sample_key", "group_id", "group_size", "sample_index"]


@dataclass
class Samples:
    """Samples in the order of the log, an entry per sample in every array."""

    key: npt.NDArray[np.bytes_]
    group: npt.NDArray[np.int32]
    """Number of the group in Index.group_ids."""
    index: npt.NDArray[np.int32]
    """The column sample_index."""
    shard: npt.NDArray[np.int32]
    """Number of the shard in Index.shards, -1 without rows."""
    first: npt.NDArray[np.int32]
    """Row of the shard that is the sample's first."""
    rows: npt.NDArray[np.int32]
    outcome: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.key)


class Index:
    """What one run holds, up to the last entry that was added."""

    def __init__(self, run_dir: Path, check: Check = "sha256") -> None:
        self.run_dir = os.fspath(run_dir)
        self.check: Check = check
        self.run_id = ""
        self.seq = 0  # of the last entry
        self.shards: list[Shard] = []  # of data
        self.group_ids: list[str] = []
        self.group_sizes: list[int] = []
        self._group: dict[str, int] = {}
        self._parts: list[Samples] = []
        self._failed: dict[bytes, tuple[int, int]] = {}  # key: part and place of a failure
        self._lost: list[bytes] = []  # keys of samples whose group is not known yet
        self._tasks: dict[bytes, int] = {}  # of entries that name no groups: task to group
        self.superseded = 0
        self._all: Samples | None = None

    def update(self, until: int | None = None) -> int:
        """Add the new entries of the log, up to number until, and return how many."""
        n = 0
        for entry in commits(self.run_dir, after=self.seq):
            if until is not None and entry["seq"] > until:
                break
            self.add(entry)
            n += 1
        return n

    def add(self, entry: dict[str, Any]) -> Samples:
        """Add the next entry of the log and return its samples."""
        run_id = entry.get("run_id") or ""
        if self.run_id and run_id != self.run_id:
            said = f"entry {entry['seq']} is of run {run_id!r}, the log of run {self.run_id!r}"
            raise CorruptError(f"{self.run_dir}: {said}; rollout verify says more")
        files = {s.kind: s for s in entry_shards(self.run_dir, entry)}
        try:
            named = "groups" in entry
            part = self._of_entry(entry, files) if named else self._of_columns(entry, files)
        except (KeyError, TypeError, IndexError, ValueError, OverflowError) as err:
            said = f"entry {entry.get('seq')} of the commit log cannot be read: {err!r}"
            raise CorruptError(f"{self.run_dir}: {said}; rollout verify says more") from err
        self.run_id, self.seq = run_id, entry["seq"]
        if "data" in files:
            self.shards.append(files["data"])
        self._supersede(part)
        self._parts.append(part)
        self._all = None
        return part

    @property
    def outcomes(self) -> int:
        """How many samples have an outcome in the log."""
        return sum(len(p) for p in self._parts) + len(self._lost) - self.superseded

    @property
    def last(self) -> Samples:
        """The samples of the last entry."""
        return self._parts[-1]

    @property
    def samples(self) -> Samples:
        """All samples, in the order of the log."""
        if self._all is None:
            parts = self._parts or [self._make([], [], [], [], [])]
            columns = zip(*(vars(p).values() for p in parts), strict=True)
            self._all = Samples(*(np.concatenate(c) for c in columns))
            if self._parts:  # one copy only; the places of failures stay what they are
                self._parts = self._views(self._all)
        return self._all

    def _views(self, whole: Samples) -> list[Samples]:
        ends = np.cumsum([len(p) for p in self._parts])
        return [Samples(*(c[e - len(p) : e] for c in vars(whole).values())) for p, e in zip(self._parts, ends, strict=True)]

    def _number(self, group_id: str, size: int) -> int:
        """Return the number of a group, a new one if it is."""
        number = self._group.setdefault(group_id, len(self.group_ids))
        if number == len(self.group_ids):
            self.group_ids.append(group_id)
            self.group_sizes.append(int(size))
        else:  # more samples were asked for later
            self.group_sizes[number] = max(self.group_sizes[number], int(size))
        return number

    def _make(self, keys: Sequence[Any], group: Sequence[int], index: Sequence[int], rows: Sequence[int], failures: Sequence[int]) -> Samples:
        count = np.asarray(rows, dtype=np.int64)
        failed = np.asarray(failures, dtype=np.int64)
        if count.size and (count.min() < 0 or failed.min() < 0):
            raise ValueError("a sample has a negative number of rows or failures")
        outcome = np.where(count > 0, ROWS, np.where(failed > 0, FAILED, EMPTY)).astype(np.int8)
        return Samples(
            key=np.asarray(keys, dtype=np.bytes_) if len(keys) else np.empty(0, dtype="S1"),
            group=np.asarray(group, dtype=np.int32),
            index=np.asarray(index, dtype=np.int32),
            shard=np.where(count > 0, len(self.shards), -1).astype(np.int32),
            first=(np.cumsum(count) - count).astype(np.int32),
            rows=count.astype(np.int32),
            outcome=outcome,
        )

    def _of_entry(self, entry: dict[str, Any], files: dict[str, Shard]) -> Samples:
        """Take everything from an entry that names groups."""
        number = np.asarray([self._number(g["id"], g["size"]) for g in entry["groups"] or []], dtype=np.int64)
        samples = entry["samples"] or []
        local = np.asarray([s["group"] for s in samples], dtype=np.int64)
        if local.size and local.min() < 0:
            raise IndexError("a sample has a negative group")
        rows = [s["rows"] for s in samples]
        keys = [s["key"].encode() for s in samples]
        group = number[local].tolist() if local.size else []
        part = self._make(keys, group, [s["index"] for s in samples], rows, [s["failures"] for s in samples])
        self._compare(sum(rows), files)
        return part

    def _of_columns(self, entry: dict[str, Any], files: dict[str, Shard]) -> Samples:
        """Take the groups from the columns of the entry's shards."""
        keys: list[bytes] = []
        group: list[int] = []
        index: list[int] = []
        rows: list[int] = []
        failures: list[int] = []
        seen: dict[bytes, int] = {}
        for kind, count in (("data", rows), ("failures", failures)):
            if kind not in files:
                continue
            for key, gid, size, at in self._places(files[kind]):
                k = key.encode()
                if kind == "data" and keys and keys[-1] == k:
                    rows[-1] += 1
                    continue
                place = seen.get(k)
                if place is None:
                    place = seen[k] = len(keys)
                    keys.append(k)
                    group.append(self._number(gid, size))
                    index.append(at)
                    rows.append(0)
                    failures.append(0)
                elif kind == "data":
                    raise ValueError(f"the rows of sample {key} are not together")
                count[place] += 1
        self._compare(sum(rows), files)
        # A sample without rows and failures is in no column. The keys of a group's samples
        # differ in their ends, which are the indices, so its siblings tell the group.
        self._tasks.update((k.rpartition(b"-")[0], g) for k, g in zip(keys, group, strict=True))
        self._lost += [s["key"].encode() for s in entry["samples"] or [] if s["rows"] == 0 and s["failures"] == 0]
        lost, self._lost = self._lost, []
        for k in lost:
            task, _, end = k.rpartition(b"-")
            if task in self._tasks and end.isdigit():
                keys.append(k)
                group.append(self._tasks[task])
                index.append(int(end))
                rows.append(0)
                failures.append(0)
            else:
                self._lost.append(k)
        return self._make(keys, group, index, rows, failures)

    def _places(self, shard: Shard) -> Iterator[tuple[str, str, int, int]]:
        check_once(shard, self.check)
        for batch in batches(shard, _PLACE, "size"):
            yield from zip(*(batch.column(name).to_pylist() for name in _PLACE), strict=True)

    def _compare(self, rows: int, files: dict[str, Shard]) -> None:
        said = files["data"].rows if "data" in files else 0
        if rows != said:
            raise ValueError(f"its samples have {rows} rows, its shard has {said}")

    def _supersede(self, part: Samples) -> None:
        """Let the later outcome of a key take the place of its earlier failure."""
        number = len(self._parts)
        if self._failed:
            for key in part.key.tolist():
                had = self._failed.pop(key, None)
                if had is not None:
                    self._parts[had[0]].outcome[had[1]] = SUPERSEDED
                    self.superseded += 1
        for place in np.flatnonzero(part.outcome == FAILED).tolist():
            self._failed[bytes(part.key[place])] = (number, place)
