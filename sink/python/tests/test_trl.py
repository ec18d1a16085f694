"""TRL's own queue dataset, batchers and collator accept the groups of a collector."""

from __future__ import annotations

import ast
import inspect
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import frameworks
import pytest
from rollout import Dataset, Group, StateError
from rollout.trl import RolloutWorker

np, torch = frameworks.np, frameworks.torch


@pytest.fixture(scope="module")
def groups(collect: Callable[..., Path]) -> list[Group]:
    return frameworks.groups_of(collect)


@pytest.fixture(scope="module")
def trl() -> Iterator[SimpleNamespace]:
    found = frameworks.trl()
    worker = SimpleNamespace(RolloutSample=found.RolloutSample)
    with frameworks.modules(**({} if frameworks.INSTALLED else {"trl__experimental__async_grpo__async_rollout_worker": worker})):
        yield found


def dataset(trl: SimpleNamespace, worker: RolloutWorker, version: int, metrics: dict[str, list[Any]], most: int = 4) -> Any:
    """Return the dataset as in AsyncGRPOTrainer.get_train_dataloader, with a trainer at a
    version."""
    return trl.RolloutQueueDataset(
        rollout_queue=worker.rollout_buffer, model_version_fn=lambda: version, check_health_fn=worker.check_health,
        stale_after_s=300.0, metrics=metrics, max_staleness=most, poll_interval_s=0.05,
    )  # fmt: skip


def taken(trl: SimpleNamespace, given: list[Group], version: int = 0, most: int = 4) -> tuple[list[dict[str, Any]], dict[str, list[Any]]]:
    """Return all rows that TRL takes from groups, and its counts."""
    worker, metrics, rows = RolloutWorker(frameworks.Finished(given)), defaultdict(list), []
    worker.update_model_version(version)  # TRL gives the engine weights before it starts the worker
    worker.start()
    try:
        with pytest.raises(RuntimeError, match="the tasks ran out before training ended"):
            for row in dataset(trl, worker, version, metrics, most):
                rows.append(row)
    finally:
        worker.stop()
    return rows, metrics


def scores(rewards: list[float | None]) -> tuple[Any, float]:
    """Compute advantages and deviation as TRL's own worker does (_score_group)."""
    if frameworks.INSTALLED:
        import trl.experimental.async_grpo.async_rollout_worker as module

        tree = ast.parse(inspect.getsource(module))
    else:
        tree = frameworks.trainers.source("trl", "trl/experimental/async_grpo/async_rollout_worker.py")
    (method,) = (n for n in ast.walk(tree) if isinstance(n, ast.AsyncFunctionDef) and n.name == "_score_group")
    words = [ast.unparse(s) for s in method.body]
    first = next(i for i, w in enumerate(words) if "r is not None else float('nan')" in w)
    last = next(i for i, w in enumerate(words) if w.startswith("if scored_mask.any()"))
    names: dict[str, Any] = {"np": np, "all_rewards": [rewards]}
    exec(compile(ast.Module(method.body[first : last + 1], []), "<trl>", "exec"), names)
    return names["advantages"], names["reward_std"]


def test_the_worker_has_what_the_protocol_asks(trl: SimpleNamespace) -> None:
    worker = RolloutWorker(frameworks.Finished([]))
    assert set(trl.RolloutWorkerProtocol.__annotations__) == {"rollout_buffer", "metrics_queue"} <= set(vars(worker))
    methods = {n: m for n, m in vars(trl.RolloutWorkerProtocol).items() if inspect.isfunction(m) and not n.startswith("_")}
    assert set(methods) == {"start", "stop", "update_model_version", "check_health"}
    for name, method in methods.items():
        given = [p for p in inspect.signature(method).parameters if p != "self"]
        inspect.signature(getattr(worker, name)).bind(*given)  # positional, as TRL calls them
    assert worker.metrics_queue.empty()
    worker.stop()  # before the start, as after an error of the trainer


