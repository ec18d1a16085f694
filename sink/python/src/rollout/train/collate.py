"""Batches of tensors from whole groups: padded, packed, or bucketed by length.

padded(), packed() and bucketed() each return a function from list[Group] to Batch. Pass this
function to Dataset.batches:

    batches = dataset.batches(8, collate=collate.padded(pad_id=0, null_reward="drop"))

The function can be pickled, which spawned workers require.

A Batch is a dict of torch tensors, or of numpy arrays if torch is not installed. The B rows are
ordered by group, sample and segment. However, packed() and bucketed() order rows by length. All
per-row entries are in the order of the rows. Tokens are not shifted or truncated.

Per row:

    reward          float64 [B]   NaN if the sample was not scored
    reward_known    bool [B]
    group           int64 [B]     index of the row's group in the list
    sample          int64 [B]     index of the row's sample in the batch
    group_size      int64 [B]     number of samples requested for the group
    absent          int64 [B]     number of samples with nothing to train on: failed, committed
                                  without a row, or not collected
    segment_index   int64 [B]     index of the row within its sample
    length          int64 [B]     number of tokens in the row
    tokens          int64 [B]     number of sampled tokens in the row: the sum of its loss_mask
    prompt_length   int64 [B]     number of tokens before the first sampled token
    versions_known  bool [B]
    rows            list of (sample_key, segment_index)
    dropped         int           number of samples that null_reward="drop" dropped, with all their
                                  rows

Per token, in the shape of the layout:

    input_ids       int64         pad_id on padding
    loss_mask       int8          1 if the policy sampled the token, 0 on padding
    logprobs        float32       log-probability of the token; 0.0 if its mask is 0
    versions        int32         policy version; -1 if not sampled, on padding, and in
                                  rows with unknown versions
    position_ids    int64         from 0 in each row; 0 on padding
    attention_mask  int64         1 on tokens, 0 on padding; not in packed()
    row_ids         int64         the row of each token, in a shape that broadcasts with
                                  the layout: advantage[row_ids] has one value per token
    routed_experts  int16 [..., layers, top_k]  experts of each token; -1 on padding and on
                                  tokens without experts. Missing if no row has them
    sampling_mask   int32 [..., M]  ids among which each token was sampled, followed by -1; only -1 on
                                  padding and on tokens without a mask. Missing if no row has them

dtypes={"loss_mask": "float32"} selects another dtype by its numpy name, unless it would
truncate an id, a version or a position.

A training loop iterates over micro_batches(batch), which works for every layout. The argument
null_reward controls what happens to samples without a reward. "error" (the default) raises an
error. "drop" drops all rows of the sample and counts the sample. "nan" keeps the sample with the
reward NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rollout._args import instance, integer, one_of
from rollout._arrays import to_numpy, torch
from rollout._types import Group
from rollout.train._batch import Batch
from rollout.train._layout import Flat, dtypes_of, fill, inside, per_row, select

__all__ = ["Batch", "Collate", "bucketed", "micro_batches", "packed", "padded"]

Collate = Callable[[Sequence[Group]], Batch]

_NULL = ("error", "drop", "nan")
_SIDES = ("right", "left", "split")


def padded(
    pad_id: int,
    side: str = "right",
    *,
    multiple_of: int = 1,
    null_reward: str = "error",
    dtypes: Mapping[str, Any] | None = None,
) -> Collate:
    """Return a function that makes one matrix [B, L]. L is the length of the longest row, rounded
    up to a multiple of `multiple_of`.

    The argument side selects where the padding is: "right", "left" or "split". With "split", as
    in verl and TRL, all prompts end and all responses begin at the same column, prompt_width (an
    int in the batch). input_ids[:, :prompt_width] then contains the prompts, padded on the left,
    and the other columns contain the responses, padded on the right.

    row_ids is [B, 1].
    """
    _token_id(pad_id)
    one_of("side", side, _SIDES)
    one_of("null_reward", null_reward, _NULL)
    integer("multiple_of", multiple_of, 1)
    return partial(_padded, pad_id, side, multiple_of, null_reward, dtypes_of(dtypes))


def _padded(
    pad_id: int, side: str, multiple_of: int, null_reward: str, dtypes: Mapping[str, str], groups: Sequence[Group]
) -> Batch:
    rows, batch = select(groups, null_reward)
    batch.update(per_row(rows))
    n, p = _lengths(rows)
    starts, width = _place(n, p, side, multiple_of)
    flat = Flat(len(rows) * width, pad_id, dtypes, attention=True)
    fill(flat, rows, starts + np.arange(len(rows)) * width)
    batch.update({name: _shape(values, (len(rows), width)) for name, values in flat.tensors().items()})
    more = inside(rows, starts + np.arange(len(rows)) * width, len(rows) * width)
    batch.update({name: values.reshape(len(rows), width, *values.shape[1:]) for name, values in more.items()})
    batch["row_ids"] = _shape(_give(np.arange(len(rows))), (len(rows), 1))
    if side == "split":
        batch["prompt_width"] = int(p.max(initial=0))
    return _known(batch)


def packed(
    max_tokens: int | None = None,
    *,
    order: str = "first-fit",
    longer: str = "error",
    null_reward: str = "error",
    dtypes: Mapping[str, Any] | None = None,
) -> Collate:
    """Return a function that joins rows without padding into packs of at most max_tokens tokens.
    If max_tokens is None, it makes one pack.

    The batch has one vector of all N tokens. micro_batches() cuts it into packs:

        cu_seqlens   int32 [B + 1]   start and end offsets of rows, from 0
        max_seqlen   int             number of tokens in the longest row
        pack_rows    int64 [P + 1]   the first row of each pack; not in the packs
        row_ids      int64 [N]       the row of each token

    cu_seqlens, max_seqlen and position_ids are arguments of variable-length attention
    (flash_attn_varlen_func). In a pack from micro_batches(), they are relative to the pack.

    order="first-fit" starts with the longest rows and puts each row into the first pack with room
    (first-fit decreasing: at most 11/9 of the minimum number of packs, plus 6/9). Rows of equal
    length keep the order of the batch. order="given" keeps the order of all rows, and starts a new
    pack when the next row does not fit. Both orders depend only on the lengths of the rows.

    The argument longer controls what happens to a row with more than max_tokens tokens. "error"
    raises an error. "own" puts the row into a separate pack, which exceeds max_tokens.
    """
    one_of("order", order, ("first-fit", "given"))
    one_of("null_reward", null_reward, _NULL)
    one_of("longer", longer, ("error", "own"))
    integer("max_tokens", max_tokens, 1, none=True)
    return partial(_packed, max_tokens, order, longer, null_reward, dtypes_of(dtypes))


def _packed(
    max_tokens: int | None, order: str, longer: str, null_reward: str, dtypes: Mapping[str, str], groups: Sequence[Group]
) -> Batch:
    rows, batch = select(groups, null_reward)
    n, _ = _lengths(rows)
    if max_tokens is not None and longer == "error":
        _fits(rows, n, max_tokens, "max_tokens", "longer='own'")
    packs = _packs(n, max_tokens, order)
    rows = [rows[i] for pack in packs for i in pack]
    batch.update(per_row(rows))
    n, _ = _lengths(rows)
    cu = np.concatenate(([0], np.cumsum(n)))
    if cu[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"{cu[-1]} tokens in one batch are too many for cu_seqlens, which is int32: use fewer groups")
    flat = Flat(int(cu[-1]), 0, dtypes, attention=False)
    fill(flat, rows, cu[:-1])
    batch.update(flat.tensors())
    batch.update(inside(rows, cu[:-1], int(cu[-1])))
    batch["row_ids"] = _give(np.repeat(np.arange(len(rows)), n))
    batch["cu_seqlens"] = _give(cu.astype(np.int32))
    batch["max_seqlen"] = int(n.max(initial=0))
    batch["pack_rows"] = _give(np.cumsum([0] + [len(pack) for pack in packs]))
    return _known(batch)


def bucketed(
    pad_id: int,
    edges: Sequence[int] | None = None,
    max_tokens: int | None = None,
    side: str = "right",
    *,
    longer: str = "error",
    null_reward: str = "error",
    dtypes: Mapping[str, Any] | None = None,
) -> Collate:
    """Return a function that sorts rows into buckets by length. Each bucket is a matrix that is
    padded to the edge of the bucket.

    A row is in the bucket of the smallest edge that is not less than the row's length. The
    default edges are the powers of two from 64. If max_tokens is given, a bucket is split into
    matrices. A matrix with more than one row has at most max_tokens tokens, including padding.
    micro_batches() yields the matrices [b, edge], in ascending order of their edges. The batch
    itself contains one vector per token entry, with all matrices concatenated. It also contains:

        bucket_rows    int64 [K + 1]   the first row of each matrix
        bucket_width   int64 [K]       the edge of each matrix

    So there is little padding, and there are at most as many widths as edges. side is "right" or
    "left". The argument longer controls what happens to a row that is longer than the last edge.
    "error" raises an error. "own" puts the row into a matrix as wide as the row.
    """
    _token_id(pad_id)
    one_of("side", side, _SIDES[:2])
    one_of("null_reward", null_reward, _NULL)
    one_of("longer", longer, ("error", "own"))
    integer("max_tokens", max_tokens, 1, none=True)
    limits = 2 ** np.arange(6, 31) if edges is None else np.unique(to_numpy(edges, "edges", np.int64, -1))
    if not len(limits) or limits[0] < 1:
        raise ValueError(f"edges={edges!r}: must be lengths of at least 1")
    return partial(_bucketed, pad_id, limits, max_tokens, side, longer, null_reward, dtypes_of(dtypes))


def _bucketed(
    pad_id: int,
    limits: npt.NDArray[np.int64],
    max_tokens: int | None,
    side: str,
    longer: str,
    null_reward: str,
    dtypes: Mapping[str, str],
    groups: Sequence[Group],
) -> Batch:
    rows, batch = select(groups, null_reward)
    n, _ = _lengths(rows)
    if longer == "error":
        _fits(rows, n, int(limits[-1]), "edges", "longer='own'")
    at = np.searchsorted(limits, n)
    width = np.where(at < len(limits), limits[np.minimum(at, len(limits) - 1)], n)
    order = np.argsort(width, kind="stable")
    rows, n, width = [rows[i] for i in order], n[order], width[order]
    batch.update(per_row(rows))
    first = [0] if len(rows) else []
    for i in range(1, len(rows)):
        full = max_tokens is not None and (i - first[-1] + 1) * width[i] > max_tokens
        if width[i] != width[i - 1] or full:
            first.append(i)
    begins = np.concatenate(([0], np.cumsum(width)))
    flat = Flat(int(begins[-1]), pad_id, dtypes, attention=True)
    starts = begins[:-1] + (width - n if side == "left" else 0)
    fill(flat, rows, starts)
    batch.update(flat.tensors())
    batch.update(inside(rows, starts, int(begins[-1])))
    batch["row_ids"] = _give(np.repeat(np.arange(len(rows)), width))
    batch["bucket_rows"] = _give(np.asarray(first + [len(rows)], np.int64))
    batch["bucket_width"] = _give(width[first].astype(np.int64))
    return _known(batch)


def micro_batches(batch: Batch) -> Iterator[Batch]:
    """Yield the inputs for the model, one per forward pass: packs, the matrices of buckets, or
    the padded batch itself. Yield nothing if the batch has no rows.

    The per-token tensors are views of the batch. The per-row entries remain in the batch, and
    row_ids contains the indexes of its rows:

        for micro in collate.micro_batches(batch):
            advantage = advantages[micro["row_ids"]]   # broadcasts with micro["logprobs"]
    """
    instance("batch", batch, dict, "a batch from a collate function")
    if "pack_rows" in batch:
        first, cu = batch["pack_rows"].tolist(), batch["cu_seqlens"]
        for a, b in zip(first, first[1:]):
            begin, end = int(cu[a]), int(cu[b])
            micro = Batch({name: batch[name][begin:end] for name in _PER_TOKEN if name in batch})
            micro["cu_seqlens"] = cu[a : b + 1] - begin
            micro["max_seqlen"] = int(batch["length"][a:b].max())
            yield micro
    elif "bucket_rows" in batch:
        first, begin = batch["bucket_rows"].tolist(), 0
        for a, b, width in zip(first, first[1:], batch["bucket_width"].tolist()):
            end = begin + (b - a) * width
            yield Batch({name: _shape(batch[name][begin:end], (b - a, width, *batch[name].shape[1:])) for name in _PER_TOKEN if name in batch})
            begin = end
    elif batch["rows"]:
        yield batch


_PER_TOKEN = ("input_ids", "loss_mask", "logprobs", "versions", "position_ids", "attention_mask", "routed_experts", "sampling_mask", "row_ids")


def _token_id(pad_id: Any) -> None:
    if isinstance(pad_id, bool) or not isinstance(pad_id, (int, np.integer)):
        raise TypeError(f"pad_id={pad_id!r}: must be a token id; if the model has no pad_token_id, use 0, because padding is masked")
    if pad_id < 0:
        raise ValueError(f"pad_id={pad_id!r}: must be ≥ 0, because models embed this id; "
                         "padding has loss_mask 0, so use 0 instead of -100")


def _fits(rows: Sequence[Any], n: Any, limit: int, name: str, other: str) -> None:
    if len(n) and n.max() > limit:
        row = rows[int(n.argmax())]
        raise ValueError(
            f"row {row['segment_index']} of sample {row['sample_key']} has {n.max()} tokens, but {name} allows {limit}: "
            f"raise {name}, pass {other}, or filter by length in the dataset"
        )


def _lengths(rows: Sequence[Any]) -> tuple[Any, Any]:
    """For each row, return the number of tokens, and the number of tokens before the first
    sampled token."""
    n = np.fromiter((len(r["input_ids"]) for r in rows), np.int64, len(rows))
    return n, np.fromiter((r["prompt_length"] for r in rows), np.int64, len(rows))


def _place(n: Any, p: Any, side: str, multiple_of: int) -> tuple[Any, int]:
    """Return the column at which each row starts, and the width of the matrix."""
    before = p.max(initial=0) - p if side == "split" else np.zeros_like(n)
    width = -(-int((before + n).max(initial=0)) // multiple_of) * multiple_of
    return (width - n if side == "left" else before), width


def _packs(n: Any, max_tokens: int | None, order: str) -> list[list[int]]:
    if max_tokens is None:
        return [list(range(len(n)))] if len(n) else []
    packs: list[list[int]] = []
    room: list[int] = []
    for i in np.argsort(-n, kind="stable").tolist() if order == "first-fit" else range(len(n)):
        length = int(n[i])
        from_ = 0 if order == "first-fit" else max(len(room) - 1, 0)
        at = next((k for k in range(from_, len(room)) if room[k] >= length), None)
        if at is None:
            packs.append([])
            room.append(max_tokens)
            at = len(packs) - 1
        packs[at].append(i)
        room[at] -= length
    return packs


def _give(values: Any) -> Any:
    return values if torch is None else torch.from_numpy(np.ascontiguousarray(values))


def _shape(values: Any, shape: tuple[int, ...]) -> Any:
    return values.reshape(shape)


def _known(batch: dict[str, Any]) -> Batch:
    """Return a Batch in which the per-row arrays are tensors."""
    return Batch({name: _give(v) if isinstance(v, np.ndarray) else v for name, v in batch.items()})
