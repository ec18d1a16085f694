"""Scores sets: rewards that were given after the collection."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import made
from made import Run, Sample, sealed

import rollout
from rollout import Where, advantages, collate, log
from rollout.runs.scores import REPLACED, Scores

FENCES = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCHEMA = pa.schema(
    [("sample_key", pa.string()), ("reward", pa.float64()), ("reward_details", pa.string()), ("keep", pa.bool_()), ("keep_reason", pa.string())]
)


def write(run: Run, name: str, rewards: dict[str, float | None], keep: dict[str, bool] | None = None, seal: bool = True, run_id: str = "r") -> None:
    """Write a scores set with two commits."""
    folder = run.dir / "scores" / name
    for sub in ("_commits", "scores"):
        (folder / sub).mkdir(parents=True)
    keys = sorted(rewards)
    seq = 0
    for part in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
        seq += 1
        path = folder / "scores" / f"part-{seq}.parquet"
        rows = [{"sample_key": k, "reward": rewards[k], "reward_details": json.dumps({"of": k}), "keep": (keep or {}).get(k)} for k in part]
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path, compression="none")
        body = path.read_bytes()
        shard = {"kind": "scores", "path": f"scores/{path.name}", "format": "parquet", "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
        shard |= {"rows": len(rows), "tokens": {"total": 0}}
        entry = {"version": 1, "seq": seq, "run_id": run_id, "schema_version": 1, "shards": [shard], "groups": [], "samples": []}
        (folder / "_commits" / f"{seq:020d}.json").write_bytes(sealed(entry))
    if seal:
        entry = {"version": 1, "seq": 3, "kind": "sealed", "run_id": run_id, "schema_version": 1, "shards": [], "groups": [], "samples": []}
        (folder / "_commits" / f"{3:020d}.json").write_bytes(sealed(entry))


def rewards(ds: rollout.Dataset) -> dict[str, Any]:
    return {r["sample_key"]: r["reward"] for g in ds for r in g.rows}


@pytest.fixture(params=["parquet", "arrow"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Three groups of four, of which the last was collected after the sets."""
    run = Run(tmp_path / "run1", request.param)
    for n in range(3):
        facts = {"reward": float(n), "keep": False if n == 1 else None}
        run.commit([Sample(f"g{n}", i, (3, 2) if i == 2 else (3,), facts=facts) for i in range(4)])
    run.plan(12)
    return run


KEYS = [f"g{n}-{i}" for n in range(2) for i in range(4)]


def test_the_newest_complete_set_counts(run: Run) -> None:
    everything = Where(keep="keep")
    old = rewards(rollout.Dataset(run.dir, where=everything))
    assert set(old.values()) == {0.0, 1.0, 2.0}
    write(run, "0001", {k: 7.0 for k in KEYS})
    write(run, "0002", {k: None if k == "g0-1" else float(k[-1]) for k in KEYS})
    write(run, "0003", {k: 9.0 for k in KEYS}, seal=False)
    new = {k: None if k == "g0-1" or k not in KEYS else float(k[-1]) for k in old}
    for ds in (
        rollout.Dataset(run.dir, where=everything),
        rollout.Dataset(run.dir, where=everything, scores="0002"),
        rollout.Dataset(run.dir, where=everything, follow=True),
        pickle.loads(pickle.dumps(rollout.Dataset(run.dir, where=everything))),
    ):
        assert rewards(ds) == new
    assert rewards(rollout.Dataset(run.dir, where=everything, scores="collected")) == old
    assert {r["reward_details"] for g in rollout.Dataset(run.dir, where=everything) for r in g.rows if "reward_details" in r} <= {None}
    table = log.table(run.dir)
    assert dict(zip(table["sample_key"].to_pylist(), table["reward"].to_pylist())) == new
    assert log.table(run.dir, columns=["reward"], scores="collected")["reward"].to_pylist() != table["reward"].to_pylist()
    for scores, want in ((None, new), ("0002", new), ("collected", old)):
        shards = log.shards(run.dir)
        assert {r["sample_key"]: r["reward"] for s in shards for r in log.rows(s, scores=scores)} == want
        found = [b for s in shards for b in log.batches(s, ["reward", "keep"], scores=scores)]
        assert {tuple(b.schema.names) for b in found} == {("reward", "keep")}
        assert set(v for b in found for v in b["reward"].to_pylist()) == set(want.values())
        assert [b.schema.names for s in shards for b in log.batches(s, ["sample_key"], scores=scores)] == [["sample_key"]] * len(found)
    with pytest.raises(ValueError, match=r"it has collected, 0001, 0002\)"):
        log.rows(shards[0], scores="0003").__next__()
    for name in ("0003", "0004", "1", "../0001", ""):
        with pytest.raises(ValueError, match="it has collected, 0001, 0002"):
            rollout.Dataset(run.dir, scores=name)