def test_every_row_is_taken_as_it_is(trl: SimpleNamespace, groups: list[Group]) -> None:
    rows, metrics = taken(trl, groups, version=3, most=10**6)
    want = [(number, row) for number, group in enumerate(groups) for row in group.rows]
    assert len(rows) == len(want) > len({row["sample_key"] for _, row in want})
    for got, (number, row) in zip(rows, want):
        assert got["group_id"] == number and type(got["group_id"]) is int
        for name, column, dtype in (("input_ids", "input_ids", "int64"), ("completion_mask", "loss_mask", "int64"), ("old_log_probs", "logprobs", "float32")):
            assert got[name].dtype == dtype
            np.testing.assert_array_equal(got[name], row[column])
        assert got["metrics"]["reward"] == row["reward"]
    assert metrics["sample/staleness_max"] == [3.0 - number for number, _ in want]


def test_advantages_are_those_of_trls_own_worker(trl: SimpleNamespace, groups: list[Group]) -> None:
    odd = replace(groups[0], rows=[{**r, "reward": [None, 0.25, 1.5, -1.0, None, 0.0][r["sample_index"]]} for r in groups[0].rows])
    none = replace(groups[1], rows=[{**r, "reward": None} for r in groups[1].rows])
    alone = replace(groups[2], rows=[r for r in groups[2].rows if r["sample_index"] == groups[2].rows[0]["sample_index"]])
    given = [*groups[3:], odd, none, alone]
    rows, _ = taken(trl, given, most=10**6)
    seen = iter(rows)
    for group in given:
        samples = {row["sample_index"]: row["reward"] for row in group.rows}
        advantage, deviation = scores(list(samples.values()))
        want = dict(zip(samples, advantage))
        for row in group.rows:
            got = next(seen)
            assert got["advantage"] == pytest.approx(want[row["sample_index"]], abs=1e-12)
            assert got["metrics"]["reward_std"] == pytest.approx(deviation, nan_ok=True)
    assert next(seen, None) is None and any(r["advantage"] for r in rows)


def test_the_rows_of_a_subagent_have_the_advantage_of_their_sample(trl: SimpleNamespace, delegated: list[Group]) -> None:
    rows, _ = taken(trl, delegated, most=10**6)
    given = [(number, row) for number, group in enumerate(delegated) for row in group.rows]
    assert len(rows) == len(given) and {row["chain_kind"] for _, row in given} == {"main", "subagent"}
    advantage: dict[str, float] = {}
    for got, (number, row) in zip(rows, given):
        np.testing.assert_array_equal(got["input_ids"], row["input_ids"])
        assert got["group_id"] == number and got["completion_mask"].any()
        assert got["advantage"] == advantage.setdefault(row["sample_key"], got["advantage"])
    assert len(advantage) == 12 and len(set(advantage.values())) > 3


def test_stale_rows_are_dropped_by_the_trainer(trl: SimpleNamespace, groups: list[Group]) -> None:
    """The groups have versions 0 to 11: a trainer at 9 that accepts a lag of 4 gets versions
    from 5."""
    rows, metrics = taken(trl, groups, version=9, most=4)
    assert sorted({row["group_id"] for row in rows}) == list(range(5, 12))
    assert len(metrics["sample/dropped_stale_total"]) == sum(len(g.rows) for g in groups[:5]) > 0
    assert len(rows) + len(metrics["sample/dropped_stale_total"]) == sum(len(g.rows) for g in groups)


def test_rows_of_unknown_version_are_as_old_as_they_may_be(groups: list[Group]) -> None:
    worker = RolloutWorker(frameworks.Finished([]))
    (row,) = frameworks.aged(groups[0], None).rows[:1]
    assert worker.versions(row) == (0, 0)
    for version in (3, 4):
        worker.update_model_version(version)
    assert worker.versions(row) == (0, 4)  # it started before
    assert worker.versions({**row, "started_at": datetime.now(timezone.utc)}) == (4, 4)
    worker.update_model_version(5)
    assert worker.versions(frameworks.aged(groups[0], 2, 3).rows[0]) == (2, 3)


