"""The code of TRL and verl that accepts rows: extracted from their pinned wheels or, with
ROLLOUT_FRAMEWORKS, the installed packages (make frameworks).
"""

from __future__ import annotations

import ast
import contextlib
import logging
import os
import queue
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rollout import Dataset, Group

INSTALLED = bool(os.environ.get("ROLLOUT_FRAMEWORKS"))

if not INSTALLED:
    import trainers
torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")


def classes(package: str, path: str, names: dict[str, Any], *wanted: str) -> SimpleNamespace:
    """Return classes and functions of a module in a wheel, in its order, without decorators
    except dataclass."""
    found = [n for n in trainers.source(package, path).body if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.name in wanted]
    assert {n.name for n in found} == set(wanted), (wanted, [n.name for n in found])
    for node in (n for f in found for n in ast.walk(f) if isinstance(n, (ast.ClassDef, ast.FunctionDef))):
        node.decorator_list = [d for d in node.decorator_list if ast.unparse(d).partition("(")[0] in ("dataclass", "staticmethod", "classmethod")]
    made = trainers.run(list(found), {**names, "__name__": __name__})
    return SimpleNamespace(**{name: made[name] for name in wanted})


class Finished:
    """The groups of a finished run, with the methods of a collector that a worker calls.

    The test sets the groups. It records what it was told.
    """

    def __init__(self, groups: list[Group], end: bool = True) -> None:
        self.groups, self.end = groups, end
        self.versions: list[int] = []
        self.given, self.closed = 0, threading.Event()

    def __iter__(self) -> Iterator[Group]:
        while self.given < len(self.groups):
            self.given += 1
            yield self.groups[self.given - 1]
        if not self.end:
            self.closed.wait(60)

    def set_version(self, version: int) -> None:
        self.versions.append(version)

    def state_dict(self) -> dict[str, Any]:
        return {"run_id": "r", "seq": 1, "groups": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state["groups"]

    def close(self) -> None:
        self.closed.set()


def groups_of(collect: Callable[..., Path]) -> list[Group]:
    """Return twelve groups with forks, failed samples, and versions 0 to 11."""
    simulate = ("--input-ids", "--scripted", "12", "--drift", "0.7", "--wrong", "0.4", "--fault", "id-mismatch=0.1")
    run = collect("--samples", "6", "--reward", "number", simulate=simulate, status=(0, 3, 4))
    made = [aged(group, version) for version, group in enumerate(Dataset(run))]
    assert any(row["segment_index"] for g in made for row in g.rows) and any(g.failed for g in made) and not all(g.failed for g in made)
    return made


def aged(group: Group, oldest: int | None, newest: int | None = None) -> Group:
    """Return the group with other versions in its rows."""
    newest = oldest if newest is None else newest
    return replace(group, rows=[{**row, "policy_version_min": oldest, "policy_version_max": newest} for row in group.rows])


def trl() -> SimpleNamespace:
    """The code with which TRL 1.16.0 makes batches of rollout samples."""
    if INSTALLED:
        from accelerate import PartialState
        from trl.experimental.async_grpo import async_grpo_trainer, async_rollout_worker

        PartialState()  # before TRL logs
        return SimpleNamespace(**{**vars(async_rollout_worker), **vars(async_grpo_trainer)})
    folder = "trl/experimental/async_grpo/"
    worker = classes("trl", folder + "async_rollout_worker.py", _names(), "RolloutSample")
    packing = classes("trl", folder + "packing.py", _names(), "TreeRow")
    pad = classes("trl", "trl/trainer/utils.py", _names(), "pad")
    names = {**_names(), **vars(packing), **vars(pad), "DataCollatorMixin": object, "log_rollout_traces": lambda *a, **k: None}
    wanted = "RolloutWorkerProtocol", "RolloutQueueDataset", "FixedCountBatcher", "TokenBudgetBatcher", "DataCollatorForRollout"
    return SimpleNamespace(**vars(worker), **vars(packing), **vars(classes("trl", folder + "async_grpo_trainer.py", names, *wanted)))


def _names() -> dict[str, Any]:
    from dataclasses import dataclass, field
    from typing import Protocol

    import contextvars
    import math

    return {
        "torch": torch, "np": np, "queue": queue, "threading": threading, "time": time, "logging": logging, "os": os,
        "logger": logging.getLogger("framework"), "contextvars": contextvars, "math": math, "dataclass": dataclass, "field": field,
        "defaultdict": defaultdict, "Counter": Counter, "Protocol": Protocol, "Any": Any,
    }  # fmt: skip


@contextlib.contextmanager
def modules(**given: Any) -> Iterator[None]:
    """Make modules importable within the block: a__b is a.b."""
    made: dict[str, ModuleType] = {}
    for dotted, content in given.items():
        parts = dotted.split("__")
        for i in range(1, len(parts) + 1):
            made.setdefault(".".join(parts[:i]), ModuleType(".".join(parts[:i])))
        vars(made[".".join(parts)]).update(vars(content))
    had = {name: sys.modules.get(name) for name in made}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name, module in had.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


class Store:
    """A queue like transfer_queue 0.1.11, in this process: tags and fields of keys, by
    partition."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.fields: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self._lock = threading.Lock()

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any = None, tags: Any = None) -> None:
        assert len(set(keys)) == len(keys) and all(len(x) == len(keys) for x in (fields, tags) if x is not None)
        with self._lock:
            for i, key in enumerate(keys):
                self.tags[partition_id].setdefault(key, {}).update(tags[i] if tags else {})
                self.fields[partition_id].setdefault(key, {}).update(fields[i] if fields else {})

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, list[Any]]:
        with self._lock:
            return {name: [self.fields[partition_id][key][name] for key in keys] for name in select_fields}

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, Any]]:
        with self._lock:
            return {p: {k: dict(t) for k, t in tags.items()} for p, tags in self.tags.items() if partition_id in (None, p)}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        with self._lock:
            for key in keys:
                del self.tags[partition_id][key], self.fields[partition_id][key]


class Verl:
    """verl 0.9.1: its replay buffers, its advantages, and the queue that they read."""

    def __init__(self) -> None:
        if INSTALLED:
            import ray
            import transfer_queue
            from verl.trainer.ppo.v1 import replay_buffer

            if not ray.is_initialized():
                ray.init(num_cpus=16, include_dashboard=False)  # each part of the queue takes one
            self.tq, self.buffers = transfer_queue, replay_buffer
            self.modules: dict[str, Any] = {}
            return
        self.tq = Store()
        annotate = SimpleNamespace(annotate_tq=None)
        names = {**_names(), "tq": self.tq, "KVBatchMeta": SimpleNamespace, "SkipManager": annotate, "DictConfig": dict}
        names |= {"VERL_REPLAY_BUFFER_DEBUG_INTERVAL_SECONDS": 60, "DAPO_FILTERED_REWARD_COUNTS_KEY": "dapo", "FILTER_GROUPS_REWARD_METRIC": "reward"}
        wanted = "_accumulate_eviction_metrics", "ReplayBuffer", "ReplayBufferAsync"
        self.buffers = classes("verl", "verl/trainer/ppo/v1/replay_buffer.py", names, *wanted)
        # verl makes columns of a list of rows; this queue stores the list of rows.
        self.modules = {"transfer_queue": self.tq_module(), "verl__utils__tensordict_utils": SimpleNamespace(list_of_dict_to_tensordict=list)}

    def tq_module(self) -> SimpleNamespace:
        return SimpleNamespace(**{n: getattr(self.tq, n) for n in ("kv_batch_put", "kv_batch_get", "kv_list", "kv_clear")})

    def fields(self, keys: list[str], names: list[str]) -> list[dict[str, Any]]:
        """Return fields of keys of the training from the queue."""
        data = self.tq.kv_batch_get(keys=keys, partition_id="train", select_fields=names)
        return [{name: data[name][i] for name in names} for i in range(len(keys))]

    def advantages(self, keys: list[str]) -> dict[str, Any]:
        """Return, by key, the advantages of its response, as the trainer computes them."""
        if INSTALLED:
            from omegaconf import OmegaConf
            from verl.trainer.ppo.v1.trainer_base import PPOTrainer

            algorithm = {"use_kl_in_reward": False, "adv_estimator": "grpo", "gamma": 1.0, "lam": 1.0}
            self_ = SimpleNamespace(config=OmegaConf.create({"algorithm": algorithm, "actor_rollout_ref": {"rollout": {"n": 6}}}))
            batch = self.tq.KVBatchMeta(partition_id="train", keys=keys, tags=[{}] * len(keys))
            PPOTrainer._compute_advantage(self_, batch, {})
            return {k: row["advantages"].numpy() for k, row in zip(keys, self.fields(keys, ["advantages"]))}
        rows = self.fields(keys, ["uid", "response_mask", "rm_scores"])
        width = max(len(row["response_mask"]) for row in rows)
        padded = {n: torch.stack([torch.nn.functional.pad(r[n], (0, width - len(r[n]))) for r in rows]) for n in ("response_mask", "rm_scores")}

        class Proto:
            def __init__(self, batch: dict[str, Any], uid: Any) -> None:
                self.batch, self.non_tensor_batch = batch, {"uid": uid}

            def __len__(self) -> int:
                return len(self.non_tensor_batch["uid"])

            def select_idxs(self, at: list[int]) -> Proto:
                return Proto({k: v[at] for k, v in self.batch.items()}, self.non_tensor_batch["uid"][at])

        def compute(data: Proto, **options: Any) -> Proto:
            core = trainers.Verl().core
            got, _ = core.compute_grpo_outcome_advantage(data.batch["rm_scores"], data.batch["response_mask"], data.non_tensor_batch["uid"])
            data.batch["advantages"] = got
            return data

        algos = SimpleNamespace(AdvantageEstimator=SimpleNamespace(GRPO="grpo"))
        names = {**_names(), "compute_advantage": compute, "core_algos": algos, "DataProto": Proto}
        made = classes("verl", "verl/trainer/ppo/v1/utils.py", names, "compute_advantage_for_multi_trajectories")
        data = Proto(padded, np.array([row["uid"] for row in rows], dtype=object))
        made.compute_advantage_for_multi_trajectories(data, batch_keys=keys, adv_estimator="grpo")
        return {k: data.batch["advantages"][i, : len(rows[i]["response_mask"])].numpy() for i, k in enumerate(keys)}
