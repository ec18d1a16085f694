"""Every argument with a wrong type or value is an error that names it and shows the value."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import Run, Sample

import rollout
from rollout import Where, advantages, collate, log
from rollout.trl import RolloutWorker
from rollout.verl import Feeder

WORD, COUNT, COUNT_OR_NONE = ["x", 1, None, []], ["5", 1.5, True, -1, None, np.nan], ["5", 1.5, True, -1, []]
INTEGER, SECONDS, BOOL = ["5", 1.5, True, None, np.float64(1)], ["5", True, -1, float("nan"), []], ["yes", 1, None, "True"]
TEXTS, PATH, FUNCTION = ["reward", 5, [5], [None], {"a": 1}, b"x"], [5, None, b"run", "", ["run"]], ["x", 5, {}]
POLICY = ["x", None, True, 1]
END = rollout.Session("http://127.0.0.1:1", "key", "id", 1).end
VECTOR = ["x", [[1, 2]], ["a", "b"], 5]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = Run(tmp_path / "run")
    made.commit([Sample("g", i, [3], 2, facts={"reward": float(i)}) for i in range(2)])
    made.plan(2)
    return made.dir


class Given:
    """A function's valid arguments, and the invalid values of each by name."""

    def __init__(self, name: str, call: Callable[..., Any], right: dict[str, Any], wrong: dict[str, list[Any]], free: tuple[str, ...] = ()) -> None:
        self.name, self.call, self.right, self.wrong, self.free = name, call, right, wrong, free