def test_rows_without_a_token_to_train_on_stay_away(trl: SimpleNamespace, groups: list[Group]) -> None:
    bare = replace(groups[0], rows=[{**r, "loss_mask": np.zeros_like(r["loss_mask"])} if r["segment_index"] else r for r in groups[0].rows])
    none = replace(groups[1], rows=[{**r, "loss_mask": np.zeros_like(r["loss_mask"])} for r in groups[1].rows])
    rows, _ = taken(trl, [none, bare])
    assert len(rows) == sum(1 for r in groups[0].rows if not r["segment_index"]) < len(groups[0].rows)


@pytest.mark.parametrize("budget", [0, 3000])
def test_micro_batches_are_made_of_them(trl: SimpleNamespace, groups: list[Group], budget: int) -> None:
    """With two ranks, each micro-batch has all sampled tokens of its rows, with their
    log-probabilities and advantages."""
    worker = RolloutWorker(frameworks.Finished(groups, end=False))
    metrics: dict[str, list[Any]] = defaultdict(list)
    worker.start()
    source = dataset(trl, worker, 0, metrics)
    planner = trl.TokenBudgetBatcher(source, 2, budget, metrics) if budget else trl.FixedCountBatcher(source, 2, 8)
    collator = trl.DataCollatorForRollout(pad_token_id=0, num_processes=2, metrics=metrics, token_budget=budget)
    try:
        for rows in itertools.islice(planner, 4):
            batch = collator.torch_call([rows])
            samples = [sample for row in rows for sample in row.samples]
            sampled = [s["old_log_probs"][s["completion_mask"] == 1] for s in samples]
            assert batch["global_n_tokens"].tolist() == [float(sum(map(len, sampled)))] * 2
            assert batch["old_log_probs"].sum().item() == pytest.approx(sum(float(x.sum()) for x in sampled), rel=1e-4)
            want = sum(s["advantage"] * int(s["completion_mask"].sum()) for s in samples)
            assert batch["advantages"].sum().item() == pytest.approx(want, rel=1e-3, abs=1e-3)
            assert sum(len(row.tokens) for row in rows) < sum(len(s["input_ids"]) for s in samples)  # prefixes are shared
        assert collator.groups_trained <= set(range(12)) and len(collator.groups_trained) > 1
    finally:
        worker.stop()


def test_what_waits_waits_in_the_collector(trl: SimpleNamespace, groups: list[Group]) -> None:
    collector = frameworks.Finished(groups, end=False)
    worker = RolloutWorker(collector)
    worker.start()
    worker.update_model_version(1)
    end = time.monotonic() + 30
    while not worker.rollout_buffer.full() and time.monotonic() < end:
        time.sleep(0.01)
    assert (collector.given, worker.rollout_buffer.qsize()) == (1, 1)
    worker.check_health(300.0)
    worker.stop()
    assert collector.closed.is_set() and collector.versions == [1] and not worker._thread.is_alive()


def test_an_error_of_the_collector_reaches_the_trainer(trl: SimpleNamespace) -> None:
    class Broken(frameworks.Finished):
        def __iter__(self) -> Iterator[Group]:
            raise OSError("disk full; free some")

    worker = RolloutWorker(Broken([]))
    worker.start()
    with pytest.raises(RuntimeError, match="there are no more groups: disk full; free some") as raised:
        next(iter(dataset(trl, worker, 0, defaultdict(list))))
    assert isinstance(raised.value.__cause__, OSError)
    worker.stop()


def test_a_collector_takes_no_settings() -> None:
    with pytest.raises(TypeError, match="max_ahead"):
        RolloutWorker(frameworks.Finished([]), max_ahead=2)


def test_a_state_that_is_refused_starts_no_collector(stand_in: Callable[..., Any], tmp_path: Path) -> None:
    stand_in(None, out=tmp_path / "other").close()  # from here on the program is the stand-in
    state = {"run_id": "another", "seq": 1, "groups": 0}
    worker = RolloutWorker(tasks=[{"prompt": "p"}], out=tmp_path / "run")
    with pytest.raises(StateError, match="the state is from run 'another'"):
        worker.begin(state)
    assert worker._collector is None and "rollout-supervise" not in {t.name for t in threading.enumerate()}

    class Refusing(frameworks.Finished):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            raise StateError("another run")

    made = Refusing([])
    with pytest.raises(StateError, match="another run"):
        RolloutWorker(made).begin(state)
    assert made.closed.is_set()


