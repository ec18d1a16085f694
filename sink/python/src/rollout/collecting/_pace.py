"""Decides when the next group can start, if several collectors share the limits on groups.

These are the rules of the Go package collector/pace, over the sum of all collectors. That package
explains them. Each collector reports its numbers with the event "pace".
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any


class Pace:
    """The limits, and what they depend on. Not thread-safe: the caller must hold a lock."""

    def __init__(self) -> None:
        self.until = self.informative = self.whole = self._given = 0
        self._max_ahead, self._max_lag = 0, -1
        self._version, self._since, self._extra = -1, 0.0, 0
        self._acked, self._taken = 0, 0  # groups acknowledged before the version was set; groups that count as taken before it
        self._batches: deque[float] = deque(maxlen=8)  # groups acknowledged in each of the last versions
        self._lasts = self._takes = 0.0  # T and D
        self._paused, self._changed = False, 0.0  # whether there is a pause; the time of the last change

    @property
    def enough(self) -> bool:
        """Whether no more groups are needed."""
        return 0 < self.until <= self.informative

    def pause(self, on: bool) -> None:
        """Record the begin or the end of a pause."""
        self._paused, self._changed = on, time.monotonic()

    def update(self, every: Sequence[Mapping[str, Any]]) -> None:
        """Take the last event of each collector."""
        self.until, self._max_ahead, self._max_lag = (every[0][k] for k in ("until_groups", "max_ahead", "max_lag"))
        self.informative, self.whole, self._given = (sum(e[k] for e in every) for k in ("informative", "whole", "given"))
        version, self._lasts, self._takes = (max(e[k] for e in every) for k in ("version", "version_seconds", "group_seconds"))
        self._changed = time.monotonic()
        if version == self._version:
            return
        acked = self.informative - self._given
        if 0 <= self._version < version:
            self._batches.append((acked - self._acked) / (version - self._version))
        self._version, self._since, self._extra, self._acked = version, self._changed, 0, acked
        self._taken = acked + (self._given > 0)  # the last group of a batch is acknowledged only with the request for the next batch

    def wait(self, progress: int) -> float:
        """Return 0 if another group can start, or the seconds after which to ask again. The result
        is infinite if only a change can let another group start.

        progress: the number of groups that are not whole.
        """
        share = (self.informative + 1) / (self.whole + 1)
        if 0 < self._max_ahead <= progress + self._given or 0 < self.until <= self.informative + share * progress:
            return math.inf
        batch = max(self._batches, default=0)
        if self._max_lag < 0 or batch <= 0:
            return 0
        lag = int((self.informative - self._taken + share * progress) / batch)
        if lag <= self._max_lag + self._extra:
            return 0
        if progress or self._paused:
            return math.inf  # the trainer might be waiting for these groups
        now = time.monotonic()
        left = max(self._since + self._lasts, self._changed) + self._takes - now
        if left <= 0:
            self._extra, self._changed = lag - self._max_lag, now
        return max(left, 0)
