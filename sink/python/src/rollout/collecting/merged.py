"""The folder of several collectors, and the groups of all of them in one order.

OUT/0000, OUT/0001 … are ordinary runs, one for each collector. A task belongs to the run that the
hash of its id selects, so a resumed collection passes it to the same run. OUT/workers.jsonl
contains the number of collectors in its first line. Each other line is [worker, seq, groups], the
place of one group in the order in which the groups were first returned. A collection that starts
from a state returns the groups after the state in this order.

A place is a tuple: the number of groups that this reader has returned, and the place in each run.
A later place is greater.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rollout._types import Group
from rollout.collecting.collection import Reader
from rollout.errors import CorruptError, FolderError, StateError
from rollout.runs._hashes import Hashes
from rollout.runs.cursor import Place
from rollout.runs.log import Check
from rollout.runs.select import Counts, Where, count

Places = tuple[Any, ...]
"""(int, Place, Place, …); see above."""


def partition(task_id: str, n: int) -> int:
    """Return which of n collectors collects a task. `rollout plan` uses the same rule."""
    digest = hashlib.sha256(b"rollout partition 1\0" + task_id.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % n


_PART = "workers.part"


def _order(out: str) -> str:
    return os.path.join(out, "workers.jsonl")


def folders(out: str, n: int) -> list[str]:
    """Return the folders of n collectors. If n is 1, this is the folder out itself.

    Raises FolderError if the folder out belongs to another number of collectors.
    """
    try:
        with open(_order(out), "rb") as f:
            had = int(json.loads(f.readline())["workers"])
    except (FileNotFoundError, NotADirectoryError):
        had = 1
    except (ValueError, KeyError, TypeError):
        raise FolderError(f"{_order(out)}: the first line is not the number of workers", hint="restore the file from a copy") from None
    if had not in (1, n):
        raise FolderError(f"{out}: the run has {had} workers, not {n}, and each task belongs to one of them", hint=f"pass workers={had}, or use a new folder")
    if had != n and os.path.isdir(out) and os.listdir(out) not in ([], [_PART]):
        raise FolderError(f"{out}: the folder contains a run of one worker, or other files", hint=f"use a new folder for workers={n}")
    return [out] if n == 1 else [os.path.join(out, f"{i:04}") for i in range(n)]


def begin(out: str, n: int) -> None:
    """Create workers.jsonl for n > 1 collectors, if it does not exist."""
    if os.path.exists(_order(out)):
        return
    os.makedirs(out, exist_ok=True)
    part = os.path.join(out, _PART)
    with open(part, "wb") as f:
        f.write(json.dumps({"workers": n}).encode() + b"\n")
        f.flush()
        os.fsync(f.fileno())
    os.rename(part, _order(out))
    folder = os.open(out, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def known_tasks(runs: Sequence[str]) -> Hashes:
    """Return the ids of the tasks that the runs have accepted."""
    out = Hashes()
    for run in runs:
        try:
            with open(os.path.join(run, "tasks.jsonl"), "rb") as f:
                for line in f:
                    if line.endswith(b"\n"):
                        out.add(str(json.loads(line)["id"]).encode(errors="surrogatepass"))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            continue  # the collector reports damage
    return out


class Merged:
    """Reads the groups of several runs. It has the methods of Reader."""

    def __init__(self, out: str, readers: list[Reader]) -> None:
        self._out, self._readers = out, readers
        self._n, self._last = 0, 0  # the number of returned groups; the run of the last one
        self._recorded = [(0, 0)] * len(readers)  # the last place of each run in workers.jsonl
        self._again: deque[tuple[int, Place]] = deque()  # places of groups that were returned before
        self._found: tuple[int, tuple[Group, Place]] | None = None  # a group that was read and not returned
        for line in self._lines():
            try:
                worker, seq, groups = json.loads(line)
                self._recorded[worker] = (seq, groups)
            except (ValueError, TypeError, IndexError):
                raise CorruptError(f"{_order(out)}: {line!r:.60} is not [worker, seq, groups]: remove the line") from None
            self._again.append((worker, (seq, groups)))

    @classmethod
    def open(
        cls, runs: Sequence[str], state: Mapping[str, Any] | None, where: Where | None, columns: Sequence[str] | None, check: Check
    ) -> tuple[Merged, Places]:
        """Return a reader that starts after a state, and its place. See Reader.open."""
        cursors: Sequence[Any] = [None] * len(runs)
        if state is not None:
            cursors = state.get("workers") or ()
            if not isinstance(cursors, (list, tuple)) or len(cursors) != len(runs) or not all(isinstance(c, Mapping) for c in cursors):
                raise StateError(f"state: {state!r:.80} is not a state of {len(runs)} workers: want a cursor for each of them, as returned by state_dict")
        opened = [Reader.open(run, each, where, columns, check) for run, each in zip(runs, cursors, strict=True)]
        return cls(os.path.dirname(runs[0]), [reader for reader, _ in opened]), (0, *(place for _, place in opened))

    def restored(self, state: Mapping[str, Any]) -> tuple[Merged, Places]:
        """See Reader.restored."""
        return Merged.open([r.run for r in self._readers], state, *self._readers[0].what)

    def state(self, place: Places) -> dict[str, Any]:
        """Return a cursor for each run as the state."""
        return {"workers": [r.state(at) for r, at in zip(self._readers, place[1:], strict=True)]}

    @property
    def run_id(self) -> list[str]:
        """The id of each run."""
        return [r.run_id for r in self._readers]

    @property
    def end(self) -> Places:
        """The place after the last returned group and the dropped groups that follow it."""
        return (self._n, *(r.end for r in self._readers))

    @property
    def counts(self) -> Counts:
        """The sum of the counts of all runs."""
        out: Counts = {}
        for reader in self._readers:
            for reason, n in reader.counts.items():
                count(out, reason, **n)
        return out

    def take_dropped(self) -> list[tuple[int, Place]]:
        """Return the run and the place of the groups that the filters dropped since the last call."""
        return [(i, place) for i, r in enumerate(self._readers) for place in r.take_dropped()]

    def next(self) -> tuple[Group, Places] | None:
        """Return the next group of any run and the place after it, or None if no run has one."""
        if self._found is None:
            self._found = next(((worker, found) for worker in self._turns() if (found := self._readers[worker].next())), None)
        if self._found is None:
            return None
        worker, (group, place) = self._found
        if place > self._recorded[worker]:
            with open(_order(self._out), "ab", buffering=0) as f:  # if this fails, the group is still the next group
                f.write(json.dumps([worker, *place]).encode() + b"\n")
            self._recorded[worker] = place
        self._found, self._n, self._last = None, self._n + 1, worker
        return group, self.end

    def _turns(self) -> Iterator[int]:
        """Yield the runs in the order in which to look for the next group: first the order of the
        groups that were returned before, then all runs in turn."""
        while self._again:
            worker, place = self._again[0]
            if place > self._readers[worker].end:
                yield worker
            self._again.popleft()  # returned before the state, or dropped by a filter
        n = len(self._readers)
        yield from ((self._last + i) % n for i in range(1, n + 1))

    def _lines(self) -> Iterator[bytes]:
        """Yield the lines of workers.jsonl after the first. If a crash left a part of a line, remove it."""
        with contextlib.suppress(FileNotFoundError), open(_order(self._out), "r+b") as f:
            at = len(f.readline())
            for line in f:
                if not line.endswith(b"\n"):
                    break
                at += len(line)
                yield line
            f.truncate(at)
