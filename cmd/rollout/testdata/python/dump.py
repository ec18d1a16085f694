"""Print a run as pyarrow reads it: one JSON object per row, kind by kind.

Floats are printed as bits, timestamps in microseconds, null as null. Of our code, only the
names in the commit log are used.
"""

import json
import os
import struct
import sys

import pyarrow as pa
import pyarrow.parquet as pq


def plain(value, kind):
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [plain(v, kind.value_type) for v in value]
    if pa.types.is_float32(kind):
        return struct.unpack("<I", struct.pack("<f", value))[0]
    if pa.types.is_float64(kind):
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    return value


run = sys.argv[1]
commits = os.path.join(run, "_commits")
for name in sorted(os.listdir(commits)):
    with open(os.path.join(commits, name), encoding="utf-8") as f:
        entry = json.load(f)
    for shard in entry["shards"]:
        path = os.path.join(run, shard["path"])
        if shard["format"] == "arrow":
            with pa.memory_map(path) as source, pa.ipc.open_stream(source) as reader:
                table = reader.read_all()
        else:
            table = pq.read_table(path)
        # pyarrow's own datetime has a time zone; the comparison needs the bits.
        at = table.schema.get_field_index("started_at")
        table = table.set_column(at, "started_at", table.column(at).cast(pa.int64()))
        columns = [(f.name, f.type, table.column(i).to_pylist()) for i, f in enumerate(table.schema)]
        for i in range(table.num_rows):
            row = {name: plain(values[i], kind) for name, kind, values in columns}
            print(json.dumps({"kind": shard["kind"], "row": row}))
