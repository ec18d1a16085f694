"""Iterates over the groups of a run in progress. Each group is returned once, when the group is
complete.

A group is complete once the log has an outcome for every one of its samples: rows, a final
failure, or nothing to train on. Groups are yielded in the order of the commits that complete
them. This order depends only on the log, so every rank and every restarted process sees the same
order. Shards are read only after their commit, so the leftovers of a killed collector are never
read.

A run has ended when every sample planned in run.json has an outcome in the log. With --tail, some
planned samples never start. So a run has also ended when report.json shows that its last
invocation completed. Only this second criterion applies to collect --stream, because tasks arrive
during the run. A log with claims has ended when its last entry is read. A fleet has ended when all
its partitions have. If the collector was killed, interrupted or stopped by an error, the run has not
ended, because --resume can continue the run. In this case, Following waits for the next commit
until the timeout.
"""

from __future__ import annotations

import operator
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rollout._args import filepath, function, instance, one_of, real, texts
from rollout._types import Group, Path
from rollout.errors import SEE_VERIFY, CorruptError, StateError
from rollout.runs._hashes import Hashes
from rollout.runs._open_groups import CommitSample, OpenGroup, PlacedSample
from rollout.runs._store import each, partitions, remote
from rollout.runs.cursor import START, Place, cursor, parse, planned_end
from rollout.runs.entries import Commit, Entry, Log, corrupt_entry
from rollout.runs.index import EMPTY, FAILED, ROWS, Samples, outcome_of
from rollout.runs.log import Check, Shard, entry_shards, fits
from rollout.runs.scores import COLLECTED, Scores, open_scores, scores_name
from rollout.runs.select import SAMPLE_REASONS, Counts, GroupFacts, Where, count, filter_groups, judge, spans
from rollout.runs.shards import Files

INTERVAL = 0.5
"""The default number of seconds between two listings of _commits/."""
BUCKET_INTERVAL = 2.0
"""The default number of seconds between two requests for the next entry of a log in a bucket."""
GLANCE = 0.02
"""The number of seconds between two checks for the next entry alone; see Log.waiting."""


