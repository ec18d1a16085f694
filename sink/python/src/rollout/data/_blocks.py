"""Shared memory for batches from workers. A worker reuses the memory of batches that are gone.

New shared memory costs more than the copy into it: each page is created, cleared and mapped on
first access, in the worker and again in the training process. So a worker reuses its blocks.
collate writes a batch directly into a block. Other batches are copied into a block.

A block is free when no object in the worker refers to its memory and the block was returned as
often as it was sent. The block begins with two counters. The worker increments sent. The training
process increments returned when no object refers to the batch any longer.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rollout._arrays import torch

HEADER = 64
"""Bytes before the batch."""
ALIGN = 64
"""Alignment of arrays in a block, in bytes. This alignment is sufficient for every dtype."""
KEPT = 16
"""The number of blocks that a worker remembers. If the caller keeps batches, their blocks stay
in use, and the worker forgets the oldest."""

Bytes = npt.NDArray[np.uint8]


class Block:
    """Shared memory of a worker."""

    def __init__(self, size: int) -> None:
        # share_memory_() of a tensor would write every page.
        storage = torch.UntypedStorage._new_shared(HEADER + size)
        self.tensor: Any = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
        self.size = size
        self._held = False
        self._counts = counts(self.tensor)
        self._counts[:] = 0

    def free(self) -> bool:
        """Report whether the memory is unused."""
        if self._held:  # checked first, because memory is counted as sent before its hold ends
            return False
        sent, returned = self._counts.tolist()
        return bool(sent == returned)

    def hold(self) -> Bytes:
        """Return the memory as an array. The block is held until this array and all its views are gone."""
        whole: Bytes = self.tensor.numpy()
        self._held = True
        _when_gone(whole, self._let_go)
        return whole[HEADER:]

    def _let_go(self) -> None:
        self._held = False

    def send(self) -> Any:
        """Count the block as sent, and return a tensor that the receiver passes to memory()."""
        self._counts[0] += 1
        return self.tensor

    def place(self, tensor: Any) -> int | None:
        """Return the offset of a tensor in the memory, or None if it is not part of it."""
        at = int(tensor.data_ptr()) - int(self.tensor.data_ptr()) - HEADER
        size = int(tensor.element_size())
        return at if 0 <= at and at + tensor.numel() * size <= self.size and at % size == 0 else None


_lock = threading.Lock()
_blocks: list[Block] = []


def borrow(size: int) -> tuple[Block, Bytes]:
    """Return a block of at least size bytes, and its memory. The block is held, see hold."""
    with _lock:
        free = [b for b in _blocks if b.free()]
        fits = [b for b in free if b.size >= size]
        if fits:
            block = min(fits, key=lambda b: b.size)
            _blocks.remove(block)
        else:
            # Replace a free block that is too small, or the oldest block if there are KEPT blocks.
            if free or len(_blocks) >= KEPT:
                _blocks.remove(free[0] if free else _blocks[0])
            block = Block(size + size // 4)
        _blocks.append(block)
        return block, block.hold()


def block_of(tensor: Any) -> tuple[Block, int] | None:
    """Return the block that contains a tensor and the tensor's offset, or None."""
    with _lock:
        return next(((b, at) for b in _blocks if (at := b.place(tensor)) is not None), None)


def memory(tensor: Any) -> Bytes:
    """Return the memory of a block that another process sent.

    The block counts as returned when this array and all its views, arrays or tensors, are gone.
    """
    whole: Bytes = tensor.numpy()
    _when_gone(whole, partial(_count_returned, counts(tensor)))
    return whole[HEADER:]


def counts(tensor: Any) -> npt.NDArray[np.int64]:
    """Return a block's counters sent and returned. torch's modes do not affect numpy's view."""
    out: npt.NDArray[np.int64] = tensor.numpy()[:16].view(np.int64)
    return out


def _count_returned(counts: npt.NDArray[np.int64]) -> None:
    counts[1] += 1


_watched: dict[int, Any] = {}
_numbers = itertools.count()


def _when_gone(array: Bytes, call: Callable[[], None]) -> None:
    """Call a function in this process once an array is gone."""
    number = next(_numbers)

    def gone() -> None:
        _watched.pop(number, None)
        call()

    _watched[number] = finalizer = weakref.finalize(array, gone)
    finalizer.atexit = False


def _before_fork() -> None:
    # The child can access the memory for an unknown time, so memory that is held now must never be
    # reused.
    for finalizer in list(_watched.values()):
        finalizer.detach()
    _watched.clear()


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()
    _blocks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
