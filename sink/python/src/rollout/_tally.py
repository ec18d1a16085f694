"""Counts of what the filters dropped from a followed run, shared across processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollout.filters import Counts
from rollout.index import Ints
from rollout.selection import GROUP_REASONS, SAMPLE_REASONS

REASONS = (*SAMPLE_REASONS, *GROUP_REASONS, "late")
UNITS = ("groups", "samples", "rows")


@dataclass(frozen=True)
class Told:
    """The last state of an iteration."""

    counts: Counts
    ended: bool
    """The run has ended, so the numbers cover the whole iteration."""
    dropped: int
    repeated: int


class Tally:
    """A table that the iterating process writes and other processes read.

    share turns an array into a shared one. The numbers of an iteration only grow, so a read
    during a write returns values between two states.
    """

    def __init__(self, share: Callable[[Ints], Any]) -> None:
        # UNITS by REASONS, dropped, repeated, and 1 if the run has ended, written last.
        self._table = share(np.zeros(len(REASONS) * len(UNITS) + 3, dtype=np.int64))

    def tell(self, counts: Counts, ended: bool = False, dropped: int = 0, repeated: int = 0) -> None:
        """Write the counts so far."""
        table = np.asarray(self._table)
        table[-1] = 0
        table[:-1] = [*(counts.get(reason, {}).get(unit, 0) for reason in REASONS for unit in UNITS), dropped, repeated]
        table[-1] = ended

    def told(self) -> Told:
        """Read the last counts."""
        table = np.asarray(self._table)
        ended = bool(table[-1])  # read first: the numbers are at least as new
        by_reason = zip(REASONS, table[:-3].reshape(-1, len(UNITS)).tolist(), strict=True)
        counts = {reason: dict(zip(UNITS, numbers, strict=True)) for reason, numbers in by_reason if any(numbers)}
        return Told(counts, ended, int(table[-3]), int(table[-2]))
