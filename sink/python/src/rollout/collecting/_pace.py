"""Decides when the next group can start, if several collectors share the limits on groups.

These are the rules of the Go package collector/pace, over the sum of all collectors. That package
explains them. Here, T and D are plain means, and pauses count.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Groups:
    """The numbers of groups of one collector."""

    progress: int
    """Groups that were passed to the collector and are not whole."""
    given: int
    """Whole groups that the trainer has not acknowledged."""
    informative: int
    whole: int


class Pace:
    """The limits, and what they depend on. Not thread-safe: the caller must hold a lock."""

    def __init__(self) -> None:
        self.max_ahead = self.until = 0
        self.max_lag = -1
        self.enough = False
        """True if no more groups are needed: see until_groups."""
        self._version, self._since, self._extra = -1, 0.0, 0
        self._taken = 0  # groups acknowledged in this version
        self._busy, self._idle = False, 0.0  # whether a group is in progress; when the last one ended
        self._batches: deque[float] = deque(maxlen=8)  # groups acknowledged in each of the last versions
        self._lasted: deque[float] = deque(maxlen=8)  # seconds of each of these versions
        self._took: deque[float] = deque(maxlen=128)  # seconds of each of the last groups

    def read_limits(self, status: dict[str, Any]) -> None:
        """Take the limits from the status of a collector."""
        self.max_ahead, self.until = status["groups"]["max_ahead"], status["groups"]["until"]
        self.max_lag = -1 if status["lag"]["max"] is None else status["lag"]["max"]

    @property
    def limited(self) -> bool:
        """Whether any limit is set."""
        return self.max_ahead > 0 or self.until > 0 or self.max_lag >= 0

    def arrived(self, seconds: float) -> None:
        """Record how long a group took."""
        self._took.append(seconds)

    def acknowledged(self, n: int) -> None:
        """Record that the trainer has acknowledged n groups."""
        self._taken += n

    def set_version(self, version: int, given: int) -> None:
        """Record that the engines have a version from now on. The parameter given is the number of
        groups that the trainer has not acknowledged."""
        if version < 0 or version == self._version:
            return
        now = time.monotonic()
        if 0 <= self._version < version:
            steps = version - self._version
            self._batches.append(self._taken / steps)
            self._lasted.append((now - self._since) / steps)
        self._version, self._since, self._extra = version, now, 0
        self._taken = -1 if given else 0  # the last group of a batch is acknowledged only with the request for the next batch

    def wait(self, each: Iterable[Groups]) -> float:
        """Return 0 if another group can start, or the seconds after which to ask again. The result
        is infinite if only a change can let another group start."""
        every = list(each)
        progress, given = sum(g.progress for g in every), sum(g.given for g in every)
        informative, whole = sum(g.informative for g in every), sum(g.whole for g in every)
        now = time.monotonic()
        if self._busy or progress:
            self._idle = now
        self._busy = progress > 0
        share = (informative + 1) / (whole + 1)
        self.enough = 0 < self.until <= informative
        if self.enough or 0 < self.max_ahead <= progress + given or 0 < self.until <= informative + share * progress:
            return math.inf
        batch = max(self._batches, default=0)
        if self.max_lag < 0 or batch <= 0:
            return 0
        lag = int((self._taken + given + share * progress) / batch)
        if lag <= self.max_lag + self._extra:
            return 0
        if progress:
            return math.inf  # the trainer might be waiting for these groups
        left = max(self._since + _mean(self._lasted), self._idle) + _mean(self._took) - now
        if left <= 0:
            self._extra, self._idle = lag - self.max_lag, now
        return max(left, 0)


def _mean(values: deque[float]) -> float:
    return sum(values) / max(len(values), 1)
