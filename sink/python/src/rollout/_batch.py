"""The dict of a batch, and its way from a worker to the process that trains."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from rollout._arrays import is_tensor, torch
from rollout._blocks import ALIGN, Block, in_worker, lend, lent, memory

SMALL = 1 << 15
"""Bytes that are cheaper in the pickle than in a block of their own."""

Place = tuple[int, int, int, Any, tuple[int, ...]]
"""Of a tensor: the number of its memory, its begin there, its bytes, dtype and shape."""


class Batch(dict[str, Any]):
    """What the functions of rollout.collate make: tensors by name, and the list rows.

    A worker sends it as a block of shared memory that the tensors are views of: torch
    sends each tensor with a file descriptor of its own, some half a millisecond each, and
    a batch has twenty. What collate made in the worker lies in a block already, the rest
    is copied.
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
            there = lent(value)
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
        pickled = end <= SMALL or not in_worker()
        if pickled:
            room = np.empty(max(end, ALIGN), np.uint8)  # torch views no type in an empty one
        else:
            block, room = lend(end)
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
    """Report whether a value is a tensor of numbers in memory; torch knows how to send the others."""
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
