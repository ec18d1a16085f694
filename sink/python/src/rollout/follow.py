"""The groups of a run that is being collected, each once, when all of it is there.

A group is complete once the log holds an outcome of every sample of it: rows, a
failure for good, or nothing to train on. Groups come in the order of the commits that
complete them, which depends on the log alone: every rank sees the same order, and so
does a process that begins anew. Shards are read only after their commit, so nothing
that a collector was killed in the middle of is ever seen.

A run has ended when every sample that run.json plans has an outcome in the log, or when
report.json says of its last invocation that it is complete: with --tail some planned
samples are never taken up. A collector that was killed or interrupted has not ended its
run, and neither is one at its end that was stopped by an error: --resume may go on, and
Following waits for that, for timeout seconds.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rollout._types import Group
from rollout.errors import CorruptError
from rollout.files import Files, Parts
from rollout.filters import Bools, Counts, Where
from rollout.index import EMPTY, FAILED, ROWS, Index, Samples
from rollout.log import Check, Path
from rollout.selection import SAMPLE_REASONS, count, judge, spans, varies

INTERVAL = 0.5
"""Seconds between two looks at the folder _commits/ by default."""


@dataclass
class Found:
    """A group, and where its rows are; it grows until all of its samples are there."""

    number: int
    id: str = ""
    size: int = 0
    failed: int = 0
    empty: int = 0
    left_out: int = 0
    samples: list[tuple[int, int, int, int, float]] = field(default_factory=list)
    """Of each with rows that are left: sample_index, shard, first row, rows, reward."""
    keys: set[bytes] = field(default_factory=set)
    """Keys that have rows."""
    failures: dict[bytes, int] = field(default_factory=dict)
    """Keys that have failed so far."""

    @property
    def held(self) -> int:
        """Samples of it that the log holds."""
        return len(self.samples) + self.failed + self.empty + self.left_out


class Following:
    """The iteration over a run that may still be collected.

    timeout: seconds without a new commit after which TimeoutError is raised; None waits
        for ever. interval: seconds between two looks. idle: called at each look that
        finds nothing new, with the seconds since the last commit; it may raise.

    Filters are those of Dataset. A group that is never completed is left out and
    counted as missing when the run ends, or given then with Where(missing="keep"). A
    sample of a group that was given already (it had failed and was tried again, or more
    samples were asked for) comes too late: it is counted as late.

    counts is what was left out so far, as Dataset.counts: by reason, how many groups,
    samples and rows. Batches of a followed run have the same in Batches.counts.
    """

    def __init__(
        self,
        run: Path,
        *,
        where: Where | None = None,
        columns: list[str] | None = None,
        check: Check = "sha256",
        timeout: float | None = None,
        interval: float = INTERVAL,
        idle: Callable[[float], None] | None = None,
    ) -> None:
        self.run, self.where = os.fspath(run), where or Where()
        self.timeout, self.interval, self.idle = timeout, interval, idle
        self.counts: Counts = {}
        self._index = Index(run, check)
        self._files = Files([], columns, check)
        self._open: dict[int, Found] = {}  # groups that are not complete
        self._given: set[int] = set()
        self._masks: dict[int, Bools] = {}

    def __iter__(self) -> Iterator[Group]:
        """Yield every group, until the run has ended."""
        return (self.read(found) for found in self.complete())

    def complete(self) -> Iterator[Found]:
        """Yield the places of every group; read gives its rows."""
        since = time.monotonic()
        while True:
            end = planned_end(self.run)  # looked at before the log: all commits of that end are in it
            seq = self._index.seq
            while True:
                new = self._step()
                if new is None:
                    break
                yield from new
            if end is not None and self._index.outcomes >= end:
                break
            now = time.monotonic()
            if self._index.seq > seq:
                since = now
                continue
            if end is None and self.timeout is None:
                raise ValueError(f"{self.run}: has no run.json, so its end cannot be known: give timeout=")
            if self.idle is not None:
                self.idle(now - since)
            if self.timeout is not None and now - since >= self.timeout:
                raise TimeoutError(f"{self.run}: no commit for {self.timeout:g} s after entry {self._index.seq}; is the collector running?")
            time.sleep(self.interval)
        for number in sorted(self._open):
            found = self._open[number]
            if self.where.missing == "keep":
                yield from self._judged(found)
            else:
                count(self.counts, "missing", 1, len(found.samples), sum(s[3] for s in found.samples))

    def _step(self) -> list[Found] | None:
        """Take one entry of the log and return the groups that it completes."""
        index = self._index
        had = len(index.shards)
        if not index.update(until=index.seq + 1):
            return None
        self._files.add(index.shards[had:])
        part = index.last
        reason = np.zeros(len(part), dtype=np.int64)
        reward = np.full(len(part), np.nan)
        if len(index.shards) > had:
            verdict = judge(self._files, had, part, self.where)
            at = np.flatnonzero(part.outcome == ROWS)
            reason[at], reward[at] = verdict.reason, verdict.reward
            for name, n in verdict.left_out.items():
                count(self.counts, name, rows=n)
            if verdict.mask is not None:
                self._masks[had] = verdict.mask
        touched: dict[int, Found] = {}
        for i in range(len(part)):
            number = int(part.group[i])
            if number in self._given:
                count(self.counts, "late", samples=1, rows=int(part.rows[i]))
                continue
            found = self._open.setdefault(number, Found(number))
            touched[number] = found
            self._take(found, part, i, int(reason[i]), float(reward[i]))
        out = []
        for number, found in touched.items():
            found.id, found.size = index.group_ids[number], index.group_sizes[number]
            if found.held >= found.size:
                out += self._judged(self._open.pop(number))
        return out

    def _take(self, found: Found, part: Samples, i: int, reason: int, reward: float) -> None:
        """Add a sample to its group."""
        key, outcome = bytes(part.key[i]), int(part.outcome[i])
        if found.failures.pop(key, None) is not None:
            found.failed -= 1  # this outcome takes its place
        if outcome == ROWS:
            if key in found.keys:
                raise CorruptError(f"{self.run}: the log has rows of sample {key.decode()} twice; rollout verify says more")
            found.keys.add(key)
        if outcome == EMPTY:
            found.empty += 1
        elif outcome == ROWS and reason == 0:
            found.samples.append((int(part.index[i]), int(part.shard[i]), int(part.first[i]), int(part.rows[i]), reward))
        elif outcome == ROWS:
            found.left_out += 1
            count(self.counts, SAMPLE_REASONS[reason - 1], samples=1, rows=int(part.rows[i]))
        elif outcome == FAILED:
            found.failed += 1
            found.failures[key] = i

    def _judged(self, found: Found) -> list[Found]:
        """Apply the filters of groups; from now on the group is given or left out."""
        self._given.add(found.number)
        found.samples.sort()
        where = self.where
        tests = {
            "failed": where.failed == "drop" and found.failed + found.empty > 0,
            "no_rows": not found.samples,
            "partial": where.partial == "drop" and found.left_out > 0,
            "reward_variance": where.reward_variance and not varies(np.array([s[4] for s in found.samples])),
        }
        for name, hit in tests.items():
            if hit:
                count(self.counts, name, 1, len(found.samples), sum(s[3] for s in found.samples))
                return []
        return [found]

    def read(self, found: Found) -> Group:
        """Return a group with its rows."""
        where = [s for _, shard, first, n, _ in found.samples for s in spans(shard, first, n, self._masks.get(shard))]
        return Group(
            run=self.run,
            id=found.id,
            size=found.size,
            rows=Parts(self._files, where).rows(where),
            failed=found.failed,
            empty=found.empty,
            missing=max(0, found.size - found.held),
            left_out=found.left_out,
        )


def planned_end(run: str) -> int | None:
    """Return how many samples with an outcome in the log are the run's end.

    None where run.json does not exist. What cannot be read is not an end: run.json is
    replaced as a whole, so it is CorruptError where it is damaged.
    """
    path = os.path.join(run, "run.json")
    try:
        with open(path, "rb") as f:
            info: dict[str, Any] = json.loads(f.read())
        planned = int(info["tasks"]["planned"])
        begun = str(info["invocations"][-1]["started_at"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, IndexError) as err:
        raise CorruptError(f"{path}: cannot be read: {err!r}; restore a copy of it, or read the run without follow=True") from err
    try:
        with open(os.path.join(run, "report.json"), "rb") as f:
            report = json.loads(f.read())
        covered = report["coverage"]
        if report["run_id"] == info["id"] and report["state"] == "complete" and instant(report["written_at"]) >= instant(begun):
            return min(planned, int(covered["planned"]) - int(covered["unstarted"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no report, or one that is not worth more than none
    return planned


def instant(text: str) -> tuple[str, str]:
    """Return a time of RFC 3339 in UTC as what sorts by time, whatever its digits."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return whole, fraction
