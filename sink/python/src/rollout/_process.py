"""The role of this process: a DataLoader worker, a rank of a training job, or neither."""

from __future__ import annotations

import os
from collections.abc import Callable

from rollout._arrays import torch


def worker() -> tuple[int, int] | None:
    """Return the number of this DataLoader worker and the number of workers, or None if this
    process is not a worker."""
    info = None if torch is None else torch.utils.data.get_worker_info()
    return None if info is None else (info.id, info.num_workers)


def not_alone() -> Callable[[float], None]:
    """Return a function that ends this process if it is a DataLoader worker whose trainer has
    ended.

    torch checks for the end of the trainer only between two batches, but a worker can wait
    forever for a batch.
    """
    parent = os.getppid()

    def look(_: float) -> None:
        if worker() is not None and os.getppid() != parent:
            raise SystemExit(1)

    return look


def distributed() -> tuple[int, int]:
    """Return the rank and the world size of torch.distributed, or 0 and 1 if it is not initialized."""
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank()), int(torch.distributed.get_world_size())
    return 0, 1
