"""Groups of a run that is followed, which are not read yet."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rollout.log import Shard


@dataclass(frozen=True)
class Taken:
    """A sample of an open group that has rows."""

    index: int
    key: bytes
    shard: Shard
    first: int
    rows: int
    reward: float = math.nan
    spans: list[tuple[int, int]] | None = None
    """The rows that are left of it; None: the filters have not looked at it."""

    @property
    def left(self) -> int:
        """The number of its rows that the filters keep."""
        return self.rows if self.spans is None else sum(end - begin for begin, end in self.spans)


@dataclass
class Found:
    """A group, and where its rows are; it grows until all of its samples are there."""

    id: str
    size: int = 0
    failed: int = 0
    empty: int = 0
    left_out: int = 0
    samples: list[Taken] = field(default_factory=list)
    """Those with rows that are left."""
    keys: set[bytes] = field(default_factory=set)
    """Keys that have rows."""
    failures: set[bytes] = field(default_factory=set)
    """Keys that have failed so far."""

    @property
    def held(self) -> int:
        """Samples of it that the log holds."""
        return len(self.samples) + self.failed + self.empty + self.left_out


@dataclass(frozen=True)
class Told:
    """A sample of a commit, as its entry has it."""

    key: bytes
    group: str
    size: int
    index: int
    rows: int
    failures: int
