"""Shards of schema versions 1 and 2 of one run are read together.

usage: read_old.py JOB.json CACHE
"""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["HF_HOME"] = sys.argv[2]

import datasets  # noqa: E402
import duckdb  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import expect  # noqa: E402
from rollout import log  # noqa: E402

ADDED = ["policy_version_min", "policy_version_max", "keep", "keep_reason"]


def read(file):
    if file["format"] == "parquet":
        return pq.read_table(file["path"])
    with pa.memory_map(file["path"]) as source, pa.ipc.open_stream(source) as reader:
        return reader.read_all()


def main(job, cache):
    datasets.disable_progress_bars()
    job = expect.load(job)
    for run in job["runs"]:
        want = job["sets"][run["set"]]
        paths = [f["path"] for f in want["files"]]
        tables = [read(f) for f in want["files"]]
        assert tables[0].column_names + ADDED == tables[-1].column_names == want["columns"]
        # pyarrow, one schema for all: what an old file does not have is null.
        expect.check_table(pa.concat_tables([t.replace_schema_metadata(None) for t in tables], promote_options="default"), want)
        # The package, as a table and row by row, also in the workers of a DataLoader.
        expect.check_table(log.table(run["dir"]), want)
        rows = [r for s in log.shards(run["dir"]) for r in DataLoader(list(log.rows(s)), batch_size=None, collate_fn=lambda r: r, num_workers=1)]
        for row in rows:
            del row["started_at"]
        assert expect.check_python(rows, want) == want["rows"]
        if want["files"][0]["format"] == "arrow":
            parts = [datasets.Dataset.from_file(p) for p in paths]
            expect.check_table(datasets.concatenate_datasets(parts).with_format("arrow")[:], want)
            continue
        features = datasets.Features.from_arrow_schema(pq.read_schema(paths[-1]))
        ds = datasets.load_dataset("parquet", data_files=paths, split="train", features=features, cache_dir=cache)
        expect.check_table(ds.with_format("arrow")[:], want)
        ds = datasets.load_dataset(run["dir"], split="train", cache_dir=cache)  # by its card
        expect.check_table(ds.with_format("arrow")[:], want)
        table = duckdb.execute("select * from read_parquet(?, union_by_name = true)", [paths]).to_arrow_table()
        expect.check_table(table, want)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
