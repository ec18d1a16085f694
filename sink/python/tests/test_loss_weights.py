"""A forked sample weighs like its unforked twin, whatever its losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout import loss_weights

MODES = ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"]


def loss(rows: list[tuple[Any, Any]], mode: str) -> float:
    """Compute a trainer's loss from (losses, mask) of each row."""
    sums = np.array([(losses * mask).sum() for losses, mask in rows])
    counts = np.array([mask.sum() for _, mask in rows])
    if mode == "token-mean":
        return float(sums.sum() / counts.sum())
    per_row = sums / np.maximum(counts, 1) if mode == "seq-mean-token-mean" else sums
    return float(per_row[counts > 0].mean())


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """Return samples as (losses, mask), and the same samples cut into segments. Each segment
    repeats what precedes it as context, with its own losses."""
    seed = np.random.default_rng(draw(st.integers(0, 2**32)))
    whole, rows = [], []
    for s in range(draw(st.integers(1, 5))):
        n = draw(st.integers(1, 12))
        mask = np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
        mask[draw(st.integers(0, n - 1))] = 1
        losses = seed.normal(size=n) * 10
        whole.append((losses, mask))
        ends = sorted({*draw(st.lists(st.integers(1, n), max_size=4)), n})
        for begin, end in zip([0, *ends], ends):
            segment = np.where(np.arange(end) >= begin, losses[:end], seed.normal(size=end))
            rows.append((s, (segment, np.where(np.arange(end) >= begin, mask[:end], 0))))
    order = draw(st.permutations(range(len(rows))))
    return whole, [rows[i] for i in order]


@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None)
@given(batch=batches())
def test_a_forked_sample_weighs_as_its_twin(mode: str, batch: tuple[list[Any], list[Any]]) -> None:
    whole, rows = batch
    want = loss(whole, mode)
    tokens, sample = [int(m.sum()) for _, (_, m) in rows], [s for s, _ in rows]
    weights = loss_weights(tokens, sample, mode, scale="sum")
    got = sum(w * (losses * mask).sum() for w, (_, (losses, mask)) in zip(weights, rows))
    assert got == pytest.approx(want, rel=1e-9, abs=1e-9)
    weights = loss_weights(tokens, sample, mode, scale="mean")
    assert loss([(w * losses, mask) for w, (_, (losses, mask)) in zip(weights, rows)], mode) == pytest.approx(want, rel=1e-9, abs=1e-9)


def test_by_hand() -> None:
    tokens, sample = [3, 1, 4, 0], [0, 0, 1, 1]
    np.testing.assert_allclose(loss_weights(tokens, sample, "token-mean"), [1 / 8, 1 / 8, 1 / 8, 0])
    np.testing.assert_allclose(loss_weights(tokens, sample, "seq-mean-token-mean"), [1 / 8, 1 / 8, 1 / 8, 0])
    np.testing.assert_allclose(loss_weights(tokens, sample, "seq-mean-token-sum"), [1 / 2, 1 / 2, 1 / 2, 0])
    np.testing.assert_allclose(loss_weights(tokens, sample, "token-mean", scale="mean"), [1, 1, 1, 0])
    np.testing.assert_allclose(loss_weights(tokens, sample, "seq-mean-token-mean", scale="mean"), [9 / 8, 3 / 8, 3 / 2, 0])
    np.testing.assert_allclose(loss_weights(tokens, sample, "seq-mean-token-sum", scale="mean"), [3 / 2, 3 / 2, 3 / 2, 0])


def test_sums_over_all_ranks() -> None:
    got = loss_weights([2, 2], [0, 0], "seq-mean-token-mean", scale="mean", rows=10, samples=5)
    np.testing.assert_allclose(got, [10 * 2 / (5 * 4)] * 2)
    np.testing.assert_allclose(loss_weights([2, 2], [0, 0], total_tokens=100), [0.01, 0.01])


def test_what_cannot_be_is_refused() -> None:
    """Wrong types and values of one argument are in test_args.py."""
    with pytest.raises(ValueError, match="sample has shape"):
        loss_weights([1, 2], [0])
    assert loss_weights([], []).shape == (0,)
    np.testing.assert_array_equal(loss_weights([0, 0], [0, 1], "seq-mean-token-mean"), [0, 0])


def test_tensors_give_tensors() -> None:
    torch = pytest.importorskip("torch")
    got = loss_weights(torch.tensor([1, 3]), torch.tensor([0, 0]), "seq-mean-token-mean")
    assert got.dtype == torch.float64
    np.testing.assert_allclose(got.numpy(), [0.25, 0.25])
