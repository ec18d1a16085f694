"""A torch DataLoader reads committed shards through rollout_data.

usage: read_torch.py JOB.json
"""

import sys

import numpy as np
import torch
from torch.utils.data import DataLoader

import expect
import rollout_data


def main(job):
    job = expect.load(job)
    for run in job["runs"]:
        want = job["sets"][run["set"]]
        for workers in (0, 2):
            for by in ("shard", "row"):
                rows = []
                for rank in range(2):
                    ds = rollout_data.RolloutDataset(run["dir"], by=by, rank=rank, world_size=2)
                    rows += DataLoader(ds, batch_size=None, num_workers=workers, collate_fn=lambda row: row)
                for row in rows:
                    row["started_at"] = None
                for row in rows:
                    del row["started_at"]
                assert expect.check_python(rows, want) == want["rows"]
        check_collate(run, want)
        table = rollout_data.table(run["dir"])
        expect.check_table(table, want)


def check_collate(run, want):
    index = {(k, s): i for i, (k, s) in enumerate(zip(want["values"]["sample_key"], want["values"]["segment_index"]))}
    columns = ["sample_key", "segment_index", "input_ids", "loss_mask", "logprobs", "reward"]
    ds = rollout_data.RolloutDataset(run["dir"], columns=columns)
    source = list(rollout_data.RolloutDataset(run["dir"], columns=columns))
    at = 0
    for batch in DataLoader(ds, batch_size=3, collate_fn=rollout_data.collate):
        b, t = batch["input_ids"].shape
        assert batch["loss_mask"].shape == batch["logprobs"].shape == batch["attention_mask"].shape == (b, t)
        assert batch["loss_mask"].dtype == torch.int8 and batch["logprobs"].dtype == torch.float32
        for k in range(b):
            row = source[at]
            i = index[row["sample_key"], row["segment_index"]]
            at += 1
            n = len(want["values"]["input_ids"][i])
            assert int(batch["attention_mask"][k].sum()) == n
            assert batch["input_ids"][k, :n].tolist() == want["values"]["input_ids"][i]
            assert batch["loss_mask"][k, :n].tolist() == want["values"]["loss_mask"][i]
            got = np.asarray(batch["logprobs"][k, :n].tolist(), dtype=np.float32)
            assert np.array_equal(expect.bits(got, np.float32), expect.from_bits(want["values"]["logprobs"][i], "float32"))
            assert not batch["loss_mask"][k, n:].any() and not batch["logprobs"][k, n:].any()
    assert at == want["rows"]


if __name__ == "__main__":
    main(sys.argv[1])
