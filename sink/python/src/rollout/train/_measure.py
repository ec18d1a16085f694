"""Recomputes the log-probabilities of rows with the caller's function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rollout._arrays import Floats, Ints, is_tensor, torch
from rollout._types import Row

LOWEST = -100.0
"""The lowest recomputed log-probability. Lower values are replaced with this value, so that
averages are finite."""

FEW = 20
"""No conclusion is drawn from fewer tokens than this."""

ROUNDED = 0.5
"""Rounding can raise a bfloat16 log-probability above 0, but not above this value. bfloat16
numbers between 32 and 64 are 0.25 apart."""

_MOST_LOGITS = 1 << 24
"""The maximum number of logits that are converted to float64 at a time. They take 128 MB."""


class OutOfRange(Exception):
    """The function accepts rows of this length, but not these ids."""


def _no_logprob(value: float, token: int, row: Row) -> ValueError:
    said = f"{value:.4g} at token {token} of sample {row['sample_key']}"
    return ValueError(f"logprob_fn: {said} is not a log-probability: is it a loss or a probability?")


class Function:
    """A wrapper for logprob_fn in any of its forms; see rollout.check."""

    def __init__(self, call: Callable[..., Any], vocabulary: int | None):
        self._call = call
        self.vocabulary = vocabulary
        try:
            self._has_temperature = "temperature" in inspect.signature(call).parameters
        except (TypeError, ValueError):
            self._has_temperature = False
        self.gives_logits = False

    @property
    def takes_temperature(self) -> bool:
        return self._has_temperature or self.gives_logits

    def __call__(self, row: Row, temperature: float = 1.0, shift: int = 0) -> Floats:
        """Return one log-probability per token in the row. The first is 0.

        If `shift` is not 0, each token gets the value of the token `shift` positions later, or
        NaN if there is no such token.
        """
        ids = np.array(row["input_ids"], np.int64)
        if self.vocabulary is not None and ids.max() >= self.vocabulary:
            raise OutOfRange(f"id {ids.max()} of sample {row['sample_key']} is not below vocabulary={self.vocabulary}")
        values = self._values(row, ids, temperature)
        if values.ndim == 2:
            if not self.gives_logits and _sum_to_one(values[:4]):
                raise ValueError("logprob_fn: the values of each token sum to 1, like probabilities: return logits or log-probabilities")
            self.gives_logits, self.vocabulary = True, int(values.shape[1])
            if ids.max() >= self.vocabulary:
                raise OutOfRange(f"id {ids.max()} of sample {row['sample_key']} is outside the {self.vocabulary} logits that logprob_fn returns per token")
            logprobs = _of_logits(values, ids, temperature, shift)
        else:
            if is_tensor(values):
                values = values.detach().to(device="cpu", dtype=torch.float64).numpy()
            values = np.array(values, np.float64)
            values[:1] = np.where(np.isnan(values[:1]), 0.0, values[:1])
            at = np.arange(len(ids)) + shift
            logprobs = np.where((at >= 0) & (at < len(ids)), values[np.clip(at, 0, len(ids) - 1)], np.nan)
        logprobs[0] = 0.0
        if shift == 0 and np.isnan(logprobs).any():
            where = int(np.flatnonzero(np.isnan(logprobs))[0])
            raise ValueError(f"logprob_fn: NaN at token {where} of sample {row['sample_key']}")
        if shift == 0 and np.isposinf(logprobs).any():
            raise _no_logprob(float("inf"), int(logprobs.argmax()), row)
        return np.maximum(logprobs, LOWEST)

    def logits(self, row: Row, at: Ints) -> Floats:
        """Return the logits for the tokens at the given positions in a row. logprob_fn must
        return logits."""
        values = self._values(row, np.array(row["input_ids"], np.int64), 1.0)[at - 1]
        return np.asarray(values.double().cpu().numpy() if is_tensor(values) else values, np.float64)

    def _values(self, row: Row, ids: Ints, temperature: float) -> Any:
        given = torch.from_numpy(ids) if torch is not None else ids
        more = {"temperature": temperature} if self._has_temperature else {}
        try:
            values = self._without_gradient(given, more)
        except IndexError as err:
            self._without_gradient(given * 0, more)  # if this call also fails, the ids are not the cause
            raise OutOfRange(
                f"logprob_fn accepts {len(ids)} zeros, but not the ids of sample {row['sample_key']} (up to {ids.max()}): {err}"
            ) from err
        values = values if is_tensor(values) else np.asarray(values)
        if values.ndim not in (1, 2) or values.shape[0] != len(ids):
            hint = "; put a 0 before the first value" if tuple(values.shape) == (len(ids) - 1,) else ""
            raise ValueError(f"logprob_fn returned shape {tuple(values.shape)} for {len(ids)} ids: want ({len(ids)},), or logits ({len(ids)}, V){hint}")
        return values

    def _without_gradient(self, ids: Any, more: dict[str, float]) -> Any:
        if torch is None:
            return self._call(ids, **more)
        with torch.no_grad():
            return self._call(ids, **more)


def _sum_to_one(values: Any) -> bool:
    """Report whether the values look like probabilities: they are at least 0 and below 1, and the
    values of each token sum to 1."""
    some = values.double().cpu().numpy() if is_tensor(values) else np.asarray(values, np.float64)
    return some.shape[1] > 1 and bool(((some >= 0) & (some < 1)).all() and (np.abs(some.sum(1) - 1) < 0.01).all())


def _of_logits(logits: Any, ids: Ints, temperature: float, shift: int) -> Floats:
    """Compute each token's log-probability from the logits at the previous position.

    The computation runs in steps to save memory.
    """
    step = max(1, _MOST_LOGITS // int(logits.shape[1]))
    out = np.full(len(ids), np.nan)
    first, last = max(1, 1 - shift), min(len(ids), len(ids) + 1 - shift)
    for a in range(first, last, step):
        b = min(a + step, last)
        some, these = logits[a - 1 + shift : b - 1 + shift], ids[a:b]
        if is_tensor(logits):
            some = some.double() / temperature
            picked = some.gather(1, torch.from_numpy(these[:, None]).to(some.device))[:, 0]
            out[a:b] = (picked - some.logsumexp(1)).cpu().numpy()
        else:
            some = np.asarray(some, np.float64) / temperature
            top = some.max(1)
            out[a:b] = some[np.arange(b - a), these] - top - np.log(np.exp(some - top[:, None]).sum(1))
    return out


@dataclass
class Tokens:
    """The sampled tokens of the measured rows. The arrays have one entry per token."""

    recorded: Floats = field(default_factory=lambda: np.zeros(0))
    recomputed: Floats = field(default_factory=lambda: np.zeros(0))
    span: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # number of the sampled span within its row
    position: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    role: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # -1: unknown
    version: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # -1: unknown
    # For each role, the number of tokens that were not sampled, and the sum of their recomputed
    # log-probabilities.
    context: dict[int, tuple[int, float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.recorded)


def measure(function: Function, rows: Iterable[Row]) -> Tokens:
    """Recompute the log-probabilities of all rows.

    Raises ValueError if more than 90 % of the values are 0 or positive and the highest value
    exceeds 0 by more than a rounding error. This check covers the values of all rows together,
    because a single short row proves nothing.
    """
    parts: dict[str, list[Any]] = {}
    total = Tokens()
    seen = positive = 0
    highest: tuple[float, int, Row] | None = None

    def look(least: int) -> None:
        if highest is not None and highest[0] > ROUNDED and seen >= least and positive > 0.9 * seen:
            raise _no_logprob(*highest)

    for row in rows:
        c = function(row)
        top = int(c.argmax())
        if highest is None or c[top] > highest[0]:
            highest = float(c[top]), top, row
        seen += len(c) - 1
        positive += int(np.count_nonzero(c[1:] >= 0))
        look(FEW)
        mask = sampled(row)
        at = np.flatnonzero(mask)
        versions, roles = row.get("versions"), _roles(row, len(c))
        found = {
            "recorded": np.asarray(row["logprobs"], np.float64)[at],
            "recomputed": c[at],
            "span": np.cumsum(np.diff(mask, prepend=False) & mask)[at] - 1,
            "position": at,
            "role": roles[at],
            "version": np.full(len(at), -1) if versions is None else np.asarray(versions, np.int64)[at],
        }
        for name, values in found.items():
            parts.setdefault(name, []).append(values)
        rest = ~mask
        rest[0] = False  # nothing predicts the first token
        for role in np.unique(roles[rest]).tolist():
            here = rest & (roles == role)
            n, s = total.context.get(role, (0, 0.0))
            total.context[role] = (n + int(here.sum()), s + float(c[here].sum()))
    look(1)
    for name, arrays in parts.items():
        setattr(total, name, np.concatenate(arrays))
    return total


def sampled(row: Row) -> npt.NDArray[np.bool_]:
    """Return a mask of the sampled tokens. It excludes the first token, because no logits predict
    this token."""
    mask: npt.NDArray[np.bool_] = np.asarray(row["loss_mask"]) != 0
    mask[:1] = False
    return mask


def _roles(row: Row, length: int) -> Ints:
    offsets, roles = row.get("turn_offsets"), row.get("turn_roles")
    if offsets is None or roles is None:
        return np.full(length, -1)
    return np.repeat(np.asarray(roles, np.int64), np.diff(np.asarray(offsets, np.int64)))
