"""pyarrow reads every shard; both formats have one schema."""

import pyarrow as pa
import pyarrow.parquet as pq

import expect


def read(file):
    if file["format"] == "arrow":
        with pa.memory_map(file["path"]) as source, pa.ipc.open_stream(source) as reader:
            batches = list(reader)
            for b in batches:
                b.validate(full=True)
            assert len(batches) >= file["min_batches"], (file, len(batches))
            return pa.Table.from_batches(batches, schema=reader.schema)
    f = pq.ParquetFile(file["path"])
    assert f.metadata.num_row_groups >= file["min_batches"], (file, f.metadata.num_row_groups)
    for g in range(f.metadata.num_row_groups):
        for c in range(f.metadata.num_columns):
            assert f.metadata.row_group(g).column(c).path_in_schema, "empty path_in_schema"
    t = pq.read_table(file["path"])
    t.validate(full=True)
    return t


TYPES = """
sample_key: string not null
task_id: string not null
group_id: string not null
rollout_id: string not null
sample_index: int32 not null
group_size: int32 not null
attempt: int32 not null
segment_index: int32 not null
segment_count: int32 not null
chain: int32 not null
chain_kind: string not null
parent_chain: int32
parent_step: int32
input_ids: list<element: int32 not null> not null
loss_mask: list<element: int8 not null> not null
logprobs: list<element: float not null> not null
versions: list<element: int32 not null>
weight_versions: list<element: string not null>
weight_version_ends: list<element: int32 not null>
routed_experts: binary
sampling_mask: list<element: int32 not null>
sampling_mask_lengths: list<element: int32 not null>
turn_offsets: list<element: int32 not null> not null
turn_roles: list<element: int8 not null> not null
prompt_length: int32 not null
reward: double
reward_details: string
status: string not null
stop_reason: string not null
finish_reasons: list<element: string not null> not null
truncated: bool not null
verification: string not null
prompt_source: string not null
divergence: string
flags: list<element: string not null> not null
n_unscored: int32 not null
n_trimmed: int32 not null
temperature: float
top_p: float
top_k: int32
max_new_tokens: int32
model: string not null
agent_id: string not null
run_ids: list<element: string not null> not null
step_ids: list<element: string not null> not null
prompt_tokens: int64 not null
completion_tokens: int64 not null
steps: int32 not null
started_at: timestamp[us, tz=UTC] not null
duration_ms: int64 not null
working_ms: int64 not null
messages: string
metadata: string
policy_version_min: int32
policy_version_max: int32
keep: bool
keep_reason: string
""".strip().split("\n")


def main(job):
    for want in job["sets"]:
        tables = [read(f) for f in want["files"]]
        if want["kind"] == "data":
            for t in tables:
                got = [f"{f.name}: {f.type}" + ("" if f.nullable else " not null") for f in t.schema]
                assert got == TYPES, [x for x in zip(got, TYPES) if x[0] != x[1]]
        for t in tables:
            assert t.schema.equals(tables[0].schema, check_metadata=True), "schemas differ"
            assert t.schema.metadata[b"rollout.schema_version"] == b"1"
            assert t.schema.metadata[b"rollout.kind"] == want["kind"].encode()
            assert t.schema.metadata[b"note"] == "ünïcode".encode()
            expect.check_table(t, want, want["kind"])
        pa.concat_tables(tables).validate(full=True)
