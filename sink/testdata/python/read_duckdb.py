"""DuckDB reads every Parquet shard."""

import duckdb
import pyarrow as pa

import expect


def main(job):
    con = duckdb.connect()
    con.execute("set threads = 1")
    con.execute("set timezone = 'UTC'")
    for want in job["sets"]:
        for file in want["files"]:
            if file["format"] != "parquet":
                continue
            table = con.execute("select * from read_parquet(?)", [file["path"]]).to_arrow_table()
            expect.check_table(table, want, want["kind"])
            metadata = dict(con.execute("select key, value from parquet_kv_metadata(?)", [file["path"]]).fetchall())
            assert metadata[b"rollout.schema_version"] == b"1", metadata
            paths = con.execute("select path_in_schema from parquet_metadata(?)", [file["path"]]).fetchall()
            assert all(p for (p,) in paths)
            if want["kind"] == "data":
                rows = con.execute("select sample_key, segment_index, input_ids, logprobs, reward, versions, flags from read_parquet(?) where len(input_ids) < 3000", [file["path"]]).fetchall()
                names = ["sample_key", "segment_index", "input_ids", "logprobs", "reward", "versions", "flags"]
                values = want["values"]
                index = {(k, s): i for i, (k, s) in enumerate(zip(values["sample_key"], values["segment_index"]))}
                assert len(rows) > 5
                for r in rows:
                    row = dict(zip(names, r))
                    i = index[row["sample_key"], row["segment_index"]]
                    for name, got in row.items():
                        expect.check_value(name, got, values[name][i], want["kinds"][name])