class Following:
    """An iterator over the groups of a run that might still be in progress.

    timeout: how many seconds to wait for a new commit before TimeoutError is raised. None waits
        forever.
    interval: seconds between two listings of the log's folder, 0.5 by default. Between listings,
        the next entry alone is checked more often. In a bucket, seconds between two requests for
        the next entry (of each partition that has not ended), 2 by default.
    idle: a function that is called after each check that finds nothing new. Its argument is the
        number of seconds since the last commit. It can raise an exception to end the wait.
    left_out: a function that is called for each group that the filters drop, when the cursor
        passes the group. Its argument is the place (seq, number) of the group.
    scores: the scores set from which the rewards come; see Dataset.
    after: a cursor. Only groups after this cursor are returned and counted. The rewards come from the
        scores set whose name is in the cursor; StateError if scores is another one.

    The filters work as in Dataset. When the run ends, groups that are not complete are dropped
    and counted as missing. With Where(missing="keep"), they are returned instead. A sample can
    end after its group was returned, because the sample was retried or because more samples were
    requested. Such a sample is dropped and counted as late. Like Dataset.counts, the attribute
    counts has the numbers of groups, samples and rows that were dropped so far, by reason.
    Batches.counts has the same numbers for a followed run.

    An iteration uses about 600 bytes for each sample of an incomplete group. It uses 16 to 32
    bytes for each completed group and each failed sample, so it can run for days. For a fleet, each
    partition uses another 40 KB. Its groups come in the order in which they are found, so the order
    of groups from different partitions can differ between processes. Its cursor contains a cursor
    for each partition, and left_out is not called. wake() is the
    only method that is safe to call from another thread. After an error in the log or the cursor,
    every further call raises the same error. Fix the cause, and create a Following with
    after=cursor. If reading a group's rows fails, this group is still the next group.
    """

    def __init__(
        self,
        run: Path,
        *,
        where: Where | None = None,
        columns: list[str] | None = None,
        check: Check = "sha256",
        timeout: float | None = None,
        interval: float | None = None,
        idle: Callable[[float], None] | None = None,
        left_out: Callable[[Place], None] | None = None,
        after: Mapping[str, Any] | None = None,
        scores: str | None = None,
    ) -> None:
        filepath("run", run)
        instance("where", where, Where, "a rollout.Where", none=True)
        texts("columns", columns, none=True)
        one_of("check", check, ("sha256", "size"))
        real("timeout", timeout, 0, none=True)
        real("interval", interval, 0, none=True)
        function("idle", idle, none=True)
        function("left_out", left_out, none=True)
        scores_name(scores)
        self.run, self.where = os.fspath(run), where or Where()
        self.timeout, self.idle = timeout, idle
        self.interval = (BUCKET_INTERVAL if remote(run) else INTERVAL) if interval is None else interval
        self._left_out = left_out
        self._counts: Counts = {}
        found = self._scores_set(scores, after)
        self._scores = COLLECTED if found is None else found.name
        self._files = Files([], columns, check, {} if found is None else {self.run: found})
        self._parts = self._partitions(after)
        self._found: deque[Following] = deque()  # the partitions that have returned groups in their queues
        self.origin = 0
        """For a fleet, the number of the partition of the last returned group, in the list of cursors."""
        self._run_id, self._after = ("", START) if after is None or self._parts else parse(after, "after")
        self._name = self.run  # the given path: for a partition, the fleet's
        self._place = self._after  # the place of the last returned group
        self._log = Log(run)
        self._body: dict[str, Any] = {}  # the body of the last entry
        self._shards: dict[str, Shard] = {}  # the shards of the last entry, by kind
        self._commits: deque[Commit] = deque()  # the commits of the entry that have not yet been processed
        self._row = 0  # the next commit's first row in the entry's shard
        self._seq = 0  # the number of the last processed commit
        self._outcomes = 0
        self._open: dict[str, OpenGroup] = {}  # groups that are not complete
        self._returned = Hashes()  # ids of returned groups
        self._failed = Hashes()  # keys of failed samples
        self._ready: deque[tuple[int, int, OpenGroup | None]] = deque()  # seq; number of the group in that commit; the group, or None if it was dropped
        self._broken: Exception | None = None  # the error that ended a step
        self._wake = threading.Event()

    def _scores_set(self, name: str | None, after: Mapping[str, Any] | None) -> Scores | None:
        held = after.get("scores") if isinstance(after, Mapping) else None
        if held is not None and name not in (None, held):
            raise StateError(f"{self.run}: the cursor has the scores {held!r}, but scores is {name!r}: pass scores={held!r}, or no scores")
        try:
            return open_scores(self.run, name if held is None else held)
        except ValueError as err:
            raise err if held is None else StateError(f"the cursor has other scores: {err}") from err

    def _partitions(self, after: Mapping[str, Any] | None) -> list[Following]:
        """Return the iterators over the partitions of a fleet. They share the files. The list is empty for a single run."""
        folders = partitions(self.run)
        if folders == [self.run]:
            return []
        cursors: Any = [None] * len(folders) if after is None else dict(after).get("partitions")
        if not isinstance(cursors, list) or len(cursors) != len(folders):
            raise StateError(f"{self.run}: the cursor is not from this fleet: want a cursor for each of {len(folders)} partitions")
        parts = [Following(folder, where=self.where, after=cursor, scores=COLLECTED) for folder, cursor in zip(folders, cursors)]
        for part in parts:
            part._name, part._files = self.run, self._files
        return parts

    @property
    def counts(self) -> Counts:
        """The numbers of groups, samples and rows that were dropped so far, by reason."""
        out: Counts = {}
        for part in self._parts or [self]:
            for reason, numbers in part._counts.items():
                count(out, reason, **numbers)
        return out

    @property
    def cursor(self) -> dict[str, Any]:
        """The place of the last returned group, as a dict with run_id, seq, groups and the name of the scores.

        The place covers all groups that commits before seq completed. It also covers the first
        `groups` groups that commit seq completed. Filters do not change these numbers, because a
        dropped group counts as returned when all groups before it have been returned. The place
        refers to commits, so merges of shards do not change it.
        """
        if self._parts:
            return {"partitions": [part.cursor for part in self._parts]}
        return {**cursor(self._run_id or self._log.run_id or "", self._place), "scores": self._scores}

    def __iter__(self) -> Iterator[Group]:
        """Yield every group until the run has ended."""
        return (self.read(group) for group in self.complete())

    def poll(self) -> Group | None:
        """Return the next group, or None if no further group is complete yet. Does not block."""
        found = self._first()
        if found is None:
            return None
        group = self.read(found)  # if read fails, this group is still the next group
        self._next()
        return group

    def wake(self) -> None:
        """Make a waiting iteration check the log immediately. Call this method after a new
        commit. Thread-safe."""
        self._wake.set()

    def complete(self) -> Iterator[OpenGroup]:
        """Yield every group with the places of its rows. To read the rows, pass the group to
        read()."""
        since = time.monotonic()
        while True:
            claimed = bool(self._parts) or self._log.claimed
            end = None if claimed else planned_end(self.run)  # read this first, so that the log then has all commits up to the end
            seq = self._last()
            while (group := self._next()) is not None:
                yield group
            if all(part._log.sealed for part in self._parts or [self]) or end is not None and self._outcomes >= end:
                break
            now = time.monotonic()
            if self._last() > seq:
                since = now
                continue
            if end is None and self.timeout is None and not (claimed or self._log.claimed):
                raise ValueError(f"{self.run}: no run.json, so the end of the run is unknown: pass timeout=")
            if self.idle is not None:
                self.idle(now - since)
            if self.timeout is not None and now - since >= self.timeout:
                raise TimeoutError(f"{self.run}: no commit for {self.timeout:g} s after entry {self._last()}; is the collector running?")
            self._wait(now + self.interval)
        for part in self._parts or [self]:
            yield from part._filter_groups(list(part._open.values()))

    def _last(self) -> int:
        """Return the number of the last processed commit, or the sum of these numbers for a fleet."""
        return sum(part._seq for part in self._parts or [self])

    def _wait(self, until: float) -> None:
        """Wait until the given time, but stop waiting if the next entry appears or wake() is
        called."""
        while (left := until - time.monotonic()) > 0:
            if self._wake.wait(min(left, GLANCE)) or any(part._log.waiting() for part in self._parts or [self]):
                break
        self._wake.clear()

    def _next(self) -> OpenGroup | None:
        """Return the next group that the filters keep, or None if the log does not yet contain
        such a group."""
        group = self._first()
        if group is not None:
            self._advance()
        return group

    def _first(self) -> OpenGroup | None:
        """Like _next, but without moving the cursor past the group."""
        while True:
            while self._found:
                if (group := self._found[0]._queued()) is not None:
                    return group
                self._found.popleft()
            if (group := self._queued()) is not None:
                return group
            if not self._step():
                return None

    def _queued(self) -> OpenGroup | None:
        """Return the next group in the queue. Move the cursor past the dropped groups before it."""
        while self._ready:
            if (group := self._ready[0][2]) is not None:
                return group
            self._advance()
        return None

    def _advance(self) -> None:
        """Move the cursor past the next group."""
        if self._found:
            self.origin = self._parts.index(self._found[0])
            return self._found[0]._advance()
        seq, number, group = self._ready.popleft()
        self._place = (seq, number)
        if group is None and self._left_out is not None:
            self._left_out(self._place)

    def _step(self) -> bool:
        """Process one commit, or one commit of each partition, and queue the groups that it completes.

        After an error, the commit is only partly processed, so every later call raises the same
        error.
        """
        if self._broken is not None:
            raise self._broken
        try:
            if self._parts:
                parts = [part for part in self._parts if part._commits or not part._log.sealed]
                stepped = list(each(self.run, Following._step, parts))
                self._found.extend(part for part in parts if part._ready)
                return any(stepped)
            if not self._commits:
                entry = self._log.next_entry()
                if entry is None:
                    self._body = {}
                    self._caught_up()
                    return False
                self._begin(entry)
            commit = self._commits.popleft()
            with corrupt_entry(self.run, self._body["seq"]):
                samples = self._samples_of(commit)
            self._add_commit(commit.seq, samples, self._shards.get("data"))
            return True
        except BaseException as err:
            self._ready.clear()
            self._broken = err if isinstance(err, Exception) else StateError(f"{self.run}: {err!r} interrupted the reading of the log: "
                                                                             "start again from the last cursor")
            raise

    def _begin(self, entry: Entry) -> None:
        """Prepare to process the commits in an entry."""
        run_id = entry.body.get("run_id") or ""
        if self._run_id not in ("", run_id):
            raise StateError(f"{self.run}: the folder contains run {run_id!r}, but the state is from run {self._run_id!r}: pass the folder of that run")
        self._body = entry.body
        with corrupt_entry(self.run, entry.seq):
            self._shards = {s.kind: s for s in entry_shards(self.run, entry.body)}
            fits(entry, self._shards)
            self._row = entry.before(entry.commits[0].begin)
            self._commits.extend(entry.commits)

    def _caught_up(self) -> None:
        """At the end of the log, check that the starting cursor was not ahead of the log."""
        if self._after > (self._seq + 1, 0):
            raise StateError(f"{self.run}: the log ends with commit {self._seq}, but the cursor is in commit {self._after[0]}: the folder is an older copy")
        self._after = START

    def _samples_of(self, commit: Commit) -> list[CommitSample]:
        body = self._body
        groups = body["groups"] or []
        out = []
        for s in (body["samples"] or [])[commit.begin : commit.end]:
            at, rows, failures = s["group"], s["rows"], s["failures"]
            out.append(CommitSample(s["key"].encode(), groups[at]["id"], int(groups[at]["size"]), s["index"], rows, failures))
        return out

    def _add_commit(self, seq: int, samples: list[CommitSample], shard: Shard | None) -> None:
        """Add the samples of a commit to their groups."""
        ends = np.cumsum([s.rows for s in samples], dtype=np.int64)
        rows = int(ends[-1]) if samples else 0
        begin, self._row = self._row, self._row + rows
        behind = seq > self._after[0]  # for earlier commits, filter only when a group is returned, because most groups were returned before
        late = [s.group.encode() in self._returned for s in samples]
        found = [
            PlacedSample(s.index, s.key, shard, begin + int(end) - s.rows, s.rows)
            for s, end, too_late in zip(samples, ends, late)
            if s.rows and shard is not None and not too_late
        ]
        verdicts = iter(self._filter_samples(found) if behind else [(0, t) for t in found])
        touched: dict[str, OpenGroup] = {}
        for s, too_late in zip(samples, late):
            reason, placed = next(verdicts) if s.rows and not too_late else (0, None)
            if s.key in self._failed:
                self._outcomes -= 1  # this outcome replaces the failure
            self._outcomes += 1
            if outcome_of(s.rows, s.failures) == FAILED:
                self._failed.add(s.key)
            if too_late:
                if behind:
                    count(self._counts, "late", samples=1, rows=s.rows)
                continue
            group = self._open.setdefault(s.group, OpenGroup(s.group))
            touched[s.group] = group
            self._add(group, s, reason, placed)
        self._seq = seq
        whole = [group for group in touched.values() if group.held >= group.size]
        for group in whole:
            del self._open[group.id]
            self._returned.add(group.id.encode())
        before = 0 if behind else len(whole) if seq < self._after[0] else self._after[1]  # the number of this commit's groups that the cursor covers
        if before > len(whole):
            raise StateError(f"{self.run}: the cursor is after group {before} of commit {seq}, but that commit completes only {len(whole)}: "
                             "the cursor is from another log")
        kept = {group.id for group in self._filter_groups(whole[before:])}
        self._ready.extend((seq, number, group if group.id in kept else None) for number, group in enumerate(whole[before:], before + 1))

    def _filter_samples(self, samples: list[PlacedSample]) -> list[tuple[int, PlacedSample]]:
        """Apply the sample filters to samples in one shard. Return each sample with the reason to
        drop it, or with 0 if it is kept."""
        if not samples:
            return []
        number = self._files.add(samples[0].shard)
        part = Samples.placed(number, [s.first for s in samples], [s.rows for s in samples])
        verdict = judge(self._files, number, part, self.where)
        for name, n in verdict.left_out.items():
            count(self._counts, name, rows=n)
        self._files.trim()
        out = []
        for s, reason, reward in zip(samples, verdict.reason.tolist(), verdict.reward.tolist(), strict=True):
            if reason:
                count(self._counts, SAMPLE_REASONS[reason - 1], samples=1, rows=s.rows)
            left = [(first, last) for _, first, last in spans(number, s.first, s.rows, verdict.mask)]
            out.append((reason, replace(s, reward=reward, spans=left)))
        return out

    def _add(self, group: OpenGroup, s: CommitSample, reason: int, placed: PlacedSample | None) -> None:
        group.size = max(group.size, s.size)  # more samples were requested later
        if s.key in group.failures:
            group.failures.discard(s.key)
            group.failed -= 1  # this outcome replaces the failure
        outcome = outcome_of(s.rows, s.failures)
        if outcome == ROWS:
            if s.key in group.keys:
                raise CorruptError(f"{self.run}: the log contains rows of sample {s.key.decode()} more than once{SEE_VERIFY}")
            group.keys.add(s.key)
        if outcome == EMPTY:
            group.empty += 1
        elif outcome == FAILED:
            group.failed += 1
            group.failures.add(s.key)
        elif reason:
            group.left_out += 1
        elif placed is not None:
            group.samples.append(placed)

    def _filter_unseen(self, group: OpenGroup) -> None:
        """Apply the sample filters to samples from before the starting cursor."""
        unseen = [s for s in group.samples if s.spans is None]
        judged: dict[bytes, PlacedSample | None] = {}
        for shard in {s.shard for s in unseen}:
            part = sorted((s for s in unseen if s.shard == shard), key=operator.attrgetter("first"))
            judged |= {s.key: None if reason else s for reason, s in self._filter_samples(part)}
        group.left_out += list(judged.values()).count(None)
        samples = (judged.get(s.key, s) for s in group.samples)  # in the order of the log
        group.samples = [s for s in samples if s is not None]

    def _filter_groups(self, groups: list[OpenGroup]) -> list[OpenGroup]:
        """Apply the group filters, and return the groups that they keep."""
        for group in groups:
            self._filter_unseen(group)
            group.samples.sort(key=operator.attrgetter("index"))
        missing, failed, empty, left_out = np.array([(g.missing, g.failed, g.empty, g.left_out) for g in groups], np.int64).reshape(-1, 4).T
        at, rows = np.array([(at, s.left) for at, g in enumerate(groups) for s in g.samples], np.int64).reshape(-1, 2).T
        rewards = np.array([s.reward for g in groups for s in g.samples], np.float64)
        keep = filter_groups(self.where, GroupFacts(missing, failed, empty, left_out, at, rows, rewards), self._counts)
        return [group for group, kept in zip(groups, keep.tolist(), strict=True) if kept]

    def read(self, group: OpenGroup) -> Group:
        """Return a group with its rows."""
        rows = self._files.read([(self._files.add(s.shard), first, last) for s in group.samples for first, last in s.spans or ()])
        self._files.trim()
        return Group(
            run=self._name,
            id=group.id,
            size=group.size,
            rows=rows,
            failed=group.failed,
            empty=group.empty,
            missing=group.missing,
            left_out=group.left_out,
        )
