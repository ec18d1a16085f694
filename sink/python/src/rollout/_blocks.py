"""Shared memory for batches on their way from workers, used again when they are gone.

New shared memory costs more than what is copied into it: each page is made, cleared and
mapped when it is first touched, in the worker and once more in the process that trains.
So a worker keeps its blocks, and lends them: to a collate, which writes a batch where it
will be sent from, or to what copies a batch that lies elsewhere.

A block is free when nothing in the worker refers to its memory and all that was sent of
it came back. Two words at its beginning count that: sent, which the worker writes, and
returned, which the process that trains writes when nothing refers to the batch any more.
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
"""Bytes at which arrays begin in it, so that every dtype is aligned."""
KEPT = 16
"""Blocks that a worker remembers. A caller that keeps batches keeps their blocks; the worker
then forgets the oldest."""

Bytes = npt.NDArray[np.uint8]


class Block:
    """Shared memory of a worker."""

    def __init__(self, size: int) -> None:
        # share_memory_() of a tensor would write every page of it.
        storage = torch.UntypedStorage._new_shared(HEADER + size)
        self.tensor: Any = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
        self.size = size
        self._held = False
        self._counts = counts(self.tensor)
        self._counts[:] = 0

    def free(self) -> bool:
        """Report whether nobody uses the memory."""
        if self._held:  # first: what is on its way is counted as sent before it is let go of
            return False
        sent, returned = self._counts.tolist()
        return bool(sent == returned)

    def hold(self) -> Bytes:
        """Return the memory, which is held until this array and all its views are gone."""
        whole: Bytes = self.tensor.numpy()
        self._held = True
        _when_gone(whole, self._let_go)
        return whole[HEADER:]

    def _let_go(self) -> None:
        self._held = False

    def send(self) -> Any:
        """Count the block as sent. Return its tensor, which the receiver passes to memory()."""
        self._counts[0] += 1
        return self.tensor

    def place(self, tensor: Any) -> int | None:
        """Return where in the memory a tensor begins, None where it is not a part of it."""
        at = int(tensor.data_ptr()) - int(self.tensor.data_ptr()) - HEADER
        size = int(tensor.element_size())
        return at if 0 <= at and at + tensor.numel() * size <= self.size and at % size == 0 else None


_lock = threading.Lock()
_blocks: list[Block] = []


def lend(size: int) -> tuple[Block, Bytes]:
    """Return a block of size bytes or more and its memory, which is held."""
    with _lock:
        free = [b for b in _blocks if b.free()]
        fits = [b for b in free if b.size >= size]
        if fits:
            block = min(fits, key=lambda b: b.size)
            _blocks.remove(block)
        else:
            # One that is free and too small makes room; or the oldest, if there are many.
            if free or len(_blocks) >= KEPT:
                _blocks.remove(free[0] if free else _blocks[0])
            block = Block(size + size // 4)
        _blocks.append(block)
        return block, block.hold()


def lent(tensor: Any) -> tuple[Block, int] | None:
    """Return the block that a tensor is a part of and where it begins, None where there is none."""
    with _lock:
        return next(((b, at) for b in _blocks if (at := b.place(tensor)) is not None), None)


def memory(tensor: Any) -> Bytes:
    """Return the memory of a block that another process has sent.

    It is returned when this array and all arrays and tensors that are views of it are gone.
    """
    whole: Bytes = tensor.numpy()
    _when_gone(whole, partial(_count_returned, counts(tensor)))
    return whole[HEADER:]


def counts(tensor: Any) -> npt.NDArray[np.int64]:
    """Return the counts of a block: sent, returned. torch's modes do not reach numpy's memory."""
    out: npt.NDArray[np.int64] = tensor.numpy()[:16].view(np.int64)
    return out


def _count_returned(counts: npt.NDArray[np.int64]) -> None:
    counts[1] += 1


_watched: dict[int, Any] = {}
_numbers = itertools.count()


def _when_gone(array: Bytes, call: Callable[[], None]) -> None:
    """Call a function once an array is gone, in this process."""
    number = next(_numbers)

    def gone() -> None:
        _watched.pop(number, None)
        call()

    _watched[number] = finalizer = weakref.finalize(array, gone)
    finalizer.atexit = False


def _before_fork() -> None:
    # The other process sees the memory as well, and nobody knows for how long: what is held now is never lent again.
    for finalizer in list(_watched.values()):
        finalizer.detach()
    _watched.clear()


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()
    _blocks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)


def in_worker() -> bool:
    """Report whether this process is a worker of a DataLoader."""
    return torch is not None and torch.utils.data.get_worker_info() is not None
