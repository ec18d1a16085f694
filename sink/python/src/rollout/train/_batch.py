"""The class Batch, and the transfer of a batch from a worker to the training process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from rollout._arrays import is_tensor, torch
from rollout._process import worker
from rollout.data._blocks import ALIGN, Block, block_of, borrow, memory

SMALL = 1 << 15
"""Batches of up to this size in bytes are pickled, because that is cheaper than a block."""

Place = tuple[int, int, int, Any, tuple[int, ...]]
"""The place of a tensor: the number of its block, its offset, its size in bytes, its dtype and
its shape."""


class Batch(dict[str, Any]):
    """The result of rollout.collate: a dict of tensors by name, with the list "rows".

    A worker sends a batch as one block of shared memory. torch would send each tensor with its
    own file descriptor. This takes about 0.5 ms per tensor, and a batch has twenty tensors.
    Tensors that collate created in the worker are already in a block. Other tensors are copied.
    """

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        tensors = {name: value.resolve_conj().resolve_neg().contiguous() for name, value in self.items() if plain(value)}
        if not tensors:
            return Batch, (dict(self),)
        blocks: list[Block] = []
        places: dict[str, Place] = {}
        copied, end = [], 0
        for name, value in tensors.items():
            size = value.numel() * value.element_size()
            there = block_of(value)
            if there is None:
                copied.append(name)
                number, begin = -1, end
                end += -(-size // ALIGN) * ALIGN
            else:
                block, begin = there
                if block not in blocks:
                    blocks.append(block)
                number = blocks.index(block)
            places[name] = (number, begin, size, value.dtype, tuple(value.shape))
        pickled = end <= SMALL or worker() is None
        if pickled:
            room = np.empty(max(end, ALIGN), np.uint8)  # torch cannot view an empty array as another type
        else:
            block, room = borrow(end)
            blocks.append(block)
        whole = torch.from_numpy(room)
        for name in copied:
            _, begin, size, dtype, _ = places[name]
            whole[begin : begin + size].view(dtype).copy_(tensors[name].reshape(-1))
        memories = [block.send() for block in blocks] + ([room] if pickled else [])
        rest = {name: value for name, value in self.items() if name not in tensors}
        return _unpack, (memories, places, rest, list(self))

    def __copy__(self) -> Batch:
        return Batch(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Batch:
        return Batch(copy.deepcopy(dict(self), memo))


def plain(value: Any) -> bool:
    """Report whether a value is a dense numeric tensor on the CPU. Other tensors are sent by
    torch itself."""
    return is_tensor(value) and value.device.type == "cpu" and value.layout == torch.strided and not value.is_quantized


def _unpack(memories: list[Any], places: dict[str, Place], rest: dict[str, Any], order: list[str]) -> Batch:
    held = [torch.from_numpy(memory(m) if is_tensor(m) else m) for m in memories]
    batch = Batch()
    for name in order:
        if name in rest:
            batch[name] = rest[name]
        else:
            number, begin, size, dtype, shape = places[name]
            batch[name] = held[number][begin : begin + size].view(dtype).reshape(shape)
    return batch
