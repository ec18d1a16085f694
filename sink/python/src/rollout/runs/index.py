"""The samples of a run and the positions of their rows, as numpy arrays.

An Index is built from the commit log alone. It uses about 70 bytes per sample and 200 per
group. It uses no memory per row, because the rows of a sample are consecutive. Shards are numbered
in the order of their commits, so merges change neither the order of samples nor the order of rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rollout._types import Path
from rollout.runs.entries import Entry, Log, corrupt_entry
from rollout.runs.log import Shard, entry_shards, fits

Span = tuple[int, int, int]
"""A range of rows: the number of the shard, the first row, and the row after the last row."""

ROWS, FAILED, EMPTY, SUPERSEDED = 0, 1, 2, 3
"""The outcomes of a sample. ROWS: the sample has rows. FAILED: it failed permanently. EMPTY: it
was committed without rows and without failures. SUPERSEDED: it failed, but a later outcome
replaced the failure."""


@dataclass
class Samples:
    """Samples in commit order. Every array has one entry per sample."""

    key: npt.NDArray[np.bytes_]
    group: npt.NDArray[np.int32]
    """Index of the group in Index.group_ids."""
    index: npt.NDArray[np.int32]
    """The column sample_index."""
    shard: npt.NDArray[np.int32]
    """Index of the shard in Index.shards, or -1 if the sample has no rows."""
    first: npt.NDArray[np.int32]
    """The number of the sample's first row in the shard."""
    rows: npt.NDArray[np.int32]
    outcome: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.key)

    @classmethod
    def placed(cls, shard: int, first: Sequence[int], rows: Sequence[int]) -> Samples:
        """Return samples for which only the places of the rows are known."""
        n, none = len(first), np.zeros(len(first), dtype=np.int32)
        places = np.full(n, shard, dtype=np.int32), np.asarray(first, dtype=np.int32), np.asarray(rows, dtype=np.int32)
        return cls(np.zeros(n, dtype="S1"), none, none, *places, np.full(n, ROWS, dtype=np.int8))


def outcome_of(rows: int, failures: int) -> int:
    """Return the outcome of a sample with the given numbers of rows and failures."""
    return ROWS if rows > 0 else FAILED if failures > 0 else EMPTY


