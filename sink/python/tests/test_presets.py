"""Each preset computes what its source computes, to 1e-9 in float64."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import trainers
from rollout import advantages, loss_weights

torch = trainers.torch


@pytest.fixture(scope="module")
def verl() -> trainers.Verl:
    return trainers.Verl()


@pytest.fixture(scope="module")
def trl() -> trainers.Trl:
    return trainers.Trl()


@pytest.fixture(scope="module")
def openrlhf() -> trainers.OpenRlhf:
    return trainers.OpenRlhf()


def batches() -> list[Any]:
    """Return complete groups: with equal rewards, two values, small ones and large ones."""
    made = []
    for seed in range(30):
        random = np.random.default_rng(seed)
        size, groups = int(random.choice([1, 2, 3, 8, 16])), int(random.integers(1, 6))
        n = size * groups
        reward = [
            random.normal(size=n),
            random.integers(0, 2, n).astype(float),
            np.repeat(random.normal(size=groups), size),
            random.normal(0, 1e-5, n),
            1000 + random.normal(size=n),
        ][seed % 5]
        tokens = random.integers(1, 40, n) + (n == 1)
        made.append(SimpleNamespace(reward=reward, group=np.repeat(np.arange(groups), size), tokens=tokens, size=size))
    return made


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("b", batches())
def test_verl(verl: trainers.Verl, b: Any) -> None:
    close(advantages.grpo(b.reward, b.group, preset="verl"), verl("grpo", b.reward, b.tokens, b.group))
    want = verl("grpo", b.reward, b.tokens, b.group, norm_adv_by_std_in_grpo=False)
    close(advantages.dr_grpo(b.reward, b.group, preset="verl"), want)
    close(advantages.rloo(b.reward, b.group, preset="verl"), verl("rloo", b.reward, b.tokens, b.group))
    want = verl("reinforce_plus_plus", b.reward, b.tokens, b.group, config=SimpleNamespace(gamma=1.0))
    close(advantages.reinforce_plus_plus(b.reward, b.tokens, preset="verl"), want)
    want = verl("reinforce_plus_plus_baseline", b.reward, b.tokens, b.group)
    close(advantages.reinforce_plus_plus(b.reward, b.tokens, group=b.group, preset="verl"), want)


@pytest.mark.parametrize("b", batches())
def test_trl(trl: trainers.Trl, b: Any) -> None:
    close(advantages.grpo(b.reward, b.group, preset="trl"), trl.grpo(b.reward, b.size))
    close(advantages.dr_grpo(b.reward, b.group, preset="trl"), trl.grpo(b.reward, b.size, "none"))
    close(advantages.rloo(b.reward, b.group, preset="trl"), trl.rloo(b.reward, b.size))


@pytest.mark.parametrize("b", [b for b in batches() if b.size > 2])
def test_trl_without_some_rewards(trl: trainers.Trl, b: Any) -> None:
    b.reward[::3] = np.nan
    close(advantages.grpo(b.reward, b.group, preset="trl", null="zero"), trl.grpo(b.reward, b.size))
    close(advantages.dr_grpo(b.reward, b.group, preset="trl", null="zero"), trl.grpo(b.reward, b.size, "none"))
    close(advantages.rloo(b.reward, b.group, preset="trl", null="zero"), trl.rloo(b.reward, b.size))


@pytest.mark.parametrize("b", [b for b in batches() if b.size > 1])
def test_openrlhf(openrlhf: trainers.OpenRlhf, b: Any) -> None:
    close(advantages.grpo(b.reward, b.group, preset="openrlhf"), openrlhf("group_norm", b.reward, b.tokens, b.size))
    close(advantages.dr_grpo(b.reward, b.group, preset="openrlhf"), openrlhf("dr_grpo", b.reward, b.tokens, b.size))
    close(advantages.rloo(b.reward, b.group, preset="openrlhf"), openrlhf("rloo", b.reward, b.tokens, b.size))
    want = openrlhf("reinforce", b.reward, b.tokens, b.size)
    close(advantages.reinforce_plus_plus(b.reward, b.tokens, preset="openrlhf"), want)
    want = openrlhf("reinforce_baseline", b.reward, b.tokens, b.size)
    close(advantages.reinforce_plus_plus(b.reward, b.tokens, group=b.group, preset="openrlhf"), want)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_loss_of_forked_samples_is_that_of_verl_unforked(verl: trainers.Verl, mode: str) -> None:
    """verl's own aggregate: unforked without weights, and forked with our weights."""
    random = np.random.default_rng(1)
    tokens = random.integers(1, 9, 6)
    loss = [torch.from_numpy(random.normal(size=n)) for n in tokens]
    cuts = [np.split(np.arange(n), sorted(random.choice(np.arange(1, n), min(n - 1, i % 3), replace=False))) for i, n in enumerate(tokens)]
    rows = [(s, loss[s][part]) for s, parts in enumerate(cuts) for part in parts]

    def aggregate(rows: list[Any]) -> float:
        mask = torch.zeros(len(rows), 9).double()
        matrix = torch.full((len(rows), 9), 7.0).double()
        for i, values in enumerate(rows):
            mask[i, : len(values)] = 1
            matrix[i, : len(values)] = values
        return float(verl.core.agg_loss(matrix, mask, mode))

    weights = loss_weights([len(v) for _, v in rows], [s for s, _ in rows], mode, scale="mean")
    got = aggregate([w * v for w, (_, v) in zip(weights, rows)])
    # agg_loss adds 1e-8 to the tokens of a row, which is unrelated to the weights.
    assert got == pytest.approx(aggregate(loss), rel=1e-7)
    assert len(rows) > len(loss) and aggregate([v for _, v in rows]) != pytest.approx(aggregate(loss)) or mode == "token-mean"
