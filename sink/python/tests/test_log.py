"""The commit log and its shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made import Run, Sample, sealed

from rollout import log
from rollout.errors import CorruptError, NewerError


def more(run: Run, n: int) -> None:
    run.commit([Sample(f"g{run.seq}", i, [1 + i % 5], n) for i in range(n)])


def written(folder: Path, sizes: list[int], fmt: str = "parquet") -> Run:
    """Return a run with an entry of n rows for each size n."""
    run = Run(folder / "run", fmt)
    for n in sizes:
        more(run, n)
    return run


def keys(run: Run) -> list[str]:
    return [r["sample_key"] for s in log.shards(run.dir) for r in log.rows(s)]


def test_files_without_commit_do_not_exist(tmp_path: Path) -> None:
    run = written(tmp_path, [4, 5])
    (run.dir / "data/part-9.parquet").write_bytes((run.dir / "data/part-1.parquet").read_bytes())
    (run.dir / "_commits/.tmp-y.json").touch()
    assert keys(run) == [f"g{g}-{i}" for g, n in enumerate((4, 5)) for i in range(n)]


def test_empty_folder(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    assert keys(run) == [] and log.table(run.dir).num_rows == 0


def test_after(tmp_path: Path) -> None:
    run = written(tmp_path, [4, 5])
    assert list(log.commits(run.dir, after=2)) == []
    more(run, 2)
    assert [s.rows for s in log.shards(run.dir, after=2)] == [2]


def test_entries_without_samples(tmp_path: Path) -> None:
    run = written(tmp_path, [4])
    for kind in ("claim", "sealed"):
        run.seq += 1
        entry = {"version": 1, "seq": run.seq, "kind": kind, "run_id": run.run_id, "epoch": 1, "schema_version": 1}
        run.entry(run.seq).write_bytes(sealed({**entry, "shards": None, "groups": None, "samples": None}))
        if kind == "claim":
            more(run, 5)
    assert [c["seq"] for c in log.commits(run.dir)] == [1, 3]
    assert [s.rows for s in log.shards(run.dir, after=1)] == [5]


@pytest.mark.parametrize("change", [{"kind": "other"}, {"kind": "claim"}])
def test_unknown_kind(tmp_path: Path, change: dict[str, Any]) -> None:
    """An entry with samples is never skipped."""
    run = written(tmp_path, [4])
    entry = next(iter(log.commits(run.dir)))
    run.entry(1).write_bytes(sealed({**{k: v for k, v in entry.items() if k != "sha256"}, **change}))
    with pytest.raises(CorruptError, match="must be claim or sealed, without samples"):
        list(log.commits(run.dir))


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"schema_version": 2}, NewerError, "newer version"),
        ({"version": 2}, NewerError, "newer version"),
        ({"version": 2, "replaces": [[1, 1]]}, NewerError, "newer version"),
        ({"version": 0}, CorruptError, "commit version 0, schema version 1"),
        ({"schema_version": 0}, CorruptError, "commit version 1, schema version 0"),
        ({"run_id": "other"}, CorruptError, "from run 'other'"),
    ],
)
def test_entries_that_are_refused(tmp_path: Path, change: dict[str, Any], error: type[Exception], says: str) -> None:
    run = written(tmp_path, [1, 1])
    run.rewrite(2, lambda entry: entry.update(change))
    with pytest.raises(error, match=says):
        keys(run)


def test_a_missing_entry(tmp_path: Path) -> None:
    run = written(tmp_path, [1, 1, 1])
    run.entry(2).unlink()
    with pytest.raises(CorruptError, match="entry 2 is missing"):
        keys(run)


def test_an_entry_without_a_checksum(tmp_path: Path) -> None:
    run = written(tmp_path, [1])
    body = run.entry(1).read_bytes()
    run.entry(1).write_bytes(body[: body.rindex(b",")] + b"}\n")
    with pytest.raises(CorruptError, match="no checksum at its end"):
        keys(run)


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_a_damaged_shard(tmp_path: Path, fmt: str) -> None:
    (shard,) = log.shards(written(tmp_path, [10], fmt).dir)
    path = Path(shard.path)
    body = path.read_bytes()
    for says, bad in (("sha256", body[:50] + bytes([body[50] ^ 1]) + body[51:]), ("bytes", body[:-1]), ("bytes", body + b"x"), ("missing", None)):
        path.unlink()
        if bad is not None:
            path.write_bytes(bad)
        with pytest.raises(CorruptError, match=says):
            list(log.rows(shard))
        if says != "sha256":
            with pytest.raises(CorruptError, match=says):
                list(log.rows(shard, check="size"))


def test_a_stream_that_lacks_a_batch(tmp_path: Path) -> None:
    run = written(tmp_path, [9], "arrow")
    run.rewrite(1, lambda entry: entry["shards"][0].update(rows=12))  # with the digest of the rest
    with pytest.raises(CorruptError, match="the file has 9 rows, but the commit log lists 12"):
        keys(run)


def test_values(tmp_path: Path) -> None:
    run = written(tmp_path, [12], "arrow")
    rows = [r for s in log.shards(run.dir) for r in log.rows(s)]
    assert [r["input_ids"].tolist() for r in rows] == [r["input_ids"] for s in run.commits[1] for r in s.rows()]
    assert not any(r["input_ids"].flags.writeable for r in rows)
