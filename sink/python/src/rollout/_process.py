"""The role of this process: a DataLoader worker, a rank of a training job, or neither."""

from __future__ import annotations

import multiprocessing
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
    parent, trainer = os.getppid(), multiprocessing.parent_process()

    def look(_: float) -> None:
        # The trainer can have ended before the worker looked for its parent.
        ended = os.getppid() != parent or (trainer is not None and not _exists(trainer.pid))
        if worker() is not None and ended:
            raise SystemExit(1)

    return look


def _exists(pid: int | None) -> bool:
    try:
        os.kill(pid or 0, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def distributed() -> tuple[int, int]:
    """Return the rank and the world size of torch.distributed, or 0 and 1 if it is not initialized."""
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank()), int(torch.distributed.get_world_size())
    return 0, 1
