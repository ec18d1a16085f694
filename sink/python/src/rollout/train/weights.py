"""Loss weights that make a sample with several rows count like a sample with one row."""

from __future__ import annotations

from typing import Any

import numpy as np

from rollout._args import one_of, real
from rollout._arrays import give_back, to_numpy

MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")


def loss_weights(
    tokens: Any,
    sample: Any,
    mode: str = "token-mean",
    *,
    scale: str = "sum",
    rows: int | None = None,
    samples: int | None = None,
    total_tokens: int | None = None,
) -> Any:
    """Return one weight per row, float64 [B]. The weights make a sample with several rows count
    like a sample with one row.

    A sample that was cut into segments has several rows. A loss that takes the mean over rows
    counts such a sample several times, and gives its short segments the same weight as its long
    segments. With these weights, the loss is the same as if each sample had one row. This is
    possible because every sampled token is trained on in exactly one row.

        tokens  int [B]   the number of sampled tokens in each row, batch["tokens"]: the sum of
                          the row's mask
        sample  int [B]   equal for the rows of one sample, batch["sample"]

    t is the number of sampled tokens in a row, T in all rows of its sample, and N in the batch. S
    is the number of samples with a sampled token, and B is the number of rows with a sampled token:

        mode                  scale="sum"   scale="mean"
        token-mean            1 / N         1
        seq-mean-token-mean   1 / (S * T)   B * t / (S * T)
        seq-mean-token-sum    1 / S         B / S

    scale="sum": the loss is sum(weight * mask * token loss), in one pass or summed over
    micro-batches. scale="mean": multiply the losses of a row by its weight. The trainer then
    takes its own mean over rows (seq-mean-…) or tokens (token-mean). The names of the modes, and
    the mean over rows with a sampled token, are from verl 0.9.1
    (verl/trainer/ppo/core_algos.py:1140, agg_loss). In TRL 1.16.0, the corresponding values of
    loss_type are dapo, grpo and dr_grpo, which also divides by a constant length
    (trl/trainer/grpo_trainer.py:3153).

    If the batch is split over ranks or steps, pass the totals over all parts: rows (B, the
    trainer's divisor), samples (S) and total_tokens (N). All segments of a sample must be in the
    same call. This is always so if the batch consists of whole groups.

    The result is a numpy array, or a float64 tensor on the device of tokens if tokens is a
    tensor. A row without a sampled token has weight 0.

    Raises ValueError if mode, scale or a shape is wrong.
    """
    one_of("mode", mode, MODES)
    one_of("scale", scale, ("sum", "mean"))
    for name, given in (("rows", rows), ("samples", samples), ("total_tokens", total_tokens)):
        real(name, given, none=True)
    t = to_numpy(tokens, "tokens", np.float64, -1)
    if not (np.isfinite(t) & (t >= 0)).all():
        raise ValueError("tokens: must be finite and ≥ 0")
    numbers, of_row = np.unique(to_numpy(sample, "sample", np.int64, len(t)), return_inverse=True)
    of_sample = np.bincount(of_row, t, len(numbers))
    b = np.count_nonzero(t) if rows is None else rows
    s = np.count_nonzero(of_sample) if samples is None else samples
    n = t.sum() if total_tokens is None else total_tokens
    for name, value in (("rows", b), ("samples", s), ("total_tokens", n)):
        if value < 1 and t.any():
            raise ValueError(f"{name}={value}: must be at least 1")
    whole = np.maximum(of_sample[of_row], 1)  # T in the docstring
    if mode == "token-mean":
        weight = np.full(len(t), 1.0 / max(n, 1) if scale == "sum" else 1.0)
    elif mode == "seq-mean-token-mean":
        weight = (1.0 if scale == "sum" else b * t) / (max(s, 1) * whole)
    else:
        weight = np.full(len(t), (1.0 if scale == "sum" else b) / max(s, 1))
    return give_back(np.where(t > 0, weight, 0.0), tokens)
