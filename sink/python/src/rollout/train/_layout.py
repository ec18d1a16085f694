"""Copies the rows of groups into arrays. Each array is allocated once, at its final size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rollout._args import instance
from rollout._arrays import torch
from rollout._process import worker
from rollout._types import Group
from rollout.data._blocks import ALIGN, borrow

# For each entry, its dtype and its padding value. None stands for pad_id.
_TOKENS: dict[str, tuple[str, int | None]] = {
    "input_ids": ("int64", None),
    "loss_mask": ("int8", 0),
    "logprobs": ("float32", 0),
    "versions": ("int32", -1),
    "position_ids": ("int64", 0),
    "attention_mask": ("int64", 0),
}
# The dtypes that do not truncate any value of an entry. For example, id 151,645 in int16 would be
# another token.
_INTS = ("int32", "int64")
_WIDE: dict[str, tuple[str, ...]] = {"input_ids": _INTS, "versions": _INTS, "position_ids": _INTS, "logprobs": ("float16", "float32", "float64")}
_NEEDED = ("sample_key", "segment_index", "input_ids", "loss_mask", "logprobs", "prompt_length", "reward")
_INSIDE = ("routed_experts", "sampling_mask", "sampling_mask_lengths")
_USED = (*_NEEDED, "versions", *_INSIDE)


def select(groups: Sequence[Group], null_reward: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows to collate, and a dict with the batch entries that are already known.

    Each row gets the members _group, _sample, _group_size, _absent and _reward.
    """
    rows: list[dict[str, Any]] = []
    dropped: set[tuple[int, str]] = set()
    numbers: dict[tuple[int, str], int] = {}
    for group in groups:
        instance("groups", group, Group, "a list of groups from a Dataset")
        for name in _NEEDED:
            if any(name not in row for row in group.rows):
                raise ValueError(f"group {group.id}: its rows have no column {name}, which collate needs: add it to columns=")
    if null_reward == "drop":  # before selecting rows, because whole samples are dropped
        dropped = {(g, r["sample_key"]) for g, group in enumerate(groups) for r in group.rows if unscored(r)}
    for g, group in enumerate(groups):
        absent = group.failed + group.empty + group.missing
        for row in group.rows:
            key = (g, row["sample_key"])
            if key in dropped:
                continue
            reward = row["reward"]
            if unscored(row):
                if null_reward == "error":
                    raise ValueError(
                        f"group {group.id}: sample {row['sample_key']} has no reward: pass null_reward='drop' to drop "
                        "such samples, or null_reward='nan' to keep them"
                    )
                reward = np.nan
            number = numbers.setdefault(key, len(numbers))
            used = {name: row[name] for name in _USED if name in row}
            rows.append({**used, "_group": g, "_sample": number, "_group_size": group.size, "_absent": absent, "_reward": reward})
    return rows, {"dropped": len(dropped)}


def unscored(row: dict[str, Any]) -> bool:
    """Report whether the row has no reward: None, or NaN if a program set it."""
    return row["reward"] is None or row["reward"] != row["reward"]