class Index:
    """The contents of one run up to the last added commit."""

    def __init__(self, run_dir: Path, name: Path | None = None) -> None:
        self.run_dir = os.fspath(run_dir)
        self.name = os.fspath(run_dir if name is None else name)
        """The run's folder, or the folder of the fleet that the run is a partition of."""
        self.run_id = ""
        self.seq = 0  # the seq of the last commit
        self.shards: list[Shard] = []  # the data shards
        # For each shard, the number of the first row that the index covers, and how many rows it
        # covers.
        self.extents: list[tuple[int, int]] = []
        self.commits: list[tuple[int, int, int]] = []  # for each commit, the index of its shard, its rows and its tokens
        self.group_ids: list[str] = []
        self.group_sizes: list[int] = []
        self._log = Log(run_dir)
        self._group: dict[str, int] = {}
        self._parts: list[Samples] = []
        self._failed: dict[bytes, tuple[int, int]] = {}  # by sample key: the part and the index of its failure
        self._all: Samples | None = None

    def update(self, until: int | None = None) -> int:
        """Add the new commits in the log, up to commit `until`, and return how many there
        were."""
        had = len(self.commits)
        while until is None or self.seq < until:
            entry = self._log.next_entry()
            if entry is None:
                break
            self.add(entry.until(until))
            if until is not None and entry.commits[-1].seq >= until:
                self._log.rewind(until)
                break
        return len(self.commits) - had

    def add(self, entry: Entry) -> Samples:
        """Add the commits in an entry, which must be the next commits, and return their
        samples."""
        if not entry.commits:
            return self._make([], [], [], [], [], 0)
        body = entry.body
        with corrupt_entry(self.run_dir, body.get("seq")):
            files = {s.kind: s for s in entry_shards(self.run_dir, body)}
            first, part = self._samples_of(entry, files)
            ends = np.concatenate([[0], np.cumsum(part.rows)])
            begin = entry.commits[0].begin
            for c in entry.commits:
                self.commits.append((len(self.shards), int(ends[c.end - begin] - ends[c.begin - begin]), c.tokens))
        self.run_id, self.seq = body.get("run_id") or "", entry.commits[-1].seq
        if "data" in files:
            self.shards.append(files["data"])
            self.extents.append((first, int(ends[-1])))
        self._supersede(part)
        self._parts.append(part)
        self._all = None
        return part

    @property
    def samples(self) -> Samples:
        """All samples, in log order."""
        if self._all is None:
            parts = self._parts or [self._make([], [], [], [], [], 0)]
            columns = zip(*(vars(p).values() for p in parts), strict=True)
            self._all = Samples(*(np.concatenate(c) for c in columns))
            if self._parts:  # the parts become views of the joined arrays, so indexes into parts stay valid
                self._parts = self._views(self._all)
        return self._all

    def _views(self, whole: Samples) -> list[Samples]:
        ends = np.cumsum([len(p) for p in self._parts])
        return [Samples(*(c[e - len(p) : e] for c in vars(whole).values())) for p, e in zip(self._parts, ends, strict=True)]

    def _number(self, group_id: str, size: int) -> int:
        """Return the number of a group. If the group is new, assign it the next number."""
        number = self._group.setdefault(group_id, len(self.group_ids))
        if number == len(self.group_ids):
            self.group_ids.append(group_id)
            self.group_sizes.append(int(size))
        else:  # more samples were requested later
            self.group_sizes[number] = max(self.group_sizes[number], int(size))
        return number

    def _make(self, keys: Sequence[Any], group: Sequence[int], index: Sequence[int], rows: Sequence[int], failures: Sequence[int], first: int) -> Samples:
        """Return samples in the next shard. `first` is the number in the shard of their first
        row."""
        count = np.asarray(rows, dtype=np.int64)
        failed = np.asarray(failures, dtype=np.int64)
        outcome = np.where(count > 0, ROWS, np.where(failed > 0, FAILED, EMPTY)).astype(np.int8)
        return Samples(
            key=np.asarray(keys, dtype=np.bytes_) if len(keys) else np.empty(0, dtype="S1"),
            group=np.asarray(group, dtype=np.int32),
            index=np.asarray(index, dtype=np.int32),
            shard=np.where(count > 0, len(self.shards), -1).astype(np.int32),
            first=(first + np.cumsum(count) - count).astype(np.int32),
            rows=count.astype(np.int32),
            outcome=outcome,
        )

    def _samples_of(self, entry: Entry, files: dict[str, Shard]) -> tuple[int, Samples]:
        """Return the samples in an entry's commits. Also return the number of their first row in
        the shard."""
        fits(entry, files)
        every = entry.body["samples"] or []
        begin, end = entry.commits[0].begin, entry.commits[-1].end
        samples = every if end - begin == len(every) else every[begin:end]
        groups = entry.body["groups"] or []
        local = np.asarray([s["group"] for s in samples], dtype=np.int64)
        number = np.full(len(groups), -1, dtype=np.int64)
        # Skip groups that are only in the entry's other commits. An entry lists groups in the
        # order of their first samples.
        for g in np.unique(local).tolist() if entry.merge else range(len(groups)):
            number[g] = self._number(groups[g]["id"], groups[g]["size"])
        rows = [s["rows"] for s in samples]
        keys = [s["key"].encode() for s in samples]
        group = number[local].tolist() if local.size else []
        first = entry.before(begin)
        part = self._make(keys, group, [s["index"] for s in samples], rows, [s["failures"] for s in samples], first)
        return first, part

    def _supersede(self, part: Samples) -> None:
        """Mark a failure as superseded if the same sample has a later outcome."""
        number, failed = len(self._parts), part.outcome == FAILED
        if self._failed or failed.any():
            for place, (key, lost) in enumerate(zip(part.key.tolist(), failed.tolist(), strict=True)):
                had = self._failed.pop(key, None)
                if had is not None:
                    (part if had[0] == number else self._parts[had[0]]).outcome[had[1]] = SUPERSEDED
                if lost:
                    self._failed[key] = (number, place)