@pytest.mark.parametrize("kind", ["folder", "text", "dataset", "two runs"])
def test_a_finished_run_is_trained_once(trl: SimpleNamespace, collect: Callable[..., Path], kind: str) -> None:
    run = collect("--samples", "4", "--reward", "number", "--policy-version", "7", simulate=("--input-ids", "--scripted", "5", "--drift", "0.7"))
    given: Any = {"folder": run, "text": str(run), "dataset": Dataset(run), "two runs": Dataset([run, run])}[kind]
    want = [row for group in Dataset([run, run] if kind == "two runs" else run) for row in group.rows]
    worker, rows = RolloutWorker(given), []
    worker.update_model_version(0)
    worker.start()
    worker.update_model_version(9)  # the trainer's version is the version of its weights, not of the weights that sampled
    with pytest.raises(RuntimeError, match=r"there are no more groups: all \d+ groups of .*run1 have been used: train for fewer steps, or pass more runs"):
        for row in dataset(trl, worker, 9, defaultdict(list)):
            rows.append(row)
    worker.stop()
    assert [row["input_ids"].tolist() for row in rows] == [row["input_ids"].tolist() for row in want] and len(rows) >= 20
    assert worker.versions(want[0]) == (7, 7) and worker._collector.state_dict()["next"] == worker._collector._next > 0


def test_what_is_no_collector_and_no_run_says_so(tmp_path: Path, collect: Callable[..., Path]) -> None:
    run = collect("--samples", "2", "--reward", "number", simulate=("--input-ids", "--scripted", "1"))
    (tmp_path / "empty").mkdir()
    for bad, error, says in (
        (lambda: RolloutWorker(str(tmp_path / "none")), FileNotFoundError, "none: no such folder; pass the --out folder"),
        (lambda: RolloutWorker(tmp_path / "empty"), FileNotFoundError, ": not the folder of a run"),
        (lambda: RolloutWorker(run, out=tmp_path / "run2"), TypeError, "out: a finished run accepts no settings"),
        (lambda: RolloutWorker(Dataset(run), [{"prompt": "p"}]), TypeError, "tasks: a finished run accepts no settings"),
        (lambda: RolloutWorker(Dataset(run, follow=True)), TypeError, "follow=True"),
        (lambda: RolloutWorker(7), TypeError, "config=7: want settings for rollout.collect, a collector, a Dataset, or the folder"),
        (lambda: RolloutWorker(), TypeError, "missing a required argument: 'out'"),
        (lambda: RolloutWorker(tasks=[], out=tmp_path / "run2", sample=2), TypeError, "unexpected keyword argument 'sample'"),
    ):
        with pytest.raises(error, match=says):
            bad()


def test_the_settings_are_those_of_collect(trl: SimpleNamespace, simulator: Callable[..., tuple[str, Path]], tmp_path: Path) -> None:
    """A collector of its own: it knows the version that TRL set before it started, and ends
    with the training."""
    url, _ = simulator("--input-ids", "--scripted", "1")
    tasks = [{"prompt": f"Add {n} and 2.", "answer": str(n + 2)} for n in range(3)]
    worker = RolloutWorker(tasks=tasks, out=tmp_path / "run1", server=url, model="sglang//models/qwen3", samples=4, max_ahead=2, flags=["--reward=number"])
    worker.update_model_version(1)
    worker.start()
    rows = []
    with pytest.raises(RuntimeError, match="the tasks ran out"):
        for row in dataset(trl, worker, 1, defaultdict(list)):
            rows.append(row)
    worker.stop()
    run = Dataset(tmp_path / "run1")
    assert len(run) == 3 and {1} <= {row["policy_version_min"] for group in run for row in group.rows} <= {1, None}
    assert sorted(tuple(row["input_ids"].tolist()) for row in rows) == sorted(tuple(r["input_ids"].tolist()) for g in run for r in g.rows)
    assert sorted({row["group_id"] for row in rows}) == [0, 1, 2]
