"""A trainer for test_collect_run.py that is killed at any moment and restarts from its last
checkpoint.

usage: looping.py FOLDER OPTIONS

A checkpoint is the file FOLDER/checkpoint.json: the state of the collection and, in place of
weights, the groups they were trained with. OPTIONS is the JSON of the arguments of collect.
PLANT in the environment plants a fault in what the trainer saves, so that after a kill a group
comes twice or never: "double" saves the state before the group that was just trained; "lost"
saves the state after a group that is trained next. With the option hold, it waits to be killed when
it has trained so many groups.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from waiting import PATIENCE

import rollout


def save(folder: Path, state: dict[str, Any], trained: list[str]) -> None:
    """Write a checkpoint atomically."""
    part = folder / "checkpoint.part"
    part.write_text(json.dumps({"state": state, "trained": trained}))
    part.rename(folder / "checkpoint.json")


def main(folder: Path, config: dict[str, Any], options: dict[str, Any], plant: str | None) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored if a shell has started the tests in the background
    hold = options.pop("hold", None)
    if plant and not (folder / "checkpoint.json").exists():
        hold = 6
    saved = json.loads((folder / "checkpoint.json").read_text()) if (folder / "checkpoint.json").exists() else None
    trained: list[str] = saved["trained"] if saved else []
    state = saved["state"] if saved else None
    tasks = [json.loads(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]
    with rollout.collect(config, tasks, out=folder / "run", state=state, timeout=PATIENCE, **options) as c:
        (folder / "begun").touch()
        if saved is None:
            save(folder, c.state_dict(), [])
        before = c.state_dict()
        for step, group in enumerate(c):
            assert group.missing == 0 and len({r["sample_index"] for r in group.rows}) + group.failed + group.empty == group.size
            if plant == "lost":
                save(folder, c.state_dict(), trained)
            if len(trained) == hold:
                time.sleep(600)  # until it is killed
            time.sleep(0.05)  # a training step
            trained.append(group.id)
            if plant != "lost" and (plant == "double" or step % 3 == 2 or len(trained) == len(tasks)):
                save(folder, before if plant == "double" else c.state_dict(), trained)
            before = c.state_dict()
            c.set_version(step)
        save(folder, c.state_dict(), trained)
    (folder / "done").touch()


def once(trained: list[str], planned: int) -> list[str]:
    """Return the errors in the groups of a training job; empty if each was trained once."""
    counts = {g: trained.count(g) for g in trained}
    out = [f"{g} was trained {n} times" for g, n in counts.items() if n != 1]
    if len(counts) != planned:
        out.append(f"{len(counts)} groups were trained, want {planned}")
    return out


if __name__ == "__main__":
    wishes = json.loads(sys.argv[2])
    main(Path(sys.argv[1]), wishes.pop("config"), wishes, os.environ.get("PLANT"))
