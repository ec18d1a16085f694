"""One rank of a training job that collects, for test_collect_ranks.py.

usage: rank_collect.py FOLDER RANK WORLD OPTIONS

OPTIONS: JSON of {"tasks": N, "left_out": EVERY, "options": {…}, "program": PATH, "async": bool, "fail": bool, "ack": bool, "load": [STATE OF RANK 0, …]}.
Writes what it was given as lines of FOLDER/rank-RANK.jsonl, and finally how it ended.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist

import rollout
from rollout.collecting import collect as collecting


def tasks(n: int, fail: bool, left_out: int) -> Iterator[dict[str, Any]]:
    """Yield tasks. The stand-in sets keep=false for all groups except every left_out-th."""
    for i in range(n):
        yield {"id": str(i), "prompt": f"p{i}", "answer": "left out" if i % left_out else ""}
    if fail:
        raise KeyError("mine")


def main(folder: Path, rank: int, world: int, wishes: dict[str, Any]) -> None:
    if wishes.get("program"):
        collecting.program = lambda: wishes["program"]  # type: ignore[assignment]
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=200))
    options = {"out": folder / "run", "state": wishes.get("state"), **wishes.get("options", {})}
    with open(folder / f"rank-{rank}.jsonl", "a") as out:

        def say(**fields: Any) -> None:
            print(json.dumps(fields), file=out, flush=True)

        try:
            with rollout.collect(None, tasks(wishes["tasks"], wishes.get("fail", False), wishes.get("left_out", 1)), **options) as c:

                if "load" in wishes:
                    c.load_state_dict(wishes["load"][rank])
                given_to: list[str] = []

                def given(group: rollout.Group) -> None:
                    given_to.append(group.id)
                    c.set_version(len(group.rows))
                    say(group=group.id, rows=[r["sample_index"] for r in group.rows], state=c.state_dict())

                async def iterate() -> None:
                    async for group in c:
                        given(group)

                if wishes.get("async"):
                    asyncio.run(iterate())
                else:
                    late = 0
                    while True:
                        try:
                            for group in c:
                                given(group)
                            break
                        except TimeoutError:
                            late += 1
                            if wishes.get("ack") and late < 60:
                                c.ack()
                            elif given_to:  # otherwise the collector is still starting
                                raise
                say(end=c.counts)
        except Exception as err:
            say(error=type(err).__name__, text=str(err))
        finally:
            dist.destroy_process_group()  # its threads must end before the interpreter


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
