"""What a collector must be told about the groups that its trainer is done with."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from rollout._cursor import START, Place


class Acks:
    """The acknowledged cursor, and the groups after it that the filters skip.

    A cursor cannot cover a group that comes after one in the trainer's hands. Such a group is
    reported separately when it is skipped, so that max_ahead does not count it. Only the cursor
    is durable: a restarted process receives all other groups again. Not thread-safe: the
    caller holds a lock.
    """

    def __init__(self) -> None:
        self.cursor: Place = START
        self._told: Place = START  # the cursor that this process knows
        self._left_out: deque[Place] = deque()  # some can be before the cursor
        self._untold: deque[Place] = deque()

    def acknowledge(self, place: Place) -> None:
        """Record that the trainer is done with all groups before a place."""
        self.cursor = max(self.cursor, place)
        for places in (self._left_out, self._untold):
            while places and places[0] <= self.cursor:
                places.popleft()

    def leave_out(self, places: Iterable[Place]) -> None:
        """Record groups that no trainer gets."""
        for place in places:
            self._left_out.append(place)
            self._untold.append(place)

    @property
    def unsaid(self) -> bool:
        """Whether this process does not know the cursor."""
        return self.cursor > self._told

    def begun(self, told: Place) -> None:
        """Record that a new process was started, which knows only a cursor."""
        self._told, self._untold = told, deque(self._left_out)

    def due(self) -> dict[str, Any] | None:
        """Return the next request for this process, or None if it knows everything."""
        if self.unsaid:
            return {"seq": self.cursor[0], "groups": self.cursor[1]}
        return {"seq": self._untold[0][0], "groups": self._untold[0][1], "only": True} if self._untold else None

    def answered(self, request: dict[str, Any]) -> None:
        """Record that this process has accepted a request."""
        place = (request["seq"], request["groups"])
        if "only" not in request:
            self._told = max(self._told, place)
        elif self._untold and self._untold[0] == place:
            self._untold.popleft()
