"""One rank of a training job that only reads, for test_ranks.py.

usage: rank.py RUN RANK WORLD WORKERS FOLDER [slow]

Writes the groups of each batch as a line of FOLDER/rank-RANK.jsonl and then its state to
FOLDER/state-RANK.json, from which the next start continues.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from pathlib import Path

import torch.distributed as dist

import rollout


def main(run: str, rank: int, world: int, workers: int, folder: Path, slow: bool) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet-{os.environ['MEET']}", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=100)
    )
    ds = rollout.Dataset(run, where=rollout.Where(null_reward="drop"))
    batches = ds.batches(2, seed=11, collate=rollout.collate.padded(0))
    loader = rollout.DataLoader(batches, num_workers=workers)
    state = folder / f"state-{rank}.json"
    if state.exists():
        loader.load_state_dict(json.loads(state.read_text()))
    with open(folder / f"rank-{rank}.jsonl", "a") as out:
        for batch in loader:
            # Every rank gets here equally often; otherwise this would wait forever.
            dist.barrier()
            rows = [list(r) for r in batch["rows"]]
            print(json.dumps({"rows": rows, "null": int((~batch["reward_known"]).sum())}), file=out, flush=True)
            temporary = state.with_suffix(".tmp")
            temporary.write_text(json.dumps(loader.state_dict()))
            temporary.rename(state)
            if slow:
                time.sleep(0.1)
    dist.barrier()
    (folder / f"done-{rank}").touch()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]), sys.argv[6:] == ["slow"])