def test_filters_use_the_set(run: Run) -> None:
    """keep, null_reward and reward_variance see the values of the set. A sample that the set lacks keeps its own keep."""
    assert [g.id for g in rollout.Dataset(run.dir)] == ["g0", "g2"]
    write(run, "0001", {k: float(k[-1]) for k in KEYS}, keep={f"g0-{i}": False for i in range(4)})
    assert [g.id for g in rollout.Dataset(run.dir)] == ["g1", "g2"]
    assert [g.id for g in rollout.Dataset(run.dir, where=Where(reward_variance=True))] == ["g1"]
    assert [g.id for g in rollout.Dataset(run.dir, where=Where(null_reward="drop"))] == ["g1"]
    assert [g.id for g in rollout.Dataset(run.dir, where=Where(null_reward="drop"), follow=True)] == ["g1"]
    assert [g.id for g in rollout.Dataset(run.dir, where=Where(reward_variance=True), scores="collected")] == []


def test_a_saved_state_pins_the_set(run: Run) -> None:
    write(run, "0001", {k: 1.5 for k in KEYS})
    where = Where(keep="keep")
    for follow, had, value, name in ((False, "0001", 1.5, "0002"), (True, "0002", 2.5, "0003")):
        batches = rollout.Dataset(run.dir, where=where, follow=follow).batches(1, shuffle=False)
        first = next(iter(batches))
        state = json.loads(json.dumps(batches.state_dict()))
        assert state["snapshot"][0]["scores"] == had and first[0].rows[0]["reward"] == value
        write(run, name, {k: value + 1 for k in KEYS})
        later = rollout.Dataset(run.dir, where=where, follow=follow).batches(1, shuffle=False)
        later.load_state_dict(state)
        assert [r["reward"] for b in later for g in b for r in g.rows if g.id == "g1"] == [value] * 5
        assert rollout.Dataset(run.dir).snapshot[0]["scores"] == name
    with pytest.raises(rollout.StateError, match=r"the state has the scores '0002', but the dataset was created with scores='0001': pass scores='0002', or no scores"):
        rollout.Dataset(run.dir, where=where, follow=True, scores="0001").batches(1, shuffle=False).load_state_dict(state)
    lost = {**state, "snapshot": [{**state["snapshot"][0], "scores": "0009"}]}
    with pytest.raises(rollout.StateError, match="0009"):
        rollout.Dataset(run.dir, where=where, follow=True).batches(1, shuffle=False).load_state_dict(lost)


def test_a_cursor_pins_the_set(run: Run) -> None:
    where = Where(keep="keep")
    following = rollout.Dataset(run.dir, where=where, follow=True).following()
    assert [r["reward"] for r in next(iter(following)).rows] == [0.0] * 5
    cursor = json.loads(json.dumps(following.cursor))
    write(run, "0001", {k: 7.0 for k in KEYS})
    later = rollout.Dataset(run.dir, where=where, follow=True)
    assert [r["reward"] for g in later.following(after=cursor) for r in g.rows] == [1.0] * 5 + [2.0] * 5
    with pytest.raises(rollout.StateError, match="the cursor has the scores '0009'"):
        rollout.Dataset(run.dir, where=where, follow=True, scores="0001").following(after={**cursor, "scores": "0009"})
    with pytest.raises(rollout.StateError, match="the cursor has other scores: .*0009"):
        later.following(after={**cursor, "scores": "0009"})


