"""Replay the groups of a finished run to a trainer, as a collector would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rollout._types import Group
from rollout.dataset import Dataset
from rollout.errors import StateError


class Replay:
    """Iterates over each group of a dataset once, in order. It has the methods of a collection
    that a trainer calls."""

    def __init__(self, dataset: Dataset) -> None:
        if dataset.follow:
            raise TypeError("a dataset with follow=True waits for another collector: pass a dataset without follow, after the run has ended")
        self._dataset = dataset
        self._next = 0

    def __iter__(self) -> Iterator[Group]:
        while self._next < len(self._dataset):
            self._next += 1
            yield self._dataset[self._next - 1]

    @property
    def end(self) -> str:
        """Why no more groups come."""
        return f"all {len(self._dataset)} groups of {', '.join(self._dataset.runs)} were used: train for fewer steps, or pass more runs"

    def set_version(self, version: int) -> None:
        """Do nothing: rows keep the versions that they were sampled with."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last returned group, as a dict of JSON values."""
        return {"snapshot": self._dataset.snapshot, "next": self._next}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after a saved state. Raises StateError if the state is from other runs."""
        try:
            snapshot, place = list(state["snapshot"]), int(state["next"])
        except (KeyError, TypeError, ValueError) as err:
            raise StateError(f"state: {state!r:.80} is not a position in a finished run: it was saved with a collector, or is not a state") from err
        self._dataset = self._dataset.at(snapshot)
        self._next = place

    def close(self) -> None:
        """Do nothing: there is no process."""
