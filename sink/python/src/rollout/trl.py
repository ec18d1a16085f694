"""A rollout worker for TRL's asynchronous GRPO trainer.

    worker = RolloutWorker("rollout.yaml", tasks, out="run1", max_ahead=2)
    AsyncGRPOTrainer(model, ..., rollout_worker=worker).train()

The worker implements RolloutWorkerProtocol of TRL 1.16.0 (trl/experimental/async_grpo/,
async_grpo_trainer.py:115). rollout.to_trl makes a RolloutSample of each row. An unscored sample
has advantage 0. Failed samples and samples with keep=false are dropped. The worker does not drop
stale rows. The trainer drops a row if its version is more than max_staleness versions older than
the weights (async_grpo_trainer.py:367). model_version is the oldest version that can have sampled
the row. This is policy_version_min or, if that is unknown, the version at the start of the
sample, as in TRL's own worker (async_rollout_worker.py:626).

    worker = RolloutWorker("run1")     # a finished run or a Dataset: each group once, in order

The rows of a finished run keep the versions that they were sampled with. After max_staleness
steps, the trainer would drop these rows because they are too old. So set max_staleness in
AsyncGRPOConfig to a value above max_steps.
"""

from __future__ import annotations

import contextlib
import queue
import time
from typing import Any

from rollout._bridge import Worker
from rollout._types import Group
from rollout.train.adapters import to_trl


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
        for sample in to_trl([group], null_reward="zero", versions=self.versions):
            sample.group_id = number
            while not self._stopped.is_set():
                sample.enqueued_at = time.time()
                with contextlib.suppress(queue.Full):
                    self.rollout_buffer.put(sample, timeout=0.5)
                    break