def entries(run: Path, out: Path) -> Iterator[Given]:
    ds = rollout.Dataset(run)
    groups = list(ds)
    batch = collate.padded(0)(groups)
    shard = log.shards(run)[0]
    stale = {"policy_version": 3, "max_staleness": 1, "unknown_version": "keep"}
    words = ["x", "verified", None, 1, []]
    yield Given("Where", Where, {}, {
        **dict.fromkeys(("keep", "truncated", "null_reward", "missing", "failed", "partial"), POLICY), "verification": words,
        "status": ["completed", {"x"}, 5, [5], {"completed": 1}], "flags": ["cut", {"x"}, 5, None, [5]], "min_tokens": COUNT, "max_tokens": COUNT_OR_NONE,
        "segments": BOOL, "reward_variance": BOOL,
    })  # fmt: skip
    yield Given("Where of versions", Where, stale, {"policy_version": COUNT, "max_staleness": COUNT, "unknown_version": POLICY})
    dataset = {
        "runs": [5, None, [], [5], b"run", "", "none", {"a": 1}], "where": ["x", 5, {"keep": "drop"}], "columns": TEXTS, "check": WORD,
        "follow": BOOL, "timeout": SECONDS, "scores": ["0001", "x", 5, ["0001"]],
    }  # fmt: skip
    yield Given("Dataset", lambda runs=run, **more: rollout.Dataset(runs, **{"follow": True, **more}), {}, dataset)
    yield Given("Dataset.batches", ds.batches, {"groups": 1, "rank": 0, "world_size": 1}, {
        "groups": [*COUNT, 0, 2], "seed": INTEGER, "epoch": INTEGER, "shuffle": BOOL, "rank": [*COUNT, 1], "world_size": [*COUNT, 0],
        "fill": WORD, "collate": FUNCTION, "lanes": [*COUNT_OR_NONE, 0],
    })  # fmt: skip
    yield Given("Batches.set_epoch", ds.batches(1, rank=0, world_size=1).set_epoch, {"epoch": 1}, {"epoch": INTEGER})
    yield Given("DataLoader", lambda **k: rollout.DataLoader(**k), {"batches": ds.batches(1, rank=0, world_size=1)}, {"batches": ["x", None, [1]], "num_workers": COUNT})
    yield Given("Dataset.row", ds.row, {"which": 0}, {"which": ["x", 1.5, None, True, ("g-0",), (1, 0)]}, ("run",))
    yield Given("Following", rollout.Following, {"run": run}, {
        "run": PATH, "where": ["x"], "columns": TEXTS, "check": WORD, "timeout": SECONDS, "interval": SECONDS, "idle": FUNCTION, "left_out": FUNCTION, "scores": ["0001", "x", 5, ["0001"]],
        "after": [5, "x", {}, {"run_id": "r", "seq": 1.5, "groups": 0}, {"run_id": "r", "seq": -1, "groups": 0}],
    })  # fmt: skip
    layout = {"null_reward": WORD, "dtypes": ["x", 5, {"x": "int8"}, {"input_ids": "int8"}, {"input_ids": "x"}, {5: "int8"}]}
    pad = {"pad_id": ["0", 1.5, True, -100, -1, None, np.float64(0)]}
    yield Given("padded", collate.padded, {"pad_id": 0}, {**pad, **layout, "side": WORD, "multiple_of": [*COUNT, 0]})
    yield Given("packed", collate.packed, {}, {**layout, "max_tokens": [*COUNT_OR_NONE, 0], "order": WORD, "longer": WORD})
    edges = ["x", [1.5], [0], [], ["8"], 5, [[8]]]
    yield Given("bucketed", collate.bucketed, {"pad_id": 0}, {**pad, **layout, "edges": edges, "max_tokens": [*COUNT_OR_NONE, 0], "side": [*WORD, "split"], "longer": WORD})
    yield Given("a collate", lambda groups: collate.padded(0)(groups), {"groups": groups}, {"groups": [["x"], [5], [{"rows": []}]]})
    yield Given("micro_batches", lambda batch: list(collate.micro_batches(batch)), {"batch": batch}, {"batch": ["x", None, [1]]})
    vectors = {"reward": [0.0, 1.0, 2.0], "group": [0, 0, 0], "sample": [0, 1, 2]}
    shape = {"reward": VECTOR, "group": [*VECTOR, [0.5, 0, 0]], "sample": [*VECTOR, [0, 1, 1.5]]}
    common = {**shape, "preset": WORD, "null": WORD, "missing": ["x", True, float("nan"), float("inf"), None, []], "single": ["x", 5, True]}
    numbers = {"epsilon": ["x", -1, float("nan"), True], "ddof": ["x", 2, 0.5, True]}
    absent = {**vectors, "absent": [1, 1, 1], "missing": 0.0}
    yield Given("grpo", advantages.grpo, absent, {**common, **numbers, "absent": ["x", [1.5, 1.5, 1.5], [-1, -1, -1], None]})
    for name in ("dr_grpo", "rloo"):
        yield Given(name, getattr(advantages, name), absent, {**common, "absent": ["x", [0.5, 0.5, 0.5], [-1, -1, -1]]})
    plus = {"reward": vectors["reward"], "tokens": [1, 2, 3], "sample": vectors["sample"], "group": vectors["group"]}
    yield Given("reinforce_plus_plus", advantages.reinforce_plus_plus, plus, {
        **shape, **numbers, "tokens": [*VECTOR, [0, 0, 0]], "preset": [*WORD, "trl"], "null": WORD,
    })  # fmt: skip
    weights = {"tokens": [1, 2, 3], "sample": [0, 1, 2]}
    sums = ["x", 0, -1, True, float("nan"), []]
    yield Given("loss_weights", rollout.loss_weights, weights, {
        "tokens": [*VECTOR, [-1, 0, 1], [1, 2, float("nan")]], "sample": shape["sample"], "mode": WORD, "scale": WORD,
        **dict.fromkeys(("rows", "samples", "total_tokens"), sums),
    })  # fmt: skip
    yield Given("check", rollout.check, {"logprob_fn": lambda ids: np.zeros(len(ids)) - 0.5, "run": run}, {
        "logprob_fn": [5, None, run], "run": [5, None, [5], [], "none", batch], "rows": [*COUNT, 0], "seed": COUNT,
        "tolerance": ["x", True, 0, -1, float("nan"), None], "vocabulary": [*COUNT_OR_NONE, 0],
    })  # fmt: skip
    settings = {
        "config": [5, [1], b"x", ""], "tasks": [5, b"x", {"prompt": "p"}], "out": PATH, "server": [5, [5], {}], "model": [5, []],
        "samples": [*COUNT_OR_NONE, 0], "max_ahead": COUNT_OR_NONE, "workers": [*COUNT, 0], "max_lag": COUNT_OR_NONE, "until_groups": COUNT_OR_NONE, "min_std": SECONDS, "flags": ["--quiet", 5, [5], None],
        "env": [5, "x", {"a": 5}, {5: "a"}], "where": ["x", 5], "columns": TEXTS, "check": WORD, "state": [5, "x", {}, {"run_id": "r"}], "ack": WORD,
        "timeout": SECONDS, "lock_wait": [*SECONDS, None], "restarts": COUNT, "grace": [*SECONDS, None], "distributed": ["x", 1],
    }  # fmt: skip
    yield Given("collect", rollout.collect, {"out": out}, settings)
    text, metadata = [5, b"x", []], ["x", 5, [("a", 1)], {"a": {1}}, {"a": float("nan")}]
    yield Given("session", rollout.session, {"tap": "http://127.0.0.1:1"}, {
        "tap": [5, None, "", "host", "ftp://host"], **dict.fromkeys(("task_id", "prompt", "answer", "token"), text), "metadata": metadata,
        "timeout": [*SECONDS, None],
    })  # fmt: skip
    end = {"reward": ["1", [1], float("nan"), np.inf], "final_text": text, "metadata": metadata, "wait": BOOL}
    yield Given("Session.end", END, {}, end)
    for kind in (RolloutWorker, Feeder):
        more = {"weigh_samples": BOOL} if kind is Feeder else {}
        run_or_settings = {"config": [5, "none", run.parent, [run], ds.batches(1, rank=0, world_size=1), rollout.Dataset(run, follow=True)]}
        yield Given(kind.__name__, lambda config=None, kind=kind, **k: kind(config, **k), {"config": run}, run_or_settings | more)
    yield Given("log.shards", log.shards, {"run_dir": run}, {"run_dir": PATH, "kind": WORD, "after": COUNT})
    yield Given("log.commits", log.commits, {"run_dir": run}, {"run_dir": PATH, "after": COUNT})
    yield Given("log.table", log.table, {"run_dir": run}, {"run_dir": PATH, "kind": WORD, "columns": TEXTS, "check": WORD, "scores": ["0001", "x", 5]})
    for name, read in (("log.rows", log.rows), ("log.batches", log.batches)):
        yield Given(name, lambda read=read, **k: list(read(shard, **k)), {}, {"columns": TEXTS, "check": WORD})
    yield Given("log.check_shard", lambda **k: log.check_shard(shard, **k), {}, {"check": WORD})


