"""Compares the log-probabilities in a run with the log-probabilities from the trainer's model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rollout._args import integer, real
from rollout._arrays import Floats, Ints
from rollout._types import Group, Row
from rollout.data.dataset import Dataset
from rollout.runs.select import Where
from rollout.train._causes import diagnose, is_off
from rollout.train._measure import FEW, Function, OutOfRange, Tokens, measure, sampled
from rollout.train._truncation import one_sided

_NEEDED = ("sample_key", "segment_index", "input_ids", "loss_mask", "logprobs")
ROLES = {-1: "unknown", 0: "prompt", 1: "assistant", 2: "tool", 3: "user"}


@dataclass(frozen=True)
class Line:
    """Statistics of |Δ| over some of the sampled tokens. Δ is the recomputed minus the recorded
    log-probability, in nats."""

    name: str
    tokens: int
    mean: float
    p99: float
    max: float
    bias: float
    """The mean of Δ, with its sign."""
    off: bool = False
    """True if the mean exceeds the tolerance by more than three standard errors over at least 20
    tokens, or if Δ is one-sided. Δ is one-sided if there are at least 40 tokens and |bias|
    exceeds three limits: a quarter of the mean, 1e-4, and six standard errors."""


@dataclass(frozen=True)
class Report:
    """The result of check. str() formats it as a table."""

    ok: bool
    """True if the mean |Δ| is within the tolerance and no line is off."""
    cause: str
    """One of none, shift, truncation, temperature, tokenizer, weights, random and unknown."""
    message: str
    """A sentence that explains the cause, with the numbers that show it."""
    tolerance: float
    rows: int
    total: Line
    by_span: list[Line] = field(default_factory=list)
    """One line per number of the sampled span. The spans in a row are numbered from 0."""
    by_position: list[Line] = field(default_factory=list)
    """One line per range of token positions in the row. The ranges end at powers of two."""
    by_role: list[Line] = field(default_factory=list)
    """One line per role in turn_roles. Only sampled tokens are covered, so there is usually one
    line."""
    by_version: list[Line] = field(default_factory=list)
    """One line per policy version, and the line "unknown" for tokens without a version."""
    context: dict[str, tuple[int, float]] = field(default_factory=dict)
    """For each role, the number of tokens that were not sampled and the mean of their recomputed
    log-probabilities. These tokens have no recorded values to compare with."""
    tests: dict[str, Any] = field(default_factory=dict)
    """The results of the tests that were run to find the cause, by name."""

    def __str__(self) -> str:
        lines = [f"{'ok' if self.ok else 'NOT ok'}: {self.message}"]
        lines.append(f"{'':14}{'tokens':>9} {'mean |Δ|':>9} {'p99':>9} {'max':>9} {'mean Δ':>9}")
        tables = [("", [self.total]), ("span", self.by_span), ("position", self.by_position), ("role", self.by_role), ("version", self.by_version)]
        for title, table in tables:
            if title and table:
                lines.append(title)
            for t in table:
                lines.append(f"  {t.name:12}{t.tokens:>9} {t.mean:>9.4g} {t.p99:>9.4g} {t.max:>9.4g} {t.bias:>+9.2g}{' <' if t.off else ''}")
        if self.context:
            lines.append("context       " + ", ".join(f"{role} {n} tokens with mean {mean:.3g}" for role, (n, mean) in self.context.items()))
        lines += [f"tried         {name}: {_short(value)}" for name, value in self.tests.items()]
        return "\n".join(lines)


def check(
    logprob_fn: Callable[..., Any],
    run: Any,
    *,
    rows: int = 100,
    seed: int = 0,
    tolerance: float = 0.05,
    vocabulary: int | None = None,
) -> Report:
    """Recompute the log-probabilities of sampled tokens and compare them with the values that the
    engine reported. If they differ, find the cause.

    run is the folder of a run, a list of folders, a Dataset, or an iterable of Group. Whole
    groups are drawn at random until they have at least `rows` rows. The argument seed determines
    which groups are drawn.

    logprob_fn is called without gradients. Its argument contains the ids of one row: an int64
    tensor [T] on the CPU, or a numpy array if torch is not installed. It must return one of:

        [T]     log-probabilities: entry i is for token i, given the tokens before it.
                Entry 0 is ignored, because nothing predicts the first token.
        [T, V]  logits: entry i is the prediction after token i, as returned by a causal
                language model from the transformers library.

        def logprob_fn(ids):
            return model(ids[None].to(model.device)).logits[0]

    If logprob_fn returns logits, check can try other temperatures. If it returns log-probabilities,
    check can do so only if logprob_fn has a parameter temperature=1.0 and divides the logits by it.
    vocabulary is the number of ids that the model knows. It is not needed if logprob_fn returns
    logits.

    The following table lists the causes and their tests. If no test identifies the cause, the
    cause is "unknown".

        none         the mean |Δ| over all tokens is within the tolerance (in nats); no
                     span, position, role or version exceeds the tolerance by three
                     standard errors; and Δ is not one-sided in any of them
        random       recomputing the same row returns different values
        shift        the values agree with the tokens one position before or after
        truncation   the recorded values are higher, and agree with values renormalized
                     over the tokens that one top_p, top_k or min_p keeps; needs logits
        temperature  the values agree at the temperature that was recorded for each row, or
                     at one temperature that is fitted on some rows and tested on others
        tokenizer    an id is outside the model's vocabulary; or the model does worse than
                     guessing on sampled tokens and on all other tokens
        weights      tokens of some policy versions agree and tokens of other versions do
                     not; or the log-probabilities match a uniform guess; or the
                     mean ratio of recomputed to recorded probabilities is 1, as for any
                     distribution over the same tokens, and no temperature explains Δ

    An explanation must bring the mean |Δ| within the tolerance and reduce it to a quarter, over
    at least 20 tokens. With fewer tokens, only the causes random and tokenizer can be found. The
    default tolerance is for bfloat16 engines; float32 engines agree to 1e-4. A recomputed value
    below -100 counts as -100.

    Raises ValueError if no row is found, or if logprob_fn returns a wrong shape, NaN,
    probabilities or a loss. Exceptions from logprob_fn are not caught, except an IndexError that
    does not occur if all ids are replaced with 0.
    """
    if not callable(logprob_fn):
        raise TypeError(f"logprob_fn={logprob_fn!r} is not a function: pass the function first, then the run")
    integer("rows", rows, 1)
    integer("seed", seed, 0)
    real("tolerance", tolerance)
    integer("vocabulary", vocabulary, 1, none=True)
    if not tolerance > 0:
        raise ValueError(f"tolerance={tolerance}: must be positive")
    chosen = _draw(run, rows, seed)
    function = Function(logprob_fn, vocabulary)
    nan = float("nan")
    nothing = Line("all", 0, nan, nan, nan, nan)
    try:
        tokens = measure(function, chosen)
        again = _again(function, chosen)
    except OutOfRange as err:
        return Report(False, "tokenizer", f"another tokenizer: {err}", tolerance, len(chosen), nothing)
    delta = tokens.recomputed - tokens.recorded
    tables = _tables(tokens, delta, tolerance)
    total = _line("all", delta, tolerance)
    ok = total.mean <= tolerance and not total.off and not any(line.off for table in tables.values() for line in table)
    tests: dict[str, Any] = {}
    if ok:
        cause, message = "none", f"{len(tokens)} tokens of {len(chosen)} rows agree: mean |Δ| {total.mean:.4g}, at most {tolerance:g} allowed"
        if len(tokens) < FEW:
            message += f"; fewer than {FEW} tokens prove little"
    elif again > tolerance:
        tests["again"] = again
        cause, message = "random", f"two calls of logprob_fn with the same row differ by up to {again:.4g}: is the model in training mode (dropout)?"
    else:
        tests["again"] = again
        cause, message = diagnose(function, chosen, tokens, tolerance, tests)
    context = {ROLES.get(role, str(role)): (n, total / n) for role, (n, total) in sorted(tokens.context.items())}
    return Report(ok, cause, message, tolerance, len(chosen), total, **tables, context=context, tests=tests)


def _again(function: Function, rows: Sequence[Row]) -> float:
    """Recompute the first rows twice, and return the largest difference between the two
    results."""
    most, seen = 0.0, 0
    for row in rows:
        most = max(most, float(np.abs(function(row) - function(row)).max()))
        seen += len(row["input_ids"]) - 1
        if seen >= FEW:
            break
    return most


def _groups(run: Any, seed: int) -> Iterator[Group]:
    """Yield all groups of a run in a random order that depends on the seed."""
    if isinstance(run, (str, os.PathLike)) or (isinstance(run, Sequence) and run and isinstance(run[0], (str, os.PathLike))):
        run = Dataset(run, where=Where(keep="keep", missing="keep"))
    elif not isinstance(run, Dataset):
        run = list(run) if isinstance(run, Iterable) else [run]
        if not all(isinstance(group, Group) for group in run):
            raise TypeError("run: must be the folder of a run, a list of folders, a Dataset, or groups")
    for i in np.random.default_rng(seed).permutation(len(run)).tolist():
        yield run[i]


def _draw(run: Any, count: int, seed: int) -> list[Row]:
    rows: list[Row] = []
    for group in _groups(run, seed):
        lacking = [name for name in _NEEDED if any(name not in row for row in group.rows)]
        if lacking:
            raise ValueError(f"run: group {group.id} has no column {lacking[0]}, which check needs: add it to columns=")
        rows += (row for row in group.rows if sampled(row).any())
        if len(rows) >= count:
            break
    if not rows:
        raise ValueError("run: no row has a sampled token")
    return rows[:count]


def _tables(tokens: Tokens, delta: Floats, tolerance: float) -> dict[str, list[Line]]:
    place = np.where(tokens.position < 64, 0, np.log2(np.maximum(tokens.position, 1) / 32).astype(np.int64))
    places = {0: "0-63"} | {k: f"{32 << k}-{(64 << k) - 1}" for k in range(1, 27)}
    return {
        "by_span": _table(tokens.span, delta, tolerance, {}),
        "by_position": _table(place, delta, tolerance, places),
        "by_role": _table(tokens.role, delta, tolerance, ROLES),
        "by_version": _table(tokens.version, delta, tolerance, {-1: "unknown"}),
    }


def _table(keys: Ints, delta: Floats, tolerance: float, names: dict[int, str]) -> list[Line]:
    return [_line(names.get(k, str(k)), delta[keys == k], tolerance) for k in np.unique(keys).tolist()]


def _line(name: str, delta: Floats, tolerance: float) -> Line:
    size = np.abs(delta)
    off = is_off(delta, tolerance) or one_sided(delta)
    return Line(name, len(size), float(size.mean()), float(np.quantile(size, 0.99)), float(size.max()), float(delta.mean()), off)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
