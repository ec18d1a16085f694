"""The groups of a followed run before their rows are read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rollout.runs.log import Shard


@dataclass(frozen=True)
class PlacedSample:
    """A sample with rows, in an open group."""

    index: int
    key: bytes
    shard: Shard
    first: int
    rows: int
    reward: float = math.nan
    spans: list[tuple[int, int]] | None = None
    """The rows that the filters keep. None: the filters have not yet been applied."""

    @property
    def left(self) -> int:
        """The number of the sample's rows that the filters keep."""
        return self.rows if self.spans is None else sum(end - begin for begin, end in self.spans)


@dataclass
class OpenGroup:
    """A group and the places of its rows. Samples are added until the group is complete."""

    id: str
    size: int = 0
    failed: int = 0
    empty: int = 0
    left_out: int = 0
    samples: list[PlacedSample] = field(default_factory=list)
    """Samples with kept rows."""
    keys: set[bytes] = field(default_factory=set)
    """Keys of samples with rows."""
    failures: set[bytes] = field(default_factory=set)
    """Keys of samples that have failed so far."""

    @property
    def held(self) -> int:
        """How many of the group's samples are in the log."""
        return len(self.samples) + self.failed + self.empty + self.left_out

    @property
    def missing(self) -> int:
        """How many of the group's samples are not in the log."""
        return max(0, self.size - self.held)


@dataclass(frozen=True)
class CommitSample:
    """A sample in a commit, as described by the log entry."""

    key: bytes
    group: str
    size: int
    index: int
    rows: int
    failures: int
