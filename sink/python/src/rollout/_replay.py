"""The groups of a run that was collected before, handed to a trainer as a collector hands them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rollout._types import Group
from rollout.dataset import Dataset
from rollout.errors import StateError


class Replay:
    """Every group of a dataset once, in its order, with the methods of a collection that a trainer calls."""

    def __init__(self, dataset: Dataset) -> None:
        if dataset.follow:
            raise TypeError("a dataset with follow=True waits for another collector: give the dataset without it, once the run has ended")
        self._dataset = dataset
        self._next = 0

    def __iter__(self) -> Iterator[Group]:
        while self._next < len(self._dataset):
            self._next += 1
            yield self._dataset[self._next - 1]

    @property
    def end(self) -> str:
        """Why no more groups come."""
        return f"all {len(self._dataset)} groups of {', '.join(self._dataset.runs)} were given; let the training make fewer steps, or give more runs"

    def set_version(self, version: int) -> None:
        """Do nothing: rows keep the versions that they were sampled with."""

    def state_dict(self) -> dict[str, Any]:
        """The place behind the last group that was given, as a dict of JSON values."""
        return {"snapshot": self._dataset.snapshot, "next": self._next}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on behind a state. Raises StateError where it is of other runs."""
        try:
            snapshot, place = list(state["snapshot"]), int(state["next"])
        except (KeyError, TypeError, ValueError) as err:
            raise StateError(f"state: {state!r:.80} is not the place in a finished run: it was saved with a collector, or is no state") from err
        self._dataset = self._dataset.at(snapshot)
        self._next = place

    def close(self) -> None:
        """Do nothing: no process belongs to it."""
