"""Causes of differences between recomputed and recorded log-probabilities. There is a test for
each cause. If no test identifies a cause, the cause is "unknown"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rollout._arrays import Floats
from rollout._types import Row
from rollout.train._measure import FEW, Function, Tokens, sampled
from rollout.train._truncation import explained, one_sided

BETTER = 4.0
"""An explanation must reduce the mean |Δ| by this factor. It must also bring the mean |Δ| within
the tolerance."""

_MOST_TOKENS = 2000
"""The approximate number of tokens for fitting a setting. The same number of tokens is used for
testing it."""

Finding = tuple[str, str]

_UNCUT = "Record the engine's log-probabilities from before the truncation (raw_logprobs), or sample with top_p 1, top_k -1 and min_p 0"


def diagnose(function: Function, rows: Sequence[Row], tokens: Tokens, tolerance: float, tests: dict[str, Any]) -> Finding:
    """Return the cause and a sentence that explains it. The result of each test is added to the
    dict `tests`."""
    if len(tokens) < FEW:
        return "unknown", f"{len(tokens)} sampled tokens are too few to find a cause: pass rows with at least {FEW} tokens in total"
    base = mean_difference(tokens.recomputed - tokens.recorded)
    for find in (_shift, _versions, _truncation, _temperature, _vocabulary, _distribution):
        finding = find(function, rows, tokens, base, tolerance, tests)
        if finding is not None:
            return finding
    return "unknown", _unknown(tokens, base, tolerance)


def mean_difference(delta: Floats) -> float:
    known = delta[~np.isnan(delta)]
    return float(np.abs(known).mean()) if len(known) else float("nan")


def is_off(delta: Floats, tolerance: float) -> bool:
    """Report whether the mean |Δ| exceeds the tolerance by more than three standard errors."""
    size = np.abs(delta)
    return len(size) >= FEW and bool(size.mean() - 3 * size.std() / np.sqrt(len(size)) > tolerance)


def _explains(value: float, base: float, tolerance: float) -> bool:
    return value <= tolerance and value * BETTER <= base


def _shift(function: Function, rows: Sequence[Row], _: Tokens, base: float, tolerance: float, tests: dict[str, Any]) -> Finding | None:
    """Test for the cause "shift": the recomputed values agree with the recorded values one
    position before or after."""
    found = None
    fit, rest = _halves(rows)
    some = fit if fit is rest else fit + rest
    what, how = ("logits", "the model's predictions after token") if function.gives_logits else ("values", "the log-probability of token")
    for shift in (-1, 1):
        deltas = np.concatenate([_deltas(function, row, shift=shift) for row in some])
        mean = tests[f"shift {shift:+d}"] = mean_difference(deltas)
        if np.count_nonzero(~np.isnan(deltas)) >= max(FEW, len(deltas) // 2) and _explains(mean, base, tolerance):
            at = f"i {'+' if shift < 0 else '-'} 1"
            found = "shift", f"shifted by one: the {what} at i are {how} {at} (mean |Δ| {base:.4g} as returned, {mean:.4g} after a shift by one)"
    return found


def _versions(_: Function, __: Sequence[Row], tokens: Tokens, base: float, tolerance: float, tests: dict[str, Any]) -> Finding | None:
    """Test for the cause "weights": tokens from some policy versions agree, and tokens from other
    versions do not."""
    good: list[int] = []
    bad: list[int] = []
    for version in np.unique(tokens.version[tokens.version >= 0]).tolist():
        delta = (tokens.recomputed - tokens.recorded)[tokens.version == version]
        if len(delta) < FEW:
            continue
        if is_off(delta, tolerance):
            bad.append(version)
        elif mean_difference(delta) <= tolerance:
            good.append(version)
    if good and bad:
        return "weights", f"other weights: tokens from {_named(good)} agree, but tokens from {_named(bad)} do not"
    tests["versions that agree"] = good or "none"
    return None


def _named(versions: Sequence[int]) -> str:
    shown = ", ".join(map(str, versions[:5])) + (", …" if len(versions) > 5 else "")
    return f"version{'s' if len(versions) > 1 else ''} {shown}"


def _truncation(function: Function, rows: Sequence[Row], tokens: Tokens, _: float, tolerance: float, tests: dict[str, Any]) -> Finding | None:
    """Test for the cause "truncation": the recorded values are too high because sampling was
    truncated. They agree with recomputed values after the same truncation."""
    delta = tokens.recomputed - tokens.recorded
    if not one_sided(delta):
        return None
    tests["one-sided"] = f"mean Δ {delta.mean():+.4g}, mean |Δ| {mean_difference(delta):.4g}"
    found = explained(function, *_halves(rows)) if delta.mean() < 0 and function.gives_logits else None
    if found is None:
        return None
    (name, value), before, after = found
    numbers = f"mean Δ {before.mean():+.4g} before, {after.mean():+.4g} after"
    tests["truncation"] = f"best {name} {value:g}, {numbers}"
    less = mean_difference(after) <= min(tolerance, mean_difference(before)) and abs(after.mean()) * BETTER <= abs(before.mean())
    if one_sided(after) or not less:
        return None
    return "truncation", f"truncation: the recorded values are renormalized over the tokens that {name} {value:g} keeps ({numbers}). {_UNCUT}"


def _unknown(tokens: Tokens, base: float, tolerance: float) -> str:
    delta = tokens.recomputed - tokens.recorded
    if base > BETTER * tolerance or not one_sided(delta):
        return "no test identifies a cause; the tables show where the difference is"
    if delta.mean() > 0:
        return f"one-sided: recomputed values are higher than recorded values by {delta.mean():.4g} on average; no test identifies a cause"
    return (
        f"one-sided: recomputed values are lower than recorded values by {-delta.mean():.4g} on average, as if an engine had renormalized "
        f"the recorded values after top_p, top_k or min_p. Return logits to identify the parameter. {_UNCUT}"
    )


def _temperature(function: Function, rows: Sequence[Row], _: Tokens, base: float, tolerance: float, tests: dict[str, Any]) -> Finding | None:
    """Test for the cause "temperature": the values agree at the recorded temperature of each row,
    or at one fitted temperature. The fitted temperature is tested on other rows."""
    if not function.takes_temperature:
        tests["temperature"] = "not tried: logprob_fn returns no logits and has no temperature parameter"
        return None
    fit, rest = _halves(rows)

    def difference(some: Sequence[Row], temperature: float) -> float:
        return mean_difference(np.concatenate([_deltas(function, r, temperature) for r in some]))

    recorded = [float(r.get("temperature") or 0) for r in rest]
    if min(recorded) > 0 and set(recorded) != {1.0}:
        own = mean_difference(np.concatenate([_deltas(function, r, t) for r, t in zip(rest, recorded)]))
        tests["temperature of the row"] = own
        if _explains(own, base, tolerance):
            return "temperature", ("temperature: the values agree at the recorded temperature of each row "
                                   f"(mean |Δ| {base:.4g} at 1, {own:.4g} at the recorded temperatures)")
    grid = np.geomspace(0.1, 4.0, 24)
    at = int(np.argmin([difference(fit, float(t)) for t in grid]))
    low, high = np.log(grid[max(at - 1, 0)]), np.log(grid[min(at + 1, len(grid) - 1)])
    ratio = (5**0.5 - 1) / 2  # for a golden-section search
    for _step in range(18):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        if difference(fit, float(np.exp(a))) < difference(fit, float(np.exp(b))):
            high = b
        else:
            low = a
    best = float(np.exp((low + high) / 2))
    mean = difference(rest, best)
    tests["temperature"] = f"best {best:.3g}, mean |Δ| {mean:.4g}"
    if abs(best - 1) > 0.01 and _explains(mean, base, tolerance):
        held = "" if fit is rest else ", measured on rows not used for the fit"
        return "temperature", f"temperature: the values agree at {best:.3g} (mean |Δ| {base:.4g} at 1, {mean:.4g} at {best:.3g}{held})"
    return None


def _halves(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Divide the rows into rows for fitting and rows for testing, with about 2,000 sampled tokens
    each. If there are too few rows for testing, both lists contain all rows."""
    halves: tuple[list[Row], list[Row]] = ([], [])
    had = [0, 0]
    for row in rows:
        side = 0 if had[0] <= had[1] else 1
        if had[side] < _MOST_TOKENS:
            halves[side].append(row)
            had[side] += np.count_nonzero(sampled(row))
    if had[1] < FEW:
        halves = (halves[0] + halves[1],) * 2
    return halves


