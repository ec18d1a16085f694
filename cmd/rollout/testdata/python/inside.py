"""Read the optional columns of a run with the package, pyarrow, DuckDB and torch, and compare them.

Usage: inside.py RUN. Prints one JSON line per row: the key, the segment, and the values as lists.
"""

import json
import pathlib
import sys

import duckdb
import numpy as np
import pyarrow.parquet as pq
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "sink/python/src"))

import rollout
from rollout import collate

run = sys.argv[1]
groups = list(rollout.Dataset(run))
rows = [row for group in groups for row in group.rows]

raw = {}
for path in pathlib.Path(run, "data").glob("*.parquet"):
    file = pq.ParquetFile(path)
    form = json.loads(file.schema_arrow.metadata[b"rollout.routed_experts"])
    table = file.read().to_pylist()
    duck = duckdb.connect().execute("select sample_key, segment_index, routed_experts, sampling_mask, weight_versions from read_parquet(?)", [str(path)]).fetchall()
    for r, d in zip(table, duck):
        raw[r["sample_key"], r["segment_index"]] = np.frombuffer(r["routed_experts"], form["dtype"]).reshape(-1, *form["shape"])
        assert d == (r["sample_key"], r["segment_index"], r["routed_experts"], r["sampling_mask"], r["weight_versions"])

batch = collate.padded(pad_id=0, null_reward="nan")(groups)
assert batch["routed_experts"].dtype == torch.int16 and batch["routed_experts"].shape[:2] == batch["input_ids"].shape
packs = list(collate.micro_batches(collate.packed(4096, null_reward="nan", order="given", longer="own")(groups)))
flat = torch.cat([pack["routed_experts"] for pack in packs])
at = 0
for i, row in enumerate(rows):
    experts, n = row["routed_experts"], len(row["input_ids"])
    assert np.array_equal(experts, raw[row["sample_key"], row["segment_index"]]) and len(experts) == n
    assert np.array_equal(batch["routed_experts"][i, :n].numpy(), experts) and (batch["routed_experts"][i, n:] == -1).all()
    assert np.array_equal(flat[at : at + n].numpy(), experts)
    at += n
    masks = None
    if row["sampling_mask_lengths"] is not None:
        ends = np.cumsum(row["sampling_mask_lengths"])
        masks = [ids.tolist() for ids in np.split(row["sampling_mask"], ends[:-1])]
        assert [[x for x in ids if x >= 0] for ids in batch["sampling_mask"][i, :n].tolist()] == masks
    versions = None
    if row["weight_versions"] is not None:
        versions = np.repeat(row["weight_versions"], np.diff(row["weight_version_ends"], prepend=0)).tolist()
    print(json.dumps({"key": row["sample_key"], "segment": int(row["segment_index"]), "experts": experts.reshape(n, -1).tolist(), "masks": masks, "versions": versions}))
