"""Conversions between numpy arrays and torch tensors. torch is optional."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

try:
    torch: Any = importlib.import_module("torch")
except ImportError:
    torch = None

__all__ = ["Bools", "Floats", "Ints", "give_back", "is_tensor", "to_numpy", "torch"]


def is_tensor(value: Any) -> bool:
    return torch is not None and isinstance(value, torch.Tensor)


def to_numpy(value: Any, name: str, dtype: Any, length: int | None = None) -> npt.NDArray[Any]:
    """Return an array or tensor as a numpy array with the given dtype. If length is given, the
    value must be a vector of that length; -1 allows any length."""
    if is_tensor(value):
        value = value.detach().cpu()
        if value.dtype == torch.bfloat16:
            value = value.float()
        value = value.numpy()
    try:
        raw = np.asarray(value)
        if raw.dtype.kind not in "biufO":
            raise TypeError(f"it contains {raw.dtype}")
        if np.issubdtype(dtype, np.integer) and raw.dtype.kind == "f" and not (raw == np.floor(raw)).all():
            raise TypeError("it must contain only integers")
        array = np.asarray(raw, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as err:
        raise ValueError(f"{name} is not an array of numbers: {err}") from err
    if length is not None and array.shape != (array.size if length < 0 else length,):
        raise ValueError(f"{name} has shape {array.shape}, want ({'B' if length < 0 else length},): one entry per row")
    return array


def give_back(array: npt.NDArray[Any], like: Any) -> Any:
    """If `like` is a tensor, return the array as a tensor on the same device. If the dtype of
    `like` is a float dtype, the returned tensor has the same dtype. If `like` is not a tensor,
    return the array unchanged."""
    if not is_tensor(like):
        return array
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.to(device=like.device, dtype=like.dtype if like.is_floating_point() else None)
