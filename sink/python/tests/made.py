"""Runs written by hand, for what the program never or rarely writes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
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
        ("policy_version_min", pa.int32()),
        ("keep", pa.bool_()),
    ]
)
FAILURES = pa.schema([("sample_key", pa.string()), ("group_id", pa.string()), ("sample_index", pa.int32()), ("group_size", pa.int32())])


def sealed(entry: dict[str, Any]) -> bytes:
    """Return the bytes of an entry, with its checksum."""
    body = json.dumps(entry, separators=(",", ":")).encode()[:-1]
    return body + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


@dataclass
class Sample:
    """One outcome of a sample. lengths are the lengths of its rows; facts override columns of
    all its rows, or with a list of each row.
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
    """A run's folder.

    again: another object wrote the folder before, without merges.
    """

    def __init__(self, folder: Path, fmt: str = "parquet", run_id: str = "r", block: int = 3, again: bool = False) -> None:
        self.dir, self.fmt, self.run_id, self.block = folder, fmt, run_id, block
        self.planned = 0
        self.commits: dict[int, list[Sample]] = {}
        self.merges: dict[int, list[int]] = {}  # for each valid merge, the commits in it
        self.replaced: dict[int, list[int]] = {}  # for each merge, all entries that it invalidates
        for sub in ("data", "failures", "_commits"):
            (folder / sub).mkdir(parents=True, exist_ok=again)
        self.seq = len(list((folder / "_commits").glob("0*.json")))

    def commit(self, samples: Iterable[Sample]) -> None:
        """Write one entry and its shards."""
        self.seq += 1
        self.commits[self.seq] = list(samples)
        self._entry(self.commits[self.seq], {}, {})

    def merge(self, entries: Sequence[int], steps: int = 10**6, shards_first: bool = True) -> None:
        """Merge consecutive entries, up to a step, as if the program were killed then. The
        steps: the entry exists, each file is moved, each file is deleted."""
        commits = [c for e in entries for c in self.merges.get(e, [e])]
        gone = sorted({*entries, *(r for e in entries for r in self.replaced.get(e, []))})
        self.seq += 1
        self.merges[self.seq], self.replaced[self.seq] = commits, gone
        ranges: list[list[int]] = []
        for n in gone:
            if ranges and ranges[-1][1] == n - 1:
                ranges[-1][1] = n
            else:
                ranges.append([n, n])
        tokens = {c: sum(sum(s.lengths) for s in self.commits[c]) for c in commits}
        merged = [{"seq": c, "samples": len(self.commits[c]), "tokens": tokens[c]} for c in commits if self.commits[c]]
        self._entry([s for c in commits for s in self.commits[c]], {"replaces": ranges}, {"merged": merged})
        self.finish(steps, shards_first)

    def finish(self, steps: int = 10**6, shards_first: bool = True, delete: bool = True) -> None:
        """Move and delete what merges have replaced, up to a step."""
        gone = {n for numbers in self.replaced.values() for n in numbers}
        shards = [p for kind in ("data", "failures") for n in gone for p in sorted((self.dir / kind).glob(f"part-{n}.*"))]
        entries = [self.entry(n) for n in sorted(gone) if self.entry(n).exists()]
        todo: list[Callable[[], object]] = []
        for path in shards + entries if shards_first else entries + shards:
            to = self.dir / "replaced" / path.parent.name / path.name
            to.parent.mkdir(parents=True, exist_ok=True)
            todo.append(partial(path.rename, to))
        for step in todo[:steps]:
            step()
        if delete and steps > len(todo):
            for path in sorted((self.dir / "replaced").rglob("*.*"))[: steps - len(todo)]:
                path.unlink()

    def counting(self) -> list[int]:
        """Return the valid entries, in the order of their commits."""
        gone = {n for numbers in self.replaced.values() for n in numbers}
        first = {n: self.merges.get(n, [n])[0] for n in range(1, self.seq + 1) if n not in gone}
        return sorted(first, key=first.__getitem__)

    def _entry(self, samples: list[Sample], replaces: dict[str, Any], merged: dict[str, Any]) -> None:
        rows = [r for s in samples for r in s.rows()]
        failures = [s for s in samples for _ in range(s.failures)]
        shards = []
        if rows:
            table = pa.Table.from_pylist(rows, schema=SCHEMA)
            shards.append(self._write("data", table, sum(len(r["input_ids"]) for r in rows)))
        if failures:
            lost = [{"sample_key": s.key, "group_id": s.group, "sample_index": s.index, "group_size": s.size} for s in failures]
            table = pa.Table.from_pylist(lost, schema=FAILURES)
            shards.append(self._write("failures", table, 0))
        numbers: dict[tuple[str, int], int] = {}
        names = []
        for s in samples:
            group = numbers.setdefault((s.group, s.size), len(numbers))
            names.append({"key": s.key, "attempt": 1, "rows": len(s.lengths), "failures": s.failures, "group": group, "index": s.index})
        entry: dict[str, Any] = {"version": 1, "seq": self.seq, **replaces, "run_id": self.run_id, "schema_version": 1, "shards": shards}
        entry["groups"] = [{"id": group, "size": size} for group, size in numbers]
        entry |= {"samples": names, **merged}
        temporary = self.dir / "_commits" / ".tmp-x.json"
        temporary.write_bytes(sealed(entry))
        temporary.rename(self.entry(self.seq))  # readers see all of it

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
        """Return the path of an entry."""
        return self.dir / "_commits" / f"{seq:020d}.json"

    def rewrite(self, seq: int, change: Callable[[Any], object]) -> None:
        """Change an entry and correct its checksum."""
        entry = json.loads(self.entry(seq).read_bytes())
        entry.pop("sha256")
        change(entry)
        self.entry(seq).write_bytes(sealed(entry))

    def plan(self, samples: int) -> None:
        """Write a run.json that plans a number of samples."""
        info = {"id": self.run_id, "tasks": {"planned": samples}, "invocations": [{"started_at": "2026-01-01T00:00:00Z"}]}
        (self.dir / "run.json").write_text(json.dumps(info))
