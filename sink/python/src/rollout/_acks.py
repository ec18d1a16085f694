"""What the process of a collector is to hear of the groups that its trainer is done with."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from rollout._cursor import START, Place


class Acks:
    """The cursor that was acknowledged, and the groups behind it that the filters leave out.

    A cursor says nothing of a group that lies behind one in the trainer's hands. Such a
    group is told by itself when it is left out, so that max_ahead does not count it. Only
    the cursor is durable: a process that is started again is told all the others again.
    Whoever uses it from several threads holds a lock.
    """

    def __init__(self) -> None:
        self.cursor: Place = START
        self._told: Place = START  # what this process was told of cursor
        self._left_out: deque[Place] = deque()  # of which some may lie before the cursor
        self._untold: deque[Place] = deque()

    def acknowledge(self, place: Place) -> None:
        """Note that the trainer is done with all groups before a place."""
        self.cursor = max(self.cursor, place)
        for places in (self._left_out, self._untold):
            while places and places[0] <= self.cursor:
                places.popleft()

    def leave_out(self, places: Iterable[Place]) -> None:
        """Note groups that no trainer gets."""
        for place in places:
            self._left_out.append(place)
            self._untold.append(place)

    @property
    def unsaid(self) -> bool:
        """Whether this process does not know the cursor."""
        return self.cursor > self._told

    def begun(self, told: Place) -> None:
        """Note that another process was started, which knows a cursor and nothing else."""
        self._told, self._untold = told, deque(self._left_out)

    def due(self) -> dict[str, Any] | None:
        """Return the next request for this process, None where it knows all."""
        if self.unsaid:
            return {"seq": self.cursor[0], "groups": self.cursor[1]}
        return {"seq": self._untold[0][0], "groups": self._untold[0][1], "only": True} if self._untold else None

    def answered(self, request: dict[str, Any]) -> None:
        """Note that this process has taken a request."""
        place = (request["seq"], request["groups"])
        if "only" not in request:
            self._told = max(self._told, place)
        elif self._untold and self._untold[0] == place:
            self._untold.popleft()
