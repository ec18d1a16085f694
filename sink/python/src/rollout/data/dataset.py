"""Reads one or more runs, group by group."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, SupportsIndex

import numpy as np

from rollout._args import flag, instance, integer, one_of, paths, real, texts
from rollout._types import Group, Path, Row
from rollout.data.loader import Batches
from rollout.data.order import Fill
from rollout.errors import CorruptError, StateError
from rollout.runs._store import check_run, each, partitions
from rollout.runs.entries import Log
from rollout.runs.follow import Following
from rollout.runs.index import Index
from rollout.runs.log import Check
from rollout.runs.scores import COLLECTED, Scores, open_scores, scores_name
from rollout.runs.select import Counts, Selection, Where, select
from rollout.runs.shards import Files


class Dataset:
    """The groups of one or more runs. A group contains all rows of all samples of a task.

        ds = rollout.Dataset("run1")
        for batch in ds.batches(groups=8, seed=1):   # list of Group
            ...

    Groups are in the order of their first committed rows. Merges of shards do not change this
    order. With several runs, all groups of the first run come before the groups of the second
    run, and so on. Groups with the same id in two runs are different groups. A sample that failed
    and later succeeded counts once, as a success.

    runs: the folder of a run or of a fleet, a URL such as s3://bucket/run1, or several of them. If
        a folder is given twice, its groups are yielded twice. A fleet is read like a run.
    where: the filters (see Where). By default they drop incomplete groups, and samples with
        keep=false. The property counts has the numbers of dropped groups, samples and rows.
    columns: the columns to read; None reads all columns. A column is decoded when a value in it
        is first accessed, so columns of a Parquet shard that are never accessed cost nothing. A
        row is a dict, and dict(row) reads all its columns.
    check: "sha256" verifies the checksum of each file before its first row is read. The process
        and its workers verify each file only once. "size" only compares sizes. In a bucket, both
        values compare the size, and verify the checksum of each Parquet page when it is read and of
        each Arrow shard.
    scores: the name of the scores set from which the rewards come, such as "0001"; see `rollout
        rescore`. "collected" stands for the rewards in the rows. None: the newest complete set of
        each run at the time the dataset is created, or the rewards in the rows if there is none. The
        columns reward, reward_details, keep and keep_reason then have the values of the set. A
        sample that was collected after the set has a null reward. A snapshot and a saved state have
        the name of the set, and keep it even if there is a newer set.
    follow: yield the groups of a run in progress as they become complete; see Following. Such a
        dataset has no length.
    timeout: with follow=True, how many seconds to wait for a new commit before TimeoutError is
        raised. None waits forever, because a stopped collector can be resumed.

    The log is read when the dataset is created, and rows are read when they are accessed. If
    several ranks open a run in progress, each rank might read the log up to a different commit.
    So all ranks should use the snapshot of one rank (see the method at).

    A dataset uses about 100 bytes per sample and 200 bytes per group, plus the data being read.
    Parquet is decoded in row groups of a million tokens. The row groups that were used last are
    cached: at least two, or more if they fit in 64 MB. Iteration and batches() decode each row
    group once. If you access ds[i] in another order, each access can decode a row group again.
    Arrow shards are mapped, and the arrays of their rows are read-only views.

    Raises CorruptError if a file does not match the log, and StoreError if a bucket cannot be read.
    """

    def __init__(
        self,
        runs: Path | Iterable[Path],
        *,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
        check: Check = "sha256",
        scores: str | None = None,
        follow: bool = False,
        timeout: float | None = None,
    ) -> None:
        self.runs = paths("runs", runs)
        instance("where", where, Where, "a rollout.Where", none=True)
        texts("columns", columns, none=True)
        one_of("check", check, ("sha256", "size"))
        scores_name(scores)
        flag("follow", follow)
        real("timeout", timeout, 0, none=True)
        if not self.runs:
            raise ValueError("runs is empty: pass the folder of a run")
        self._folders: list[tuple[str, str]] = []  # for each run or partition of a fleet: its folder, and the given path
        for run in self.runs:
            check_run(run)
            self._folders += ((folder, run) for folder in partitions(run))
        self.where = where or Where()
        self.columns = None if columns is None else list(columns)
        self.check: Check = check
        self.follow, self.timeout = follow, timeout
        if timeout is not None and not follow:
            raise ValueError(f"timeout={timeout:g} needs follow=True")
        if follow and len(self.runs) > 1:
            raise ValueError("follow=True needs exactly one run: the order of commits from several runs differs between ranks")
        self._run_id = ""  # of a followed run
        self._given = scores
        self._scores: list[Scores | None] = [open_scores(folder, scores) for folder, _ in self._folders]
        if not follow:
            self._load(None)

    def _named(self) -> list[str]:
        return [COLLECTED if s is None else s.name for s in self._scores]

    def _by_folder(self) -> dict[str, Scores]:
        return {folder: s for (folder, _), s in zip(self._folders, self._scores, strict=True) if s is not None}

    def _load(self, until: Sequence[int] | None) -> None:
        indexes = [Index(*folder) for folder in self._folders]
        list(each(self.runs[0], lambda i: indexes[i].update(None if until is None else until[i]), range(len(indexes))))
        for index, scores in zip(indexes, self._scores, strict=True):
            if scores is not None and scores.run_id and index.run_id not in ("", scores.run_id):
                raise CorruptError(f"{index.run_dir}: the scores set {scores.name} is from run {scores.run_id!r}, but the folder contains run {index.run_id!r}")
        files = Files([s for x in indexes for s in x.shards], self.columns, self.check, self._by_folder())
        self._selection = select(indexes, files, self.where)

    def __repr__(self) -> str:
        """Return the numbers of groups and rows before and after the filters, and the numbers of
        shards and tokens before the filters."""
        runs = ", ".join(map(repr, self.runs)) if len(self.runs) < 3 else f"{len(self.runs)} runs"
        if self.follow:
            return f"Dataset({runs}, follow=True)"
        s = self.selection
        groups = numbered(sum(len(x.group_ids) for x in s.indexes), "group", len(s))
        rows = numbered(sum(n for x in s.indexes for _, n in x.extents), "row", s.kept_rows)
        tokens = numbered(sum(n for x in s.indexes for _, _, n in x.commits), "token")
        return f"Dataset({runs}: {groups}, {rows}; {numbered(len(s.files.given), 'shard')} with {tokens})"

    @property
    def fleet(self) -> bool:
        """Whether the first run is a fleet."""
        return self._folders[0][0] != self.runs[0]

    @property
    def counts(self) -> Counts:
        """The numbers of groups, samples and rows that were dropped, by reason.

        The reasons are the fields of Where, and "no_rows" for groups in which no sample has a row
        left. For a followed run, see Batches.counts.
        """
        return {k: dict(v) for k, v in self.selection.counts.items()}

    @property
    def selection(self) -> Selection:
        """The kept groups and the positions of their rows, as numpy arrays."""
        if self.follow:
            raise TypeError("a dataset with follow=True has neither a length nor numbered groups: iterate over it")
        return self._selection

    @property
    def snapshot(self) -> list[dict[str, Any]]:
        """For each run, its id (run_id), the number of the last commit in the dataset (seq), and the
        name of its scores (scores).

        A fleet has an item for each partition. Merges of shards do not change a snapshot. For a
        followed run, seq is 0, and run_id is "" before the first commit and for a fleet.
        """
        if self.follow:
            if not self.fleet and not self._run_id:
                log = Log(self.runs[0])
                log.next_entry()
                self._run_id = log.run_id or ""
            return [{"run_id": self._run_id, "seq": 0, "scores": self._named()[0]}]
        return [{"run_id": x.run_id, "seq": x.seq, "scores": name} for x, name in zip(self.selection.indexes, self._named(), strict=True)]

    def at(self, snapshot: Sequence[dict[str, Any]]) -> Dataset:
        """Return the dataset as of a snapshot of the same runs. The snapshot can be older or newer.

            ds = rollout.Dataset(run)
            ds = ds.at(snapshot_of_rank_0)   # the same groups on every rank
        """
        if list(snapshot) == self.snapshot:
            return self
        if len(snapshot) != len(self.snapshot):
            raise StateError(f"the state has {numbered(len(snapshot), 'run')}, but the dataset has {len(self.snapshot)}: pass the same runs in the same order")
        other: Dataset = object.__new__(Dataset)
        other.__dict__.update(self.__dict__)
        if [s["scores"] for s in snapshot] != [s["scores"] for s in self.snapshot]:
            if self._given is not None:
                found = next(s["scores"] for s in snapshot if s["scores"] != self._given)
                raise StateError(f"the state has the scores {found!r}, but the dataset was created with scores={self._given!r}: "
                                 f"pass scores={found!r}, or no scores")
            try:
                other._scores = [open_scores(folder, s["scores"]) for (folder, _), s in zip(self._folders, snapshot)]
            except ValueError as err:
                raise StateError(f"the state has other scores: {err}") from err
        if not self.follow:
            other._load([s["seq"] for s in snapshot])
        for (run, _), then, s in zip(self._folders, snapshot, other.snapshot):
            if then["run_id"] and s["run_id"] and then["run_id"] != s["run_id"]:
                raise StateError(f"{run}: the folder contains run {s['run_id']!r}, but the state is from run {then['run_id']!r}: "
                                 "pass the same runs in the same order")
            if then["seq"] > s["seq"]:
                raise StateError(f"{run}: the log ends with entry {s['seq']}, but the state includes entry {then['seq']}: the folder is an older copy")
        return self if self.follow and other._scores is self._scores else other

    def __len__(self) -> int:
        """The number of kept groups."""
        return len(self.selection)

    def __getitem__(self, i: SupportsIndex) -> Group:
        """Return group i, from 0. Negative numbers count from the last group."""
        n, at = len(self), operator.index(i)
        if not -n <= at < n:
            raise IndexError(f"group index {at} is out of range: the dataset has {numbered(n, 'group')}")
        s = self.selection
        return s.assemble(at % n, s.files.read(s.spans(at % n)))

    def group(self, id: str, run: Path | None = None) -> Group:
        """Return the group with an id. If groups in several runs have this id, the parameter
        `run` selects the run.

        Raises KeyError if no kept group has the id.
        """
        s = self.selection
        found = []
        for number, index in enumerate(s.indexes):
            if (run is None or os.fspath(run) == index.name) and id in index.group_ids:
                at = np.flatnonzero((s.run == number) & (s.group == index.group_ids.index(id)))
                found += at.tolist()
        if not found:
            raise KeyError(f"no group {id!r}, or the filters dropped it (counts: {self.counts})")
        if len(found) > 1:
            raise KeyError(f"{len(found)} runs have a group {id!r}: pass run=")
        return self[found[0]]

    def row(self, which: int | tuple[str, int], run: Path | None = None) -> Row:
        """Return one row, regardless of the filters.

        which: the row's number from 0 in commit order, as in `rollout inspect --row`, or
        (sample_key, segment_index). With several runs, the row numbers of a run continue where
        the numbers of the previous run end. Raises IndexError or KeyError if there is no such
        row.
        """
        indexes = [(i, x) for i, x in enumerate(self.selection.indexes) if run is None or os.fspath(run) == x.name]
        if isinstance(which, tuple):
            if len(which) != 2 or not isinstance(which[0], str):
                raise TypeError(f"which={which!r}: must be a number, or (sample_key, segment_index)")
            key, segment = which
            integer("segment_index", segment)
            for number, index in indexes:
                p = index.samples
                for at in np.flatnonzero(p.key == key.encode()).tolist():
                    if 0 <= segment < p.rows[at]:
                        return self._row(self._base(number) + int(p.shard[at]), int(p.first[at]) + segment)
            raise KeyError(f"no row {which!r}")
        integer("which", which)
        left = which
        for number, index in indexes:
            for i, (first, rows) in enumerate(index.extents):
                if 0 <= left < rows:
                    return self._row(self._base(number) + i, first + left)
                left -= rows
        raise IndexError(f"row {which} is out of range: the log has {numbered(which - left, 'row')}")

    def _base(self, run: int) -> int:
        return sum(len(x.shards) for x in self.selection.indexes[:run])

    def _row(self, shard: int, number: int) -> Row:
        return self.selection.files.read([(shard, number, number + 1)])[0]

    def __iter__(self) -> Iterator[Group]:
        """Yield every group once, in order. With follow=True, yield groups as they become complete."""
        if self.follow:
            return iter(self.following())
        return (self[i] for i in range(len(self)))

    def following(self, **options: Any) -> Following:
        """Return an iterator over a dataset with follow=True; see Following for the options."""
        if not self.follow:
            raise TypeError("the dataset does not follow its run: create it with follow=True")
        held = "scores" in (options.get("after") or ())  # the cursor has the name of its scores
        options = {"timeout": self.timeout, "scores": self._given if held else self._named()[0], **options}
        return Following(self.runs[0], where=self.where, columns=self.columns, check=self.check, **options)

    def batches(
        self,
        groups: int = 8,
        *,
        seed: int = 0,
        epoch: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        fill: Fill = "drop",
        collate: Callable[[list[Group]], Any] | None = None,
        lanes: int | None = None,
    ) -> Batches:
        """Return batches of groups for one rank of a training job; see rollout.Batches.

        groups: groups in each batch.
        seed, epoch, shuffle: determine the order; set_epoch changes the epoch.
        rank, world_size: by default from torch.distributed if initialized, otherwise 0 and 1.
        fill: how every rank gets the same number of full batches. "drop" drops some groups, which
            differ from epoch to epoch. "repeat" yields some groups twice.
        collate: a function that makes a batch from a list of groups. It is called in the worker.
        lanes: the number of blocks that a rank reads at the same time; see rollout.data.order.
            Choose a multiple of the number of workers, so that no two workers decode the same
            block. None: the dataset chooses the number.
        """
        return Batches(
            self, groups, seed=seed, epoch=epoch, shuffle=shuffle, rank=rank, world_size=world_size, fill=fill, collate=collate, lanes=lanes
        )


def numbered(total: int, what: str, kept: int | None = None) -> str:
    """Format the number of groups or rows before the filters, and the number that the filters
    keep."""
    text = f"{total:,} {what}{'' if total == 1 else 's'}"
    return text if kept in (None, total) else f"{kept:,} of {text}"