def test_advantages_of_new_rewards(run: Run) -> None:
    """A trainer gets the new rewards."""

    def advantage() -> Any:
        (batch,) = rollout.Dataset(run.dir, where=Where(keep="keep")).batches(3, shuffle=False, collate=collate.padded(pad_id=0, null_reward="drop"))
        return np.asarray(advantages.grpo(batch["reward"], batch["group"], batch["sample"], preset="trl"))

    assert not advantage().any()
    write(run, "0001", {k: float(k[-1] == "0") for k in KEYS})
    assert (advantage() > 0).sum() == 2 and (advantage() < 0).sum() == 8


def test_rows_read_a_set_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write(run, "0001", {k: 1.0 for k in KEYS})
    loads = []
    read = Scores._read
    monkeypatch.setattr(Scores, "_read", lambda self, columns: loads.append(columns) or read(self, columns))
    for _ in range(2):
        for shard in log.shards(run.dir):
            assert sum(1 for _ in log.rows(shard, ["sample_key", "reward"])) == shard.rows
    assert len(loads) == 1
    write(run, "0002", {k: 2.0 for k in KEYS})
    assert {r["reward"] for s in log.shards(run.dir) for r in log.rows(s)} == {2.0, None}


def test_merges_do_not_move_scores(run: Run) -> None:
    write(run, "0001", {k: float(k[-1]) for k in KEYS})
    ds = rollout.Dataset(run.dir, where=Where(keep="keep"))
    before = rewards(rollout.Dataset(run.dir, where=Where(keep="keep")))
    run.merge([1, 2, 3])
    assert rewards(ds) == before == rewards(rollout.Dataset(run.dir, where=Where(keep="keep")))


def test_damage(run: Run) -> None:
    write(run, "0001", {k: 1.0 for k in KEYS})
    write(run, "0002", {k: 2.0 for k in KEYS})
    shard = run.dir / "scores" / "0002" / "scores" / "part-2.parquet"
    body = shard.read_bytes()
    at = body.index(b"g1-")  # in a value
    for spoil in (lambda: shard.write_bytes(body[:at] + b"x" + body[at + 1 :]), lambda: shard.write_bytes(body[:-1]), shard.unlink):
        spoil()
        with pytest.raises(rollout.CorruptError, match="0002"):
            rewards(rollout.Dataset(run.dir))
    shard.write_bytes(body)
    assert set(rewards(rollout.Dataset(run.dir)).values()) == {2.0, None}
    write(run, "0003", {k: 1.0 for k in KEYS}, run_id="another")
    with pytest.raises(rollout.CorruptError, match="another"):
        rollout.Dataset(run.dir)


def test_the_program_scores_again(collect: Callable[..., Path], run_program: Callable[..., str]) -> None:
    """Training data has the new rewards after rollout rescore, in place and in a new run."""
    folder = collect("--reward", "number", "--samples", "2", "--tokenizer", "simulated")
    assert set(rewards(rollout.Dataset(folder)).values()) == {1.0}
    config = folder.parent / "rewards.json"
    config.write_text(json.dumps({"reward": {"kind": "regex", "pattern": "1"}}))
    run_program("rescore", folder, "-c", config, "--out", folder.parent / "new")
    assert set(rewards(rollout.Dataset(folder)).values()) == {1.0}
    run_program("rescore", folder, "-c", config)
    ds = rollout.Dataset(folder)
    found = rewards(ds)
    assert ds.snapshot[0]["scores"] == "0001" and set(found.values()) == {0.0, 1.0}
    assert rewards(rollout.Dataset(folder.parent / "new")) == found
    assert set(rewards(rollout.Dataset(folder, scores="collected")).values()) == {1.0}


def test_training_uses_a_python_scorer(collect: Callable[..., Path], run_program: Callable[..., str], tmp_path: Path) -> None:
    """A function that compares the samples of a group decides which sample of a group is trained up."""
    folder = collect("--reward", "number", "--samples", "4", "--tokenizer", "simulated")
    file = tmp_path / "rank.py"
    file.write_text("def rank(samples):\n    return [{'reward': float(i == 1), 'of': len(samples)} for i, _ in enumerate(samples)]\n")

    def up() -> set[int]:
        dataset = rollout.Dataset(folder)
        (batch,) = dataset.batches(len(dataset), shuffle=False, collate=collate.padded(pad_id=0))
        found = np.asarray(advantages.grpo(batch["reward"], batch["group"], batch["sample"], preset="trl"))
        index = [r["sample_index"] for g in dataset for r in g.rows]
        return {i for i, a in zip(index, found, strict=True) if a > 0}

    assert up() == set()
    run_program("rescore", folder, "--reward", f"python-group:{file}:rank")
    assert up() == {1}
    assert {r["reward_details"] for s in log.shards(folder) for r in log.rows(s)} == {'{"of":4}'}


