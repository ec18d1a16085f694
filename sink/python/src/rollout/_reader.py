"""The groups of a collection behind a cursor, as soon as they are in the log."""

from __future__ import annotations

from collections.abc import Sequence

from rollout._cursor import Place, cursor
from rollout._types import Group
from rollout.entries import Path
from rollout.filters import Where
from rollout.follow import Following
from rollout.log import Check


class Reader:
    """Reads a group when it is asked for, and not before."""

    def __init__(self, run: Path, run_id: str, after: Place, where: Where | None, columns: Sequence[str] | None, check: Check) -> None:
        names = None if columns is None else list(columns)
        self._left_out: list[Place] = []
        self._following = Following(run, where=where, columns=names, check=check, after=cursor(run_id, after), left_out=self._left_out.append)
        self._what = (where, columns, check)

    @property
    def run_id(self) -> str:
        """Of the run; "" before its first commit, where no cursor names it."""
        return str(self._following.cursor["run_id"])

    def after(self, run_id: str, place: Place) -> Reader:
        """Return one that begins behind another place."""
        return Reader(self._following.run, run_id, place, *self._what)

    @property
    def end(self) -> Place:
        """The place behind all groups that were given and those that the filters left out before the next one."""
        at = self._following.cursor
        return at["seq"], at["groups"]

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """What the filters left out; see Following."""
        return {k: dict(v) for k, v in self._following.counts.items()}

    def left_out(self) -> list[Place]:
        """Return the groups that the filters left out since the last call."""
        out = list(self._left_out)
        self._left_out.clear()
        return out

    def next(self) -> tuple[Group, Place] | None:
        """Return the next group and the place behind it, None where none is there."""
        group = self._following.poll()
        return None if group is None else (group, self.end)
