"""The groups of a collection behind a cursor, as soon as they are in the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rollout._cursor import Place
from rollout._types import Group
from rollout.errors import StateError
from rollout.filters import Where
from rollout.follow import Following, Found
from rollout.log import Check, Path


class Reader:
    """Reads a group when it is asked for, and not before."""

    def __init__(self, run: Path, run_id: str, after: Place, where: Where | None, columns: Sequence[str] | None, check: Check) -> None:
        self._following = _Places(run, where=where, columns=None if columns is None else list(columns), check=check)
        self._run_id, self._after = run_id, after
        self._what = (where, columns, check)
        self._ready: deque[tuple[Found, Place]] = deque()

    @property
    def run_id(self) -> str:
        """Of the run; "" before its first commit, where no cursor names it."""
        return self._run_id or self._following.run_id

    def after(self, run_id: str, place: Place) -> Reader:
        """Return one that begins behind another place."""
        return Reader(self._following.run, run_id, place, *self._what)

    @property
    def end(self) -> Place:
        """The place behind all groups that are whole so far, whether a filter leaves them out or not."""
        return max(self._after, self._following.place)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """What the filters left out; see Following."""
        return {k: dict(v) for k, v in self._following.counts.items()}

    def next(self) -> tuple[Group, Place] | None:
        """Return the next group and the place behind it, None where none is there."""
        while not self._ready:
            found = self._following.step()
            if found is None:
                return None
            if self._run_id and self._following.run_id != self._run_id:
                held, run = self._following.run_id, self._following.run
                raise StateError(f"{run}: holds run {held!r}, the state is of run {self._run_id!r}: give the state of this folder")
            self._ready += [(f, place) for f, place in found if place > self._after]
        found_, place = self._ready[0]
        group = self._following.read(found_)
        self._ready.popleft()
        return group, place


class _Places(Following):
    """Numbers the groups of each commit."""

    place: Place = (0, 0)

    @property
    def run_id(self) -> str:
        return self._index.run_id

    def step(self) -> list[tuple[Found, Place]] | None:
        self._new: list[tuple[Found, Place]] = []
        seq = self._index.seq + 1
        self._number = 0
        self._at = seq
        if self._step() is None:
            return None
        if self._number:
            self.place = (seq, self._number)
        return self._new

    def _judged(self, found: Found) -> list[Found]:
        self._number += 1
        out = super()._judged(found)
        self._new += [(f, (self._at, self._number)) for f in out]
        return out