def _deltas(function: Function, row: Row, temperature: float = 1.0, shift: int = 0) -> Floats:
    return np.asarray((function(row, temperature, shift) - np.asarray(row["logprobs"], np.float64))[sampled(row)])


def _vocabulary(function: Function, rows: Sequence[Row], tokens: Tokens, _: float, __: float, tests: dict[str, Any]) -> Finding | None:
    """Test for the cause "tokenizer": the model does worse than guessing on sampled tokens and on
    all other tokens.

    A model with different weights but the same vocabulary still does better than guessing.
    """
    size = function.vocabulary or 1 + max(int(np.max(r["input_ids"])) for r in rows)
    chance = -float(np.log(size))
    found = float(tokens.recomputed.mean())
    n, total = (sum(c) for c in zip((0, 0.0), *tokens.context.values()))
    context = total / n if n else float("nan")
    tests["chance"] = f"{chance:.2f} for {size} ids; sampled tokens {found:.2f}, context {context:.2f}"
    if n >= FEW and len(tokens) >= FEW and max(found, context) < chance - 0.5:
        return "tokenizer", (
            f"another tokenizer, or a model trained on very different text: the mean log-probability is {found:.2f} for sampled "
            f"tokens and {context:.2f} for context tokens, below a uniform guess among {size} ids ({chance:.2f})"
        )
    if n >= FEW and abs(found - chance) < 0.2 and abs(context - chance) < 0.2 and tokens.recomputed.std() < 0.5:
        return "weights", f"other weights: the log-probabilities are close to a uniform guess ({chance:.2f}), as from an untrained model"
    return None


def _distribution(function: Function, _: Sequence[Row], tokens: Tokens, __: float, ___: float, tests: dict[str, Any]) -> Finding | None:
    """Test for the cause "weights": the recomputed values come from a different distribution over
    the same tokens.

    If tokens are sampled from p, the mean of q/p is 1 for every distribution q over the same
    tokens in the same contexts. The deviations of q/p from 1 are then uncorrelated between
    tokens.
    """
    ratio = np.exp(np.minimum(tokens.recomputed - tokens.recorded, 50.0))
    n = len(ratio)
    mean, error = float(ratio.mean()), float(ratio.std(ddof=1) / np.sqrt(n)) if n > 1 else float("inf")
    tests["mean ratio"] = f"{mean:.4f} ± {error:.4f}"
    if n < 10 * FEW or error > 0.1 or abs(mean - 1) > 4 * error:
        return None
    what = "the values come from a different distribution over the same tokens (mean ratio of probabilities " + tests["mean ratio"] + ")"
    if not function.takes_temperature:
        return "unknown", f"{what}: other weights or another temperature; to distinguish them, add a temperature parameter to logprob_fn"
    return "weights", f"other weights, or the same weights run differently (adapter, precision, position ids): {what}, and no temperature explains it"
