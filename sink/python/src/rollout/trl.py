"""A rollout worker for TRL's asynchronous GRPO trainer.

    worker = RolloutWorker("rollout.yaml", tasks, out="run1", max_ahead=2)
    AsyncGRPOTrainer(model, ..., rollout_worker=worker).train()

The worker implements RolloutWorkerProtocol of TRL 1.16.0 (trl/experimental/async_grpo/,
async_grpo_trainer.py:115). A row becomes a RolloutSample (async_rollout_worker.py:214). As in
that file (:1086), all rows of a sample have the sample's advantage. It is (reward - mean) /
(deviation + 1e-8) over the scored samples of the group, or 0 if the sample has no reward (:1058).
Rows without a token to train on are dropped (:167). Failed samples and samples with keep=false
are dropped too. The worker does not drop stale rows. The trainer drops a row if its version is
more than max_staleness versions older than the weights (async_grpo_trainer.py:367). model_version
is the oldest version that can have sampled the row. This is policy_version_min or, if that is
unknown, the version at the start of the sample, as in TRL's own worker (:626).

    worker = RolloutWorker("run1")     # a finished run or a Dataset: each group once, in order

The rows of a finished run keep the versions that they were sampled with. After max_staleness
steps, the trainer would drop these rows because they are too old. So set max_staleness in
AsyncGRPOConfig to a value above max_steps.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from rollout._bridge import Worker
from rollout._types import Group
from rollout.train import advantages


class RolloutWorker(Worker):
    """A rollout_worker for AsyncGRPOTrainer. It accepts the arguments of rollout.collect, or a
    finished run.

    The queue holds only one row. Other groups wait in the collector, where max_ahead limits their
    number and max_lag limits their age.
    """

    def __init__(self, config: Any = None, tasks: Any = None, **options: Any) -> None:
        super().__init__(config, tasks, **options)
        self.rollout_buffer: queue.Queue[Any] = queue.Queue(maxsize=1)
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self.stop, self.update_model_version = self.close, self.set_version

    def start(self) -> None:
        """Start collecting, without waiting for a group. The first policy version is the version
        of the initial weights, which TRL has already set.
        """
        self.begin()
        if self._set:
            self.set_version(self._version)

    def check_health(self, stale_after_s: float) -> None:
        """Raise RuntimeError if there are no more rows. A slow row is not an error."""
        if self.rollout_buffer.empty():
            self.check()

    def _put(self, group: Group, number: int) -> None:
        for sample in self._samples(group, number):
            while not self._stopped.is_set():
                sample.enqueued_at = time.time()
                with contextlib.suppress(queue.Full):
                    self.rollout_buffer.put(sample, timeout=0.5)
                    break

    def _samples(self, group: Group, number: int) -> Iterator[Any]:
        from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

        reward = np.array([math.nan if r["reward"] is None else r["reward"] for r in group.rows], dtype=np.float64)
        sample = np.array([r["sample_index"] for r in group.rows], dtype=np.int64)
        rewards = reward[np.unique(sample, return_index=True)[1]]  # [samples]
        scored = rewards[~np.isnan(rewards)]
        deviation = float(np.std(scored)) if scored.size else math.nan
        advantage = advantages.grpo(reward, np.zeros_like(sample), sample, epsilon=1e-8, ddof=0, single="zero", null="zero")
        for i, row in enumerate(group.rows):
            yield RolloutSample(
                prompt=[],
                completion=json.loads(row["messages"] or "[]"),
                input_ids=row["input_ids"].astype(np.int64),
                completion_mask=row["loss_mask"].astype(np.int64),
                old_log_probs=np.asarray(row["logprobs"], dtype=np.float32),
                advantage=float(advantage[i]),
                model_version=self.versions(row)[0],
                group_id=number,
                metrics={"reward": float(reward[i]), "reward_std": deviation},
            )
