"""Samples of entries that name no groups, which have versions 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rollout.log import Check, Shard, batches

_PLACE = ["sample_key", "group_id", "group_size", "sample_index"]


@dataclass
class Named:
    """What a commit says of its samples, a list entry per sample."""

    keys: list[bytes] = field(default_factory=list)
    groups: list[tuple[str, int]] = field(default_factory=list)
    """Of the sample's group, its id and how many samples were asked for."""
    index: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)

    def add(self, key: bytes, group: tuple[str, int], index: int) -> None:
        """Add a sample of which no row and no failure was seen."""
        self.keys.append(key)
        self.groups.append(group)
        self.index.append(index)
        self.rows.append(0)
        self.failures.append(0)


class Columns:
    """Takes the groups of samples from the columns of their shards."""

    def __init__(self, check: Check) -> None:
        self._check: Check = check
        self.lost: list[bytes] = []  # keys of samples whose group is not known yet
        self._tasks: dict[bytes, tuple[str, int]] = {}

    def named(self, entry: dict[str, Any], files: dict[str, Shard]) -> Named:
        """Return the samples of an entry, and of those before it whose groups it tells."""
        out = Named()
        seen: dict[bytes, int] = {}
        for kind, count in (("data", out.rows), ("failures", out.failures)):
            if kind not in files:
                continue
            for key, gid, size, at in self._places(files[kind]):
                k = key.encode()
                if kind == "data" and out.keys and out.keys[-1] == k:
                    out.rows[-1] += 1
                    continue
                place = seen.get(k)
                if place is None:
                    place = seen[k] = len(out.keys)
                    out.add(k, (gid, size), at)
                elif kind == "data":
                    raise ValueError(f"the rows of sample {key} are not together")
                count[place] += 1
        # A sample without rows and failures is in no column. The keys of a group's samples
        # differ in their ends, which are the indices, so its siblings identify the group.
        self._tasks.update((k.rpartition(b"-")[0], g) for k, g in zip(out.keys, out.groups, strict=True))
        self.lost += [s["key"].encode() for s in entry["samples"] or [] if s["rows"] == 0 and s["failures"] == 0]
        lost, self.lost = self.lost, []
        for k in lost:
            task, _, end = k.rpartition(b"-")
            if task in self._tasks and end.isdigit():
                out.add(k, self._tasks[task], int(end))
            else:
                self.lost.append(k)
        return out

    def _places(self, shard: Shard) -> Iterator[tuple[str, str, int, int]]:
        for batch in batches(shard, _PLACE, self._check):
            yield from zip(*(batch.column(name).to_pylist() for name in _PLACE), strict=True)