def test_wrong_arguments(run: Path, tmp_path: Path, stand_in: Callable[..., Any]) -> None:
    stand_in(None, out=tmp_path / "other").close()  # the program is the stand-in: it is never started
    failed = []
    for given in entries(run, tmp_path / "out"):
        if given.call not in (Where, rollout.collect, rollout.session, END):
            given.call(**given.right)
        for name, values in given.wrong.items():
            for value in values:
                try:
                    got = given.call(**{**given.right, name: value})
                except (TypeError, ValueError, FileNotFoundError, rollout.StateError) as err:
                    text = str(err)
                    clear = any(word in text for word in (name, repr(value)[:20], str(value), "follow=True"))
                    if "lambda" in text or not clear or text.startswith(("'", "unsupported", "object of type")):
                        failed.append(f"{given.name}({name}={value!r:.40}): {type(err).__name__}: {text}")
                except Exception as err:
                    failed.append(f"{given.name}({name}={value!r:.40}): {type(err).__name__}: {err}")
                else:
                    getattr(got, "close", lambda: None)()
                    failed.append(f"{given.name}({name}={value!r:.40}): no error")
    assert not failed, "\n" + "\n".join(failed)


@pytest.mark.parametrize("url", ["s3://key:hunter2@bucket/run", Path("s3://bucket/run"), "gs://bucket/run", "S3:bucket/run", "file:///run"])
def test_a_url_is_not_a_folder(url: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for wrong in ({"out": url}, {"out": url, "workers": 2}, {"out": "run", "config": url}, {"out": "run", "tasks": url}):
        with pytest.raises(ValueError, match=f"^{[*wrong][wrong['out'] == 'run']}: a URL is not supported: pass ") as refused:
            rollout.collect(**wrong).close()
        assert "hunter2" not in str(refused.value)
    for read in (rollout.Dataset, rollout.Following, log.commits):
        with pytest.raises(ValueError, match="the URL has no ://; pass|not supported|the URL contains credentials"):
            read(url)
    assert not list((tmp_path / "here").iterdir())


def test_the_table_has_every_argument(run: Path, tmp_path: Path) -> None:
    seen: dict[Any, set[str]] = {}
    for given in entries(run, tmp_path / "out"):
        seen.setdefault(given.call, set(given.free)).update(given.wrong)
    for call in (
        Where, rollout.Following, rollout.check, rollout.collect, rollout.session, END, rollout.loss_weights, collate.padded, collate.packed, collate.bucketed,
        advantages.grpo, advantages.dr_grpo, advantages.rloo, advantages.reinforce_plus_plus, log.shards, log.commits, log.table,
    ):  # fmt: skip
        assert set(inspect.signature(call).parameters) == seen[call], call
    assert {f.name for f in dataclasses.fields(Where)} == seen[Where]


def test_numpys_numbers_are_numbers(run: Path) -> None:
    n = np.int64(1)
    assert Where(min_tokens=n, max_tokens=np.int32(9), segments=np.bool_(True)).segments
    assert len(rollout.Dataset(run).batches(n, seed=n, epoch=n, rank=np.int64(0), world_size=n)) == 1
    assert collate.padded(np.int64(0), multiple_of=n) and rollout.check(lambda ids: np.zeros(len(ids)), run, rows=n, tolerance=np.float32(1)).rows == 1
    assert advantages.grpo([None, 1.0, 0.0], [0, 0, 0], null="zero", epsilon=np.float64(0.1)).shape == (3,)
