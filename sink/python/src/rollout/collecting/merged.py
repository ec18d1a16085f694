"""The folders of several collectors, and the groups of all of them in one iteration.

With workers=2, OUT/0000-of-0002 and OUT/0001-of-0002 are ordinary runs, one for each collector. A
task belongs to the run that the hash of its id selects. So a resumed collection passes it to the
same run.

A place is a tuple with the place in each run. A later place is greater.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rollout._types import Group
from rollout.collecting.collection import Reader
from rollout.errors import FolderError, StateError
from rollout.runs.cursor import Place
from rollout.runs.log import Check
from rollout.runs.select import Counts, Where, count

Places = tuple[Place, ...]

_NAME = re.compile(r"\d{4,}-of-(\d{4,})")


def partition(task_id: bytes, n: int) -> int:
    """Return which of n collectors collects a task. `rollout plan` uses the same rule."""
    digest = hashlib.sha256(b"rollout partition 1\0" + task_id).digest()
    return int.from_bytes(digest[:8], "big") % n


def folders(out: str, n: int) -> list[str]:
    """Return the folders of n collectors. If n is 1, this is the folder out itself.

    Raises FolderError if the folder out belongs to another number of collectors or to a fleet.
    """
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # the program reports a file
        names = os.listdir(out)
    if "fleet.json" in names:
        raise FolderError(f"{out}: the folder contains a fleet", hint="collect it with rollout.ray.collect or `rollout work`, or use a new folder")
    had = {int(found[1]) for name in names if (found := _NAME.fullmatch(name))} or ({1} if "run.json" in names else {n})
    if had != {n}:
        number = min(had - {n})
        hint = f"pass workers={number}, or use a new folder"
        raise FolderError(f"{out}: the run has workers={number}, not {n}, and each task belongs to one of them", hint=hint)
    return [out] if n == 1 else [os.path.join(out, f"{i:04}-of-{n:04}") for i in range(n)]


class Merged:
    """Reads the groups of several runs. It has the methods of Reader."""

    def __init__(self, runs: Sequence[str], state: Mapping[str, Any] | None, where: Where | None, columns: Sequence[str] | None, check: Check) -> None:
        """See Reader. A state has a cursor for each run."""
        cursors: Sequence[Any] = [None] * len(runs)
        if state is not None:
            cursors = state.get("workers") or ()
            if not isinstance(cursors, (list, tuple)) or len(cursors) != len(runs) or not all(isinstance(c, Mapping) for c in cursors):
                raise StateError(f"state: {state!r:.80} is not a state of {len(runs)} workers: want a cursor for each of them, as returned by state_dict")
        self._runs, self._what = runs, (where, columns, check)
        self._readers = [Reader(run, each, where, columns, check) for run, each in zip(runs, cursors)]
        self._last = 0  # the reader of the last returned group

    def restored(self, state: Mapping[str, Any]) -> Merged:
        """Return a new reader that starts after a state."""
        return Merged(self._runs, state, *self._what)

    def state(self, place: Places) -> dict[str, Any]:
        """Return the state for a place."""
        return {"workers": [r.state(at) for r, at in zip(self._readers, place, strict=True)]}

    @property
    def run_id(self) -> list[str]:
        """The id of each run."""
        return [r.run_id for r in self._readers]

    @property
    def end(self) -> Places:
        """The place after the last returned group and the dropped groups that follow it."""
        return tuple(r.end for r in self._readers)

    @property
    def counts(self) -> Counts:
        """The sum of the counts of all runs."""
        out: Counts = {}
        for reader in self._readers:
            for reason, n in reader.counts.items():
                count(out, reason, **n)
        return out

    def take_dropped(self) -> list[list[Place]]:
        """Return the places of the groups that the filters dropped since the last call, for each
        run."""
        return [r.take_dropped() for r in self._readers]

    def next(self) -> tuple[Group, Places] | None:
        """Return the next group of any run and the place after it, or None if no run has one."""
        n = len(self._readers)
        for i in ((self._last + i) % n for i in range(1, n + 1)):
            if found := self._readers[i].next():
                self._last = i
                return found[0], self.end
        return None
