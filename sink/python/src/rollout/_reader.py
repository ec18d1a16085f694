"""The groups of a collection after a cursor, as they are committed."""

from __future__ import annotations

from collections.abc import Sequence

from rollout._cursor import Place, cursor
from rollout._types import Group
from rollout.entries import Path
from rollout.filters import Where
from rollout.follow import Following
from rollout.log import Check


class Reader:
    """Reads a group only when it is requested."""

    def __init__(self, run: Path, run_id: str, after: Place, where: Where | None, columns: Sequence[str] | None, check: Check) -> None:
        names = None if columns is None else list(columns)
        self._left_out: list[Place] = []
        self._following = Following(run, where=where, columns=names, check=check, after=cursor(run_id, after), left_out=self._left_out.append)
        self._what = (where, columns, check)

    @property
    def run_id(self) -> str:
        """The run's id; "" before its first commit if no cursor names it."""
        return str(self._following.cursor["run_id"])

    def after(self, run_id: str, place: Place) -> Reader:
        """Return a reader that starts after another place."""
        return Reader(self._following.run, run_id, place, *self._what)

    @property
    def end(self) -> Place:
        """The place after all returned groups and after the filtered ones before the next."""
        at = self._following.cursor
        return at["seq"], at["groups"]

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """What the filters dropped; see Following."""
        return {k: dict(v) for k, v in self._following.counts.items()}

    def left_out(self) -> list[Place]:
        """Return the groups that the filters dropped since the last call."""
        out = list(self._left_out)
        self._left_out.clear()
        return out

    def next(self) -> tuple[Group, Place] | None:
        """Return the next group and the place after it, or None if there is none yet."""
        group = self._following.poll()
        return None if group is None else (group, self.end)
