#!/usr/bin/env python3
"""Counts the samples of a fleet in a folder. Fails if a sample is in it twice.

usage: .ci/fleetcheck.py STORE [--complete]

With --complete, it also fails if a planned sample is missing or a partition is not sealed. It reads
only the store.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "sink" / "python" / "src"))
from rollout import log  # noqa: E402


def main() -> None:
    """Check the fleet, and print the number of samples."""
    store, complete = Path(sys.argv[1]), "--complete" in sys.argv[2:]
    plan = json.loads((store / "fleet.json").read_text())
    keys: Counter[str] = Counter()
    for n, partition in enumerate(plan["partitions"]):
        folder = store / "partitions" / f"{n:04}"
        last = max(folder.glob("_commits/*.json"), default=None)
        sealed = last is not None and json.loads(last.read_text()).get("kind") == "sealed"
        if complete and partition["samples"] > 0 and not sealed:
            sys.exit(f"fleetcheck: partition {n} is not sealed")
        if last is not None:
            rows = log.table(folder, columns=["sample_key", "segment_index"]).to_pylist()
            keys.update(row["sample_key"] for row in rows if row["segment_index"] == 0)
    planned = sum(p["samples"] for p in plan["partitions"])
    if twice := [key for key, n in keys.items() if n > 1]:
        sys.exit(f"fleetcheck: {len(twice)} samples are in the store more than once: {twice[:3]}")
    if complete and len(keys) != planned:
        sys.exit(f"fleetcheck: {len(keys)} samples of {planned}")
    print(len(keys))


if __name__ == "__main__":
    main()
