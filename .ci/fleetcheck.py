#!/usr/bin/env python3
"""Reads only the store of a fleet, and checks its samples. Prints the number of samples.

usage: .ci/fleetcheck.py STORE [--complete | --follow]

STORE is a folder, or a URL such as s3://bucket/run1. An error means that a sample is in the fleet twice, or
that an entry of a log is missing or comes from a worker that no longer owned the log.

--complete  each planned sample must be in the fleet, with rows that can be read and have the committed
            checksum. No sample must have failed, and all partitions must be sealed.
--follow    consume the groups with rollout.Dataset(STORE, follow=True) until the fleet is complete. Each
            planned group must come once and whole, and the memory of this process must stay bounded.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "sink" / "python" / "src"))
import rollout  # noqa: E402
from rollout.runs import _store as store  # noqa: E402

PARTS = 8
"""Into how many parts --follow divides the groups, to report its memory in each."""
GROWTH = 128
"""How many MB the memory of --follow can grow. The cache of a Dataset takes up to 64."""


def fail(text: str) -> NoReturn:
    """End the program with an error."""
    sys.exit(f"fleetcheck: {text}")


class Fleet:
    """The plan of a fleet."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.plan = json.loads(store.read(store.join(place, "fleet.json")))
        self.partitions = [(n, store.join(place, "partitions", f"{n:04}")) for n, p in enumerate(self.plan["partitions"]) if p["tasks"]]

    def tasks(self) -> dict[str, int]:
        """Return the planned number of samples of each task."""
        tasks = {}
        for n, _ in self.partitions:
            path = store.join(self.place, "tasks", self.plan["id"], f"{n:04}.jsonl.zst")
            with pa.CompressedInputStream(pa.BufferReader(store.read(path)), "zstd") as lines:
                tasks.update((task["id"], task["samples"]) for task in map(json.loads, lines.read().splitlines()))
        return tasks


class PartitionLog:
    """The log of a partition: its samples, the number of its claims, and whether it is sealed."""

    def __init__(self, folder: str) -> None:
        self.claims, self.sealed = 0, False
        claim: dict[str, Any] = {"seq": 0, "epoch": 0, "nonce": ""}
        commits: dict[int, list[dict[str, Any]]] = {}
        for seq, (name, entry) in enumerate(self._entries(folder), 1):
            if name != f"{seq:020}.json" or entry["seq"] != seq:
                fail(f"{folder}: entry {seq} is missing")
            if self.sealed:
                fail(f"{folder}: entry {seq} follows the end of the log")
            if entry.get("kind") == "claim":
                if entry["epoch"] <= claim["epoch"]:
                    fail(f"{folder}: claim {seq} has epoch {entry['epoch']}, but an earlier claim has {claim['epoch']}")
                claim, self.claims = entry, self.claims + 1
            elif (entry["claim"], entry["epoch"], entry["nonce"]) != (claim["seq"], claim["epoch"], claim["nonce"]):
                fail(f"{folder}: entry {seq} is from a worker that no longer owned the log")
            self.sealed = entry.get("kind") == "sealed"
            for first, last in entry.get("replaces") or []:
                for replaced in range(first, last + 1):
                    commits.pop(replaced, None)
            commits[seq] = entry["samples"] or []
        self.samples = [sample for samples in commits.values() for sample in samples]

    @staticmethod
    def _entries(folder: str) -> Iterator[tuple[str, Any]]:
        log = store.join(folder, "_commits")
        names = sorted(name for name in store.names(log) if re.fullmatch(r"\d{20}\.json", name))
        return zip(names, store.each(log, lambda name: json.loads(store.read(store.join(log, name))), names))


def once(keys: list[Any], what: str) -> set[Any]:
    """Return the set of keys. None can be in the list twice."""
    if twice := [key for key, n in Counter(keys).items() if n > 1]:
        fail(f"{len(twice)} {what} are in the store more than once: {twice[:3]}")
    return set(keys)


def complete(fleet: Fleet, logs: list[PartitionLog]) -> None:
    """Compare the samples with the plan, and the rows with the samples."""
    if unsealed := [n for (n, _), log in zip(fleet.partitions, logs) if not log.sealed]:
        fail(f"partitions {unsealed} are not sealed")
    planned = {(task, i) for task, samples in fleet.tasks().items() for i in range(samples)}
    samples = [sample for log in logs for sample in log.samples]
    failed = sum(sample["rows"] == 0 for sample in samples)
    filtered = sum("filtered" in sample for sample in samples)
    rows = []
    for _, folder in fleet.partitions:
        for shard in rollout.log.shards(folder):
            rollout.log.check_shard(shard)
        rows += rollout.log.table(folder, columns=["sample_key", "task_id", "sample_index", "segment_index"]).to_pylist()
    stored = once([(row["task_id"], row["sample_index"]) for row in rows if row["segment_index"] == 0], "samples")
    counts = f"{len(planned)} planned: {len(samples) - filtered - failed} committed, {filtered} filtered, {failed} failed"
    if failed or stored != planned or {row["sample_key"] for row in rows} != {sample["key"] for sample in samples}:
        fail(f"{counts}, {len(stored & planned)} with rows")
    print(f"fleetcheck: {counts}; {sum(log.claims for log in logs)} claims of {len(logs)} partitions", file=sys.stderr)


def memory() -> int:
    """Return the size of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20


def follow(fleet: Fleet) -> int:
    """Consume the groups of a fleet that is being collected, and return the number of samples."""
    waiting, cursor, samples, errors, size = fleet.tasks(), None, 0, 0, 0
    groups, sizes = len(waiting), [0] * PARTS
    while waiting:
        try:
            following = rollout.Dataset(fleet.place, follow=True, timeout=300).following(after=cursor)
            for group in following:
                task = group.rows[0]["task_id"] if group.rows else ""
                planned, indexes = waiting.pop(task, 0), {row["sample_index"] for row in group.rows if row["task_id"] == task}
                if (group.size, indexes) != (planned, set(range(planned))):
                    fail(f"group {group.id} of task {task!r} has the samples {sorted(indexes)} of {planned}: it is not whole, or it came twice")
                cursor, samples = following.cursor, samples + planned
                size += sum(value.nbytes for row in group.rows for value in row.values() if hasattr(value, "nbytes"))
                part = (groups - len(waiting) - 1) * PARTS // groups
                sizes[part] = max(sizes[part], memory())
            if waiting:
                fail(f"{len(waiting)} groups did not come")
        except rollout.StoreError as err:  # longer than pyarrow repeats a request
            print(f"fleetcheck: {err}; continuing from the cursor", file=sys.stderr)
            errors += 1
            time.sleep(1)
    counts = f"followed {groups} groups with {size >> 20} MB, and continued after {errors} errors"
    print(f"fleetcheck: {counts}; memory in MB: {sizes}", file=sys.stderr)
    if max(sizes) > sizes[0] + GROWTH:
        fail(f"the memory grew by more than {GROWTH} MB")
    return samples


def main() -> None:
    """Check the fleet."""
    fleet, how = Fleet(sys.argv[1]), sys.argv[2:]
    if how == ["--follow"]:
        print(follow(fleet))
        return
    logs = [PartitionLog(folder) for _, folder in fleet.partitions]
    keys = once([sample["key"] for log in logs for sample in log.samples], "samples")
    if how == ["--complete"]:
        complete(fleet, logs)
    print(len(keys))


if __name__ == "__main__":
    try:
        main()
    except rollout.RolloutError as err:
        fail(str(err))
