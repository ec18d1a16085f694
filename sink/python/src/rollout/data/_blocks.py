"""Shared memory for batches from workers. A worker reuses the memory of batches that are no longer
in use.

New shared memory costs more than the copy of a batch. The system creates and clears each page on
first access, and maps it once in the worker and once in the training process. So a worker reuses
its blocks. A batch from collate is written directly into a block. Other batches are copied into a
block.

A block begins with two counters. The worker increments the first counter when it sends the block.
The training process increments the second counter when it no longer uses the batch. A block is
free if the counters are equal and no object in the worker refers to the block's memory.
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
"""The number of bytes before the batch."""
ALIGN = 64
"""The alignment of arrays in a block, in bytes. It is sufficient for every dtype."""
KEPT = 16
"""The maximum number of blocks that a worker remembers. If the caller keeps batches, their blocks
stay in use, and the worker forgets the oldest blocks."""

Bytes = npt.NDArray[np.uint8]


class Block:
    """A block of shared memory that belongs to a worker."""

    def __init__(self, size: int) -> None:
        # tensor.share_memory_() would write every page.
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
        """Return the memory as an array. The block is in use until this array and all its views
        are deleted."""
        whole: Bytes = self.tensor.numpy()
        self._held = True
        _when_gone(whole, self._let_go)
        return whole[HEADER:]

    def _let_go(self) -> None:
        self._held = False

    def send(self) -> Any:
        """Count the block as sent. Return a tensor for the receiver, which must pass it to
        memory()."""
        self._counts[0] += 1
        return self.tensor

    def place(self, tensor: Any) -> int | None:
        """Return the offset of a tensor within the memory of this block, or None if the tensor is
        not in this block."""
        at = int(tensor.data_ptr()) - int(self.tensor.data_ptr()) - HEADER
        size = int(tensor.element_size())
        return at if 0 <= at and at + tensor.numel() * size <= self.size and at % size == 0 else None


_lock = threading.Lock()
_blocks: list[Block] = []


def borrow(size: int) -> tuple[Block, Bytes]:
    """Return a free block of at least `size` bytes, and its memory; see Block.hold."""
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
    """Return the block that contains a tensor, and the tensor's offset in it. Return None if no
    block contains the tensor."""
    with _lock:
        return next(((b, at) for b in _blocks if (at := b.place(tensor)) is not None), None)


def memory(tensor: Any) -> Bytes:
    """Return the memory of a block that another process sent.

    The block counts as returned when this array and all its views (arrays or tensors) are
    deleted.
    """
    whole: Bytes = tensor.numpy()
    _when_gone(whole, partial(_count_returned, counts(tensor)))
    return whole[HEADER:]


def counts(tensor: Any) -> npt.NDArray[np.int64]:
    """Return the two counters of a block. This is a numpy view, so that torch's modes do not
    affect it."""
    out: npt.NDArray[np.int64] = tensor.numpy()[:16].view(np.int64)
    return out


def _count_returned(counts: npt.NDArray[np.int64]) -> None:
    counts[1] += 1


_watched: dict[int, Any] = {}
_numbers = itertools.count()


def _when_gone(array: Bytes, call: Callable[[], None]) -> None:
    """Call a function when an array is deleted. A forked process does not call it."""
    number = next(_numbers)

    def gone() -> None:
        _watched.pop(number, None)
        call()

    _watched[number] = finalizer = weakref.finalize(array, gone)
    finalizer.atexit = False


def _before_fork() -> None:
    # The child process can use the current memory for an unknown time. So blocks that are in use
    # now must never be reused.
    for finalizer in list(_watched.values()):
        finalizer.detach()
    _watched.clear()


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()
    _blocks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
