"""What this process is: a worker of a DataLoader, a rank of a training, or neither."""

from __future__ import annotations

import os
from collections.abc import Callable

from rollout._arrays import torch


def worker() -> tuple[int, int] | None:
    """Return which worker of how many this process is, None where it is none."""
    info = None if torch is None else torch.utils.data.get_worker_info()
    return None if info is None else (info.id, info.num_workers)


def not_alone() -> Callable[[float], None]:
    """Return what ends a worker that waits for commits once its trainer is gone.

    torch looks for that between two batches, and there may never be another one.
    """
    parent = os.getppid()

    def look(_: float) -> None:
        if worker() is not None and os.getppid() != parent:
            raise SystemExit(1)

    return look


def distributed() -> tuple[int, int]:
    """Return rank and world size of torch.distributed, 0 of 1 where it is not initialised."""
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank()), int(torch.distributed.get_world_size())
    return 0, 1