def scores_of(table: pa.Table) -> dict[str, tuple[Any, ...]]:
    return {row["sample_key"]: tuple(row[name] for name in REPLACED) for row in table.select(["sample_key", *REPLACED]).to_pylist()}


def joined(language: str, program: str) -> pa.Table:
    """Return the rows that a program of the card makes."""
    if language == "sql":
        duckdb = pytest.importorskip("duckdb")
        return duckdb.connect().sql(program).to_arrow_table()
    found: dict[str, Any] = {}
    exec(program, found)
    return found["rows"]


PAGE = [f for f in FENCES.findall((Path(__file__).resolve().parents[2] / "README.md").read_text()) if "scores/0001" in f[1]]
"""The programs of sink/README.md that join a scores set, with their languages."""


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_the_card_joins_the_new_rewards(collect: Callable[..., Path], run_program: Callable[..., str], form: str) -> None:
    """The card of a rescored run names its newest set. Its programs give the rewards that the package gives."""
    model = Path(__file__).resolve().parents[3] / "collector" / "letta" / "lettasim" / "model"
    simulate = ("--input-ids", "--scripted", "4", "--wrong", "0.4")
    folder = collect("--samples", "2", "--reward", "number", "--format", form, "--tokenizer", model, simulate=simulate)
    card = (folder / "README.md").read_text()
    assert "## Rewards" not in card and "`rollout rescore` puts newer rewards into `scores/`" in card
    for name, kind in (("0001", "contains"), ("0002", "exact")):
        run_program("rescore", folder, "--reward", kind, "--min-std", "0.1")
        card = (folder / "README.md").read_text()
        assert f"the newest complete scores set was `{name}`" in card
    run_program("collect", "--resume", "--out", folder, "--samples", "3", "--quiet")
    assert (folder / "README.md").read_text().partition("## Rewards")[2] == card.partition("## Rewards")[2]
    want = scores_of(log.table(folder))
    assert len(want) == 12 and sum(reward is None for reward, *_ in want.values()) == 4
    assert want != scores_of(log.table(folder, scores="collected"))
    programs = FENCES.findall(card.partition("## Rewards")[2])
    assert [language for language, _ in programs] == (["python", "sql", "python"] if form == "parquet" else ["python"])
    for language, text in programs:
        rows = joined(language, text.replace("path/to/this/folder", str(folder)))
        assert scores_of(rows) == want and rows.column_names == log.table(folder).column_names
    if form == "parquet":  # the page shows the same programs
        assert [text.replace("path/to/this/folder", "run1").replace("0002", "0001") for _, text in programs[1:]] == [text for _, text in PAGE]


def test_the_join_keeps_later_decisions_of_a_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample that the set lacks has no reward, and its own keep and keep_reason."""
    for name in ("reward_details", "keep_reason"):
        monkeypatch.setattr(made, "SCHEMA", made.SCHEMA.append(pa.field(name, pa.string())))
    run = Run(tmp_path / "run1", "parquet")
    for n, keep in enumerate((None, True, False, None, True, False)):
        facts = {"reward": float(n), "reward_details": "{}", "keep": keep, "keep_reason": None if keep is None else f"old{n}"}
        run.commit([Sample(f"g{n}", i, (3,), facts=facts) for i in range(2)])
    write(run, "0001", {f"g{n}-{i}": i + 0.5 for n in range(3) for i in range(2)}, keep={"g0-0": False, "g1-0": True})
    want = scores_of(log.table(run.dir))
    assert want["g1-1"] == (1.5, '{"of": "g1-1"}', None, None) and want["g5-0"] == (None, None, False, "old5")
    assert [language for language, _ in PAGE] == ["sql", "py"]
    for language, text in PAGE:
        assert scores_of(joined(language, text.replace("run1/", f"{run.dir}/"))) == want
