"""The dict of a batch, and its way from a worker to the process that trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rollout._arrays import is_tensor, torch
from rollout._blocks import ALIGN, HEADER, lend, memory


class Batch(dict[str, Any]):
    """What the functions of rollout.collate make: tensors by name, and the list rows.

    It is pickled as one block of memory that the tensors are views of: torch sends each
    tensor with a file descriptor of its own, some half a millisecond each, and a batch
    has twenty.
    """

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        tensors = {name: value.contiguous() for name, value in self.items() if is_tensor(value) and value.device.type == "cpu"}
        if not tensors:
            return Batch, (dict(self),)
        places, end = {}, 0
        for name, value in tensors.items():
            size = value.numel() * value.element_size()
            places[name] = (end, size, value.dtype, tuple(value.shape))
            end += -(-size // ALIGN) * ALIGN
        block = lend(end)
        for name, value in tensors.items():
            begin, size, _, _ = places[name]
            block[HEADER + begin : HEADER + begin + size].view(value.dtype).copy_(value.reshape(-1))
        rest = {name: value for name, value in self.items() if name not in tensors}
        return _unpack, (block, places, rest, list(self))


def _unpack(block: Any, places: dict[str, tuple[int, int, Any, tuple[int, ...]]], rest: dict[str, Any], order: list[str]) -> Batch:
    batch, held = Batch(), memory(block)
    for name in order:
        if name in rest:
            batch[name] = rest[name]
        else:
            begin, size, dtype, shape = places[name]
            batch[name] = torch.from_numpy(held[begin : begin + size]).view(dtype).reshape(shape)
    return batch
