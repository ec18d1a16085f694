"""The commit log and its shards, without a dataset written by the program."""

import hashlib
import json
import os
import tempfile
import unittest

import pyarrow as pa
import pyarrow.parquet as pq

from rollout import log
from rollout.errors import CorruptError, NewerError


class Run:
    """A run's folder with shards of n rows each."""

    def __init__(self, folder, sizes, fmt="parquet"):
        self.dir, self.seq, self.next = folder, 0, 0
        for sub in ("data", "_commits"):
            os.mkdir(os.path.join(folder, sub))
        for n in sizes:
            self.commit(self.write(n, fmt), n, fmt)

    def write(self, n, fmt):
        ids = list(range(self.next, self.next + n))
        self.next += n
        table = pa.table({"n": pa.array(ids, pa.int32()), "input_ids": pa.array([[i] * (i % 5) for i in ids], pa.list_(pa.int32()))})
        path = f"data/part-{self.next}.{fmt}"
        full = os.path.join(self.dir, path)
        if fmt == "arrow":
            with pa.OSFile(full, "wb") as f, pa.ipc.new_stream(f, table.schema) as w:
                for batch in table.to_batches(max_chunksize=3):
                    w.write_batch(batch)
        else:
            pq.write_table(table, full, row_group_size=3)
        return path

    def commit(self, path, n, fmt, **other):
        self.seq += 1
        shard = {"kind": "data", "path": path, "format": fmt, "rows": n, "tokens": {"total": 0}}
        if os.path.exists(os.path.join(self.dir, path)):
            with open(os.path.join(self.dir, path), "rb") as f:
                body = f.read()
            shard.update(bytes=len(body), sha256=hashlib.sha256(body).hexdigest())
        entry = {"version": 1, "seq": self.seq, "run_id": "r", "schema_version": 1, "shards": [shard], "groups": [], "samples": []}
        entry.update(other)
        body = json.dumps(entry, separators=(",", ":")).encode()[:-1]
        with open(self.entry(self.seq), "wb") as f:
            f.write(body + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n')

    def entry(self, seq):
        return os.path.join(self.dir, "_commits", f"{seq:020d}.json")


class Test(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def numbers(self, **kwargs):
        return [r["n"] for s in log.shards(self.folder) for r in log.rows(s, **kwargs)]

    def test_files_without_commit_do_not_exist(self):
        run = Run(self.folder, [4, 5])
        run.write(7, "parquet")
        open(os.path.join(self.folder, "_commits", ".tmp-x.json"), "w").close()
        self.assertEqual(self.numbers(), list(range(9)))

    def test_empty_folder(self):
        self.assertEqual(self.numbers(), [])
        self.assertEqual(log.table(self.folder).num_rows, 0)

    def test_follow(self):
        run = Run(self.folder, [4, 5])
        last = list(log.commits(self.folder))[-1]["seq"]
        self.assertEqual(list(log.commits(self.folder, after=last)), [])
        run.commit(run.write(2, "parquet"), 2, "parquet")
        self.assertEqual([s.rows for s in log.shards(self.folder, after=last)], [2])

    def test_gap(self):
        Run(self.folder, [1, 1, 1])
        os.remove(os.path.join(self.folder, "_commits", f"{2:020d}.json"))
        with self.assertRaises(CorruptError):
            self.numbers()

    def test_other_versions(self):
        run = Run(self.folder, [1])
        for other, error, text in (
            ({"schema_version": 2}, NewerError, "newer version"),
            ({"version": 2}, NewerError, "newer version"),
            ({"version": 2, "replaces": [[1, 1]]}, NewerError, "newer version"),
            ({"version": 0}, CorruptError, "commit version 0, schema version 1"),
            ({"schema_version": 0}, CorruptError, "commit version 1, schema version 0"),
        ):
            run.commit("data/x", 1, "parquet", **other)
            with self.assertRaisesRegex(error, text):
                self.numbers()
            run.seq -= 1

    def test_entry_without_checksum(self):
        run = Run(self.folder, [1])
        with open(run.entry(1), "rb") as f:
            body = f.read()
        with open(run.entry(1), "wb") as f:
            f.write(body[: body.rindex(b",")] + b"}\n")
        with self.assertRaisesRegex(CorruptError, "no checksum at its end"):
            self.numbers()

    def test_entry_of_another_run(self):
        run = Run(self.folder, [1])
        run.commit(run.write(1, "parquet"), 1, "parquet", run_id="other")
        with self.assertRaisesRegex(CorruptError, "from run 'other'"):
            self.numbers()

    def test_every_byte_of_an_entry(self):
        run = Run(self.folder, [2])
        with open(run.entry(1), "rb") as f:
            body = f.read()
        for at in range(len(body)):
            for bad in (body[:at] + bytes([body[at] ^ 1]) + body[at + 1:], body[:at] + bytes([body[at] ^ 0x40]) + body[at + 1:],
                        body[:at], body[:at] + body[at + 1:]):
                with open(run.entry(1), "wb") as f:
                    f.write(bad)
                with self.assertRaises(CorruptError, msg=(at, bad)):
                    list(log.commits(self.folder))

    def test_damaged_shard(self):
        for fmt in ("parquet", "arrow"):
            with tempfile.TemporaryDirectory() as folder:
                run = Run(folder, [10], fmt)
                (shard,) = log.shards(folder)
                with open(shard.path, "rb") as f:
                    body = f.read()
                for what, bad in (("sha256", body[:50] + bytes([body[50] ^ 1]) + body[51:]), ("bytes", body[:-1]), ("bytes", body + b"x"), ("missing", None)):
                    os.remove(shard.path)
                    if bad is not None:
                        with open(shard.path, "wb") as f:
                            f.write(bad)
                    with self.assertRaisesRegex(CorruptError, what):
                        list(log.rows(shard))
                    if what != "sha256":
                        with self.assertRaisesRegex(CorruptError, what):
                            list(log.rows(shard, check="size"))
                    if bad is None:
                        run.write(0, fmt)
        with self.assertRaisesRegex(ValueError, "must be one of sha256, size"):
            log.check_shard(shard, check="none")

    def test_cut_stream(self):
        run = Run(self.folder, [])
        path = run.write(9, "arrow")
        run.commit(path, 12, "arrow")  # as if the last batch were missing, with the digest of the rest
        with self.assertRaisesRegex(CorruptError, "9 rows, but the commit log has 12"):
            self.numbers()

    def test_values(self):
        Run(self.folder, [12], "arrow")
        for s in log.shards(self.folder):
            for r in log.rows(s):
                self.assertEqual(r["input_ids"].tolist(), [r["n"]] * (r["n"] % 5))
                self.assertFalse(r["input_ids"].flags.writeable)


if __name__ == "__main__":
    unittest.main()
