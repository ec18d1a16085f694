"""Shared memory for batches on their way from workers, used again when they are gone.

New shared memory costs more than what is copied into it: each page is made, cleared and
mapped when it is first touched, in the worker and once more in the process that trains.
So a worker keeps its blocks. A word at the beginning of a block says whether a batch is
in it; the process that trains clears it when nothing refers to the batch any more.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from rollout._arrays import torch

HEADER = 64
"""Bytes before the batch."""
ALIGN = 64
"""Bytes at which arrays begin in it, so that every dtype is aligned."""
KEPT = 16
"""Blocks that a worker remembers. Where batches are kept for good, so are their blocks,
and a worker forgets the oldest."""

_lock = threading.Lock()
_blocks: list[Any] = []


def lend(size: int) -> Any:
    """Return a tensor (uint8) in shared memory of HEADER + size bytes, or more in a worker."""
    if torch.utils.data.get_worker_info() is None:
        return _new(size)
    with _lock:
        free = [i for i, block in enumerate(_blocks) if not _word(block).item()]
        fits = [i for i in free if len(_blocks[i]) >= HEADER + size]
        if fits:
            at = min(fits, key=lambda i: len(_blocks[i]))
            block = _blocks.pop(at)
            _word(block).fill_(1)
        else:
            # One that is free and too small makes room; or the oldest, if there are many.
            if free or len(_blocks) >= KEPT:
                del _blocks[free[0] if free else 0]
            block = _new(size + size // 4)
        _blocks.append(block)
        return block


def memory(block: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes of a lent block behind its header.

    The block is free again when this array and all arrays and tensors that are views of
    it are gone.
    """
    whole: npt.NDArray[np.uint8] = block.numpy()
    weakref.finalize(whole, _word(block).zero_).atexit = False
    return whole[HEADER:]


def _new(size: int) -> Any:
    # share_memory_() of a tensor would write every page of it.
    storage = torch.UntypedStorage._new_shared(HEADER + size)
    block = torch.empty(0, dtype=torch.uint8).set_(storage)
    _word(block).fill_(1)
    return block


def _word(block: Any) -> Any:
    return block[:8].view(torch.int64)