def per_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the per-row entries of a batch as numpy arrays. The entry "rows" is a list."""

    def ints(name: str) -> Any:
        return np.fromiter((r[name] for r in rows), np.int64, len(rows))

    reward = np.fromiter((r["_reward"] for r in rows), np.float64, len(rows))
    return {
        "reward": reward,
        "reward_known": ~np.isnan(reward),
        "group": ints("_group"),
        "sample": ints("_sample"),
        "group_size": ints("_group_size"),
        "absent": ints("_absent"),
        "segment_index": ints("segment_index"),
        "length": np.fromiter((len(r["input_ids"]) for r in rows), np.int64, len(rows)),
        "tokens": np.fromiter((np.count_nonzero(r["loss_mask"]) for r in rows), np.int64, len(rows)),
        "prompt_length": ints("prompt_length"),
        "versions_known": np.fromiter((r.get("versions") is not None for r in rows), np.bool_, len(rows)),
        "rows": [(r["sample_key"], int(r["segment_index"])) for r in rows],
    }


class Flat:
    """The per-token entries of a batch. Each entry is a vector for n tokens. fill() writes the
    values.

    Values are written through numpy, which copies each value once and converts it to the dtype of
    the vector. In a worker, the vectors are in a block of shared memory, which is later sent.
    """

    def __init__(self, n: int, pad_id: int, dtypes: Mapping[str, str], attention: bool):
        kinds = {name: np.dtype(dtypes[name]) for name in _TOKENS if attention or name != "attention_mask"}
        self.arrays: dict[str, Any]
        self.padding = {name: pad_id if value is None else value for name, (_, value) in _TOKENS.items()}
        if worker() is None:
            self.arrays = {name: _empty(n, kind) for name, kind in kinds.items()}
            return
        begins = np.cumsum([0, *(-(-n * kind.itemsize // ALIGN) * ALIGN for kind in kinds.values())]).tolist()
        _, room = borrow(begins[-1])
        self.arrays = {name: room[at : at + n * kind.itemsize].view(kind) for (name, kind), at in zip(kinds.items(), begins, strict=False)}

    def tensors(self) -> dict[str, Any]:
        return self.arrays if torch is None else {name: torch.from_numpy(a) for name, a in self.arrays.items()}


def _empty(n: int, kind: np.dtype[Any]) -> Any:
    """Allocate an array. If torch is installed, it allocates the array with the alignment that
    its kernels prefer."""
    return np.empty(n, kind) if torch is None else torch.empty(n, dtype=getattr(torch, kind.name), device="cpu").numpy()


def dtypes_of(given: Mapping[str, Any] | None) -> dict[str, str]:
    """Check the given dtypes, and return the dtype of each per-token entry."""
    instance("dtypes", given, Mapping, "a dict of dtypes by name", none=True)
    unknown = sorted(map(str, set(given or ()) - set(_TOKENS)))
    if unknown:
        raise ValueError(f"dtypes: {unknown[0]!r} is not one of {', '.join(_TOKENS)}")
    return {name: _dtype(name, (given or {}).get(name, dtype)) for name, (dtype, _) in _TOKENS.items()}


def _dtype(name: str, dtype: Any) -> str:
    """Return the name of a dtype. Both numpy and torch must have this dtype. torch dtypes are
    accepted."""
    try:
        word = np.dtype(str(dtype).removeprefix("torch.")).name
    except TypeError:
        word = ""
    if not word or (torch is not None and not hasattr(torch, word)):
        raise ValueError(f"dtypes: {name}: {dtype!r} is not a dtype of both numpy and torch, such as 'int32', 'bool', 'float32'")
    if word not in _WIDE.get(name, (word,)):
        raise ValueError(f"dtypes: {dtype!r} cannot hold every value of {name}: must be one of {', '.join(_WIDE[name])}")
    return word


def fill(flat: Flat, rows: Sequence[dict[str, Any]], starts: Any) -> None:
    """Copy each row to the position in `starts`, and fill the gaps with padding. The starts must
    be ascending, and the rows must not overlap."""
    longest = max((len(r["input_ids"]) for r in rows), default=0)
    positions = np.arange(longest)
    end = 0
    for row, start in zip(rows, starts.tolist()):
        n = len(row["input_ids"])
        for name, array in flat.arrays.items():
            array[end:start] = flat.padding[name]
            here = array[start : start + n]
            if name == "position_ids":
                here[:] = positions[:n]
            elif name == "attention_mask":
                here[:] = 1
            else:
                values = row.get(name)
                if values is None:  # unknown versions get the padding value
                    values = flat.padding[name]
                elif len(values) != n:
                    raise ValueError(f"sample {row['sample_key']}: {len(values)} values of {name} for {n} input_ids")
                here[:] = values
        end = start + n
    for name, array in flat.arrays.items():
        array[end:] = flat.padding[name]


def inside(rows: Sequence[dict[str, Any]], starts: Any, n: int) -> dict[str, Any]:
    """Return the optional entries that have several values per token, for n tokens. They are missing
    if no row has the column."""
    out: dict[str, Any] = {}
    experts = [row.get("routed_experts") for row in rows]
    shapes = sorted({e.shape[1:] for e in experts if e is not None})
    if len(shapes) > 1:
        raise ValueError(f"routed_experts: rows of runs with different shapes in one batch: {shapes[0]} and {shapes[1]}")
    if shapes:
        all_experts = out["routed_experts"] = np.full((n, *shapes[0]), -1, np.int16)
        for e, start in zip(experts, starts.tolist()):
            if e is not None:
                all_experts[start : start + len(e)] = e
    known: list[tuple[Any, Any, int]] = [
        (row["sampling_mask"], row["sampling_mask_lengths"], start)
        for row, start in zip(rows, starts.tolist())
        if row.get("sampling_mask_lengths") is not None
    ]
    if known:
        all_masks = out["sampling_mask"] = np.full((n, max(int(lengths.max(initial=0)) for _, lengths, _ in known)), -1, np.int32)
        for ids, lengths, start in known:
            token = np.repeat(np.arange(len(lengths)), lengths)
            first = np.cumsum(lengths) - lengths
            all_masks[start + token, np.arange(len(ids)) - first[token]] = ids
    return out
