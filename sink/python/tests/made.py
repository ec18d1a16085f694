"""Runs written by hand, for what the program never or seldom makes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("sample_key", pa.string()),
        ("group_id", pa.string()),
        ("sample_index", pa.int32()),
        ("group_size", pa.int32()),
        ("segment_index", pa.int32()),
        ("input_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.int8())),
        ("logprobs", pa.list_(pa.float32())),
        ("versions", pa.list_(pa.int32())),
        ("turn_offsets", pa.list_(pa.int32())),
        ("prompt_length", pa.int32()),
        ("reward", pa.float64()),
        ("status", pa.string()),
        ("verification", pa.string()),
        ("truncated", pa.bool_()),
        ("flags", pa.list_(pa.string())),
    ]
)
ADDED = pa.schema([("policy_version_min", pa.int32()), ("keep", pa.bool_())])
FAILURES = pa.schema([("sample_key", pa.string()), ("group_id", pa.string()), ("sample_index", pa.int32()), ("group_size", pa.int32())])


@dataclass
class Sample:
    """One outcome of a sample. lengths are those of its rows; facts override columns
    of all of its rows, or with a list those of each row.
    """

    group: str
    index: int
    lengths: Sequence[int] = (3,)
    size: int = 4
    failures: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.group}-{self.index}"

    def rows(self) -> list[dict[str, Any]]:
        out = []
        for segment, n in enumerate(self.lengths):
            seed = hash((self.group, self.index, segment)) % 1000
            row = {
                "sample_key": self.key,
                "group_id": self.group,
                "sample_index": self.index,
                "group_size": self.size,
                "segment_index": segment,
                "input_ids": [seed + i for i in range(n)],
                "loss_mask": [i % 2 for i in range(n)],
                "logprobs": [-0.5 * (i % 2) for i in range(n)],
                "versions": None,
                "turn_offsets": [0, n],
                "prompt_length": 1,
                "reward": 1.0,
                "status": "completed",
                "verification": "exact",
                "truncated": False,
                "flags": [],
                "policy_version_min": None,
                "keep": None,
            }
            for name, value in self.facts.items():
                row[name] = value[segment] if isinstance(value, list) and name != "flags" else value
            out.append(row)
        return out


class Run:
    """A run's folder. version is that of its entries: 1, 2 or 3."""

    def __init__(self, folder: Path, fmt: str = "parquet", version: int = 3, run_id: str = "r", block: int = 3) -> None:
        self.dir, self.fmt, self.version, self.run_id, self.block = folder, fmt, version, run_id, block
        self.seq = 0
        self.planned = 0
        for sub in ("data", "failures", "_commits"):
            (folder / sub).mkdir(parents=True)

    def commit(self, samples: Iterable[Sample]) -> None:
        """Write one entry and its shards."""
        self.seq += 1
        samples = list(samples)
        rows = [r for s in samples for r in s.rows()]
        failures = [s for s in samples for _ in range(s.failures)]
        shards = []
        if rows:
            schema = SCHEMA if self.version < 3 else pa.unify_schemas([SCHEMA, ADDED])
            table = pa.Table.from_pylist(rows, schema=schema)
            shards.append(self._write("data", table, sum(len(r["input_ids"]) for r in rows)))
        if failures:
            lost = [{"sample_key": s.key, "group_id": s.group, "sample_index": s.index, "group_size": s.size} for s in failures]
            table = pa.Table.from_pylist(lost, schema=FAILURES)
            shards.append(self._write("failures", table, 0))
        numbers: dict[str, int] = {}
        names = []
        for s in samples:
            said: dict[str, Any] = {"key": s.key, "attempt": 1, "rows": len(s.lengths), "failures": s.failures}
            if self.version > 2:
                said |= {"group": numbers.setdefault(s.group, len(numbers)), "index": s.index}
            names.append(said)
        sizes = {s.group: s.size for s in samples}
        entry: dict[str, Any] = {"version": self.version, "seq": self.seq, "run_id": self.run_id}
        entry |= {"schema_version": 1 + (self.version > 2), "shards": shards}
        if self.version > 2:
            entry["groups"] = [{"id": g, "size": sizes[g]} for g in numbers]
        entry["samples"] = names
        body = json.dumps(entry, separators=(",", ":")).encode()[:-1]
        if self.version > 1:
            body += b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"'
        part = self.dir / f"entry-{self.seq}"  # an entry appears whole
        part.write_bytes(body + b"}\n")
        part.rename(self.entry(self.seq))

    def _write(self, kind: str, table: pa.Table, tokens: int) -> dict[str, Any]:
        fmt = self.fmt if kind == "data" else "parquet"
        path = f"{kind}/part-{self.seq}.{fmt}"
        full = self.dir / path
        if fmt == "arrow":
            with pa.OSFile(str(full), "wb") as f, pa.ipc.new_stream(f, table.schema) as w:
                for batch in table.to_batches(max_chunksize=self.block):
                    w.write_batch(batch)
        else:
            pq.write_table(table, full, row_group_size=self.block)
        body = full.read_bytes()
        digest = hashlib.sha256(body).hexdigest()
        return {"kind": kind, "path": path, "format": fmt, "bytes": len(body), "sha256": digest, "rows": table.num_rows, "tokens": {"total": tokens}}

    def entry(self, seq: int) -> Path:
        """The path of an entry."""
        return self.dir / "_commits" / f"{seq:020d}.json"

    def plan(self, samples: int) -> None:
        """Write a run.json that plans so many samples."""
        info = {"id": self.run_id, "tasks": {"planned": samples}, "invocations": [{"started_at": "2026-01-01T00:00:00Z"}]}
        (self.dir / "run.json").write_text(json.dumps(info))
