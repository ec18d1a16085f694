"""Log-probabilities of a distribution that was truncated by top_p, top_k or min_p and then
renormalized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rollout._arrays import Floats
from rollout._types import Row
from rollout.train._measure import Function, sampled

SIDED = 0.25
"""Δ is one-sided if the mean of Δ is at least this fraction of the mean |Δ|. Noise is positive or
negative, so it cancels out in the mean of Δ."""
LEAST = 1e-4
"""Δ is one-sided only if the absolute mean Δ exceeds this value. float32 engines agree to this
precision."""
ERRORS = 6.0
"""Δ is one-sided only if the mean Δ is more than this number of standard errors from 0."""
SEEN = 40
"""Δ is one-sided only if there are at least this many tokens."""

_MOST_TOKENS = 2000
_MOST_LOGITS = 1 << 25

TOP_P = tuple(np.round([*np.arange(0.5, 0.995, 0.005), 0.995, 0.996, 0.997, 0.998, 0.999], 4).tolist())
TOP_K = (*range(1, 101), 128, 150, 200, 250, 256, 500, 512, 1000, 1024)
MIN_P = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)

Setting = tuple[str, float]


def one_sided(delta: Floats) -> bool:
    """Report whether the mean of Δ is farther from 0 than noise can explain."""
    if len(delta) < SEEN:
        return False
    mean, error = abs(float(delta.mean())), float(delta.std()) / np.sqrt(len(delta))
    return bool(mean > max(SIDED * float(np.abs(delta).mean()), LEAST, ERRORS * error))


def settings(rows: Sequence[Row]) -> list[Setting]:
    """Return the settings to try. They include the settings that were recorded in the rows."""
    out: list[Setting] = [("top_p", p) for p in TOP_P] + [("top_k", k) for k in TOP_K] + [("min_p", m) for m in MIN_P]
    for name, low, high in (("top_p", 0.0, 1.0), ("top_k", 1.0, np.inf)):
        said = {float(row.get(name) or 0) for row in rows}
        out += [(name, value) for value in sorted(said) if low < value < high and (name, value) not in out]
    return out


def explained(function: Function, fit: Sequence[Row], rest: Sequence[Row]) -> tuple[Setting, Floats, Floats] | None:
    """Find the setting that agrees best with the rows in `fit`. Return this setting, and Δ on the
    rows in `rest` without and with the setting."""
    tried = settings([*fit, *rest])
    before, after = _deltas(function, fit, tried)
    if not len(before):
        return None
    best = int(np.argmin(np.abs(after).mean(0)))
    before, after = _deltas(function, rest, tried[best : best + 1])
    return (tried[best], before, after[:, 0]) if len(before) else None


def _deltas(function: Function, rows: Sequence[Row], tried: Sequence[Setting]) -> tuple[Floats, Floats]:
    """Return two arrays for a sample of the tokens: Δ without a setting [n], and Δ with each
    setting [n, settings]."""
    before: list[Floats] = []
    after: list[Floats] = []
    left = int(min(_MOST_TOKENS, max(SEEN, _MOST_LOGITS // max(1, function.vocabulary or 1))))
    for row in rows:
        at = np.flatnonzero(sampled(row))[:left]
        if not len(at):
            continue
        left -= len(at)
        logits = function.logits(row, at)
        logits = logits - logits.max(1, keepdims=True)
        own = logits[np.arange(len(at)), np.asarray(row["input_ids"])[at]]
        ordered = -np.sort(-logits, 1)
        p = np.exp(ordered)
        mass = np.cumsum(p, 1)
        recomputed = own - np.log(mass[:, -1])
        kept = np.stack([_kept(p[i] / mass[i, -1], mass[i] / mass[i, -1], tried) for i in range(len(at))])
        cut = recomputed[:, None] - np.log(np.take_along_axis(mass, kept - 1, 1) / mass[:, -1:])
        recorded = np.asarray(row["logprobs"], np.float64)[at]
        before.append(recomputed - recorded)
        after.append(cut - recorded[:, None])
    if not before:
        return np.zeros(0), np.zeros((0, len(tried)))
    return np.concatenate(before), np.concatenate(after)


def _kept(p: Floats, mass: Floats, tried: Sequence[Setting]) -> Any:
    """For each setting, return how many of a token's probabilities it keeps. The probabilities
    are in descending order."""
    value = np.array([v for _, v in tried])
    name = np.array([n for n, _ in tried])
    top_p, min_p = np.searchsorted(mass, value - 1e-9) + 1, np.searchsorted(-p, -value * p[0], side="right")
    return np.clip(np.select([name == "top_p", name == "min_p"], [top_p, min_p], value.astype(np.int64)), 1, len(p))
