"""Columns are decoded on first access, and each row group once."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from made import Run, Sample

import rollout
from rollout import Following, Where, collate
from rollout.runs._shardfile import ParquetFile

FORMATS = ["parquet", "arrow"]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[tuple[str, int, str]]]:
    """Count how often each column of each row group is decoded, by file, row group and column."""
    counts: Counter[tuple[str, int, str]] = Counter()
    before = ParquetFile.pieces

    def pieces(file: ParquetFile, block: int, names: list[str], wanted: Any) -> Any:
        counts.update((file.shard.path, block, name) for name in names)
        return before(file, block, names, wanted)

    monkeypatch.setattr(ParquetFile, "pieces", pieces)
    yield counts


def many(folder: Path, groups: int = 60, block: int = 25, commits: int = 1, fmt: str = "parquet") -> Run:
    """Return groups of two samples; the second sample of a group comes a few groups later."""
    run = Run(folder, fmt, block=block)
    samples = [Sample(f"g{g:03}", 0, [3, 4], 2) for g in range(groups)]
    late = [Sample(f"g{g:03}", 1, [5], 2) for g in range(groups)]
    order = [s for g in range(groups + 7) for s in (*samples[g : g + 1], *(late[g - 7 : g - 6] if g >= 7 else ()))]
    step = -(-len(order) // commits)
    for at in range(0, len(order), step):
        run.commit(order[at : at + step])
    run.plan(len(order))
    return run


def ways(run: Run) -> dict[str, Callable[[], list[rollout.Group]]]:
    def polled() -> list[rollout.Group]:
        follow = Following(run.dir)
        return list(iter(follow.poll, None))  # type: ignore[arg-type]

    def behind() -> list[rollout.Group]:
        first = Following(run.dir)
        group = first.poll()
        assert group is not None
        return [group, *Following(run.dir, after=first.cursor)]

    def one_by_one() -> list[rollout.Group]:
        ds = rollout.Dataset(run.dir)
        return [ds[i] for i in range(len(ds))]

    return {
        "plain": lambda: list(rollout.Dataset(run.dir)),
        "follow": lambda: list(rollout.Dataset(run.dir, follow=True)),
        "batches": lambda: [g for b in rollout.Dataset(run.dir, follow=True).batches(2, rank=0, world_size=1) for g in b],
        "poll": polled,
        "behind": behind,
        "index": one_by_one,
    }


@pytest.mark.parametrize("commits", [1, 4])
@pytest.mark.parametrize("how", ["plain", "follow", "batches", "poll", "behind", "index"])
def test_each_row_group_is_decoded_once(tmp_path: Path, decoded: Counter[Any], how: str, commits: int) -> None:
    run = many(tmp_path / "run", commits=commits)
    groups = ways(run)[how]()
    assert not decoded, "rows that nobody looks at are decoded"
    assert len({g.id for g in groups}) == 60
    for g in groups:
        for row in g.rows:
            assert len(row["input_ids"]) == len(row["loss_mask"]) and row["reward"] == 1.0
    assert {name for _, _, name in decoded} == {"input_ids", "loss_mask", "reward"}
    assert max(decoded.values()) <= (2 if how == "behind" else 1), decoded  # "behind" reads the first group twice


def test_a_collection_decodes_each_row_group_once(tmp_path: Path, decoded: Counter[Any]) -> None:
    from rollout.collecting.collection import Reader

    run = many(tmp_path / "run")
    reader, n = Reader(run.dir, None, None, None, "sha256"), 0
    while (found := reader.next()) is not None:
        n += sum(len(row["input_ids"]) for row in found[0].rows)
    assert n == 60 * 12 and max(decoded.values()) == 1


def test_kept_blocks_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.runs.shards.KEPT_BYTES", 200)
    follow = Following(many(tmp_path / "run").dir)
    for group in follow:
        assert all(len(row["input_ids"]) for row in group.rows)
        assert len(follow._files._parts) <= 2 or sum(p.bytes for p in list(follow._files._parts.values())[:-1]) <= 200
    monkeypatch.setattr("rollout.runs.shards.KEPT_BLOCKS", (2, 5))
    follow = Following(many(tmp_path / "small", block=2).dir)
    assert len(list(follow)) == 60 and len(follow._files._parts) == 5


def test_columns_that_nobody_uses_are_not_decoded(tmp_path: Path, decoded: Counter[Any]) -> None:
    ds = rollout.Dataset(many(tmp_path / "run").dir)
    for batch in ds.batches(4, collate=collate.padded(0), rank=0, world_size=1):
        assert batch["rows"]
    used = {name for _, _, name in decoded}
    assert used == {"sample_key", "segment_index", "input_ids", "loss_mask", "logprobs", "prompt_length", "reward", "versions"}
    decoded.clear()
    report = rollout.check(lambda ids: np.zeros(len(ids)) - 0.5, ds, rows=2)
    assert report.rows == 2 and "status" not in {name for _, _, name in decoded}


def test_the_columns_of_the_row_group_before_are_decoded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    before = ParquetFile.pieces
    monkeypatch.setattr(ParquetFile, "pieces", lambda file, block, names, wanted: (asked.append(sorted(names)), before(file, block, names, wanted))[1])
    ds = rollout.Dataset(many(tmp_path / "run").dir)
    for i, group in enumerate(ds):
        for row in group.rows:
            row["input_ids"], row["reward"]
            if not i:
                str(row)  # this row group has all columns, the next one two again
    assert asked[0] == ["input_ids"] and asked[-1] == ["input_ids", "reward"]


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_row_is_a_dict(tmp_path: Path, fmt: str) -> None:
    run = Run(tmp_path / "run", fmt)
    run.commit([Sample("g", 0, [3], 1, facts={"versions": [[1, 2, -1]], "flags": ["cut"]})])
    ds = rollout.Dataset(run.dir)
    want = {**Sample("g", 0, [3], 1, facts={"flags": ["cut"]}).rows()[0], "versions": [1, 2, -1]}

    def row() -> Any:
        return ds[0].rows[0]

    def same(got: Any) -> bool:
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in got} == want

    assert type(dict(row())) is dict and same(dict(row()).items())
    assert same({**row()}.items()) and same((lambda **more: more)(**row()).items())
    assert same(row().items()) and same(zip(row(), row().values())) and list(row().keys()) == list(row()) == list(want)
    assert same(pickle.loads(pickle.dumps(row())).items()) and same(copy.copy(row()).items()) and same(copy.deepcopy(row()).items())
    assert same(row().copy().items()) and same((row() | {}).items()) and same(({} | row()).items()) and same(reversed(list(row().items())))
    assert same((name, row().get(name)) for name in want) and row().get("none", 7) == 7
    assert row().pop("reward") == 1.0 and row().setdefault("reward", 3.0) == 1.0 and row().popitem()[0] == list(want)[-1]
    assert "input_ids" in row() and len(row()) == len(want) and repr(row()) == repr(dict(row()))
    small = {k: v for k, v in want.items() if k in ("reward", "flags")}
    ds = rollout.Dataset(run.dir, columns=list(small))
    assert row() == small and small == row() and row() == row() and not row() != small and row() != {}
    assert json.loads(json.dumps(row())) == small and pa.Table.from_pylist([row()]).to_pylist() == [small]
    assert "{reward}".format_map(row()) == "1.0"
    changed = row()
    changed["reward"], changed["new"] = 2.0, 3
    del changed["flags"]
    assert dict(changed) == {"reward": 2.0, "new": 3}
    with pytest.raises(KeyError, match="segment_index"):
        row()["segment_index"]
    with pytest.raises(pa.ArrowInvalid):
        pa.array([row()])  # it reads the memory of dicts: no value is better than null


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("held", ["first", "none"])
def test_a_row_outlives_the_merge_of_its_shard(tmp_path: Path, fmt: str, held: str) -> None:
    run = many(tmp_path / "run", commits=6, fmt=fmt)
    ds = rollout.Dataset(run.dir)
    groups, want = list(ds), [[r["input_ids"].tolist() for r in g.rows] for g in rollout.Dataset(run.dir)]
    if held == "first":
        assert [[len(r["loss_mask"]) for r in g.rows] for g in groups] == [[len(ids) for ids in g] for g in want]
    run.merge([2, 3, 4, 5])
    run.finish()
    assert not list((run.dir / "data").glob("part-3.*")) and not list((run.dir / "replaced").rglob("part-3.*"))
    assert [[r["input_ids"].tolist() for r in g.rows] for g in groups] == want


def test_a_row_of_a_run_that_is_gone_says_so(tmp_path: Path) -> None:
    run = many(tmp_path / "run")
    rows = rollout.Dataset(run.dir)[0].rows
    shutil.rmtree(run.dir)
    with pytest.raises((rollout.CorruptError, FileNotFoundError), match="part-1"):
        rows[0]["input_ids"]


def test_a_damaged_file_gives_no_row(tmp_path: Path) -> None:
    run = many(tmp_path / "run")
    path = run.dir / "data" / "part-1.parquet"
    body = bytearray(path.read_bytes())
    body[len(body) // 3] ^= 1
    path.write_bytes(body)
    for where in (Where(), Where(keep="keep")):
        with pytest.raises(rollout.CorruptError, match="sha256"):
            rollout.Dataset(run.dir, where=where)[0]
        with pytest.raises(rollout.CorruptError, match="sha256"):
            Following(run.dir, where=where).poll()
