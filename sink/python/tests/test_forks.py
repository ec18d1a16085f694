"""From a run with forks and failures to weights and advantages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollout import Dataset, advantages, collate, loss_weights


@pytest.fixture(scope="module")
def groups(collect: Callable[..., Path]) -> list[Any]:
    simulate = ("--input-ids", "--scripted", "8", "--drift", "0.7", "--wrong", "0.4", "--fault", "id-mismatch=0.1")
    run = collect("--samples", "6", "--reward", "exact", simulate=simulate, status=(0, 3, 4))
    return list(Dataset(run))


LAYOUTS = [collate.padded(0), collate.padded(0, "split"), collate.packed(4000), collate.bucketed(0)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sample_counts_once_in_however_many_rows(groups: list[Any], layout: collate.Collate) -> None:
    batch = layout(groups)
    sample, tokens = np.asarray(batch["sample"]), np.asarray(batch["tokens"])
    samples = len(np.unique(sample))
    assert len(batch["rows"]) > samples > len(groups) == 8, "no sample was forked"
    assert np.asarray(batch["absent"]).any(), "no sample failed"

    got = np.asarray(advantages.grpo(batch["reward"], batch["group"], batch["sample"], preset="verl"))
    for number, group in enumerate(groups):
        rewards = {row["sample_key"]: row["reward"] for row in group.rows}
        values = np.array(list(rewards.values()))
        alone = len(values) == 1
        want = dict(zip(rewards, values if alone else (values - values.mean()) / (values.std(ddof=1) + 1e-6)))
        for i in np.flatnonzero(np.asarray(batch["group"]) == number):
            assert got[i] == pytest.approx(want[batch["rows"][i][0]], rel=1e-5)

    sizes = np.bincount(sample, tokens)
    wanted = {"seq-mean-token-mean": np.full(samples, 1 / samples), "seq-mean-token-sum": sizes / samples, "token-mean": sizes / sizes.sum()}
    for mode, of_sample in wanted.items():
        weight = np.asarray(loss_weights(batch["tokens"], batch["sample"], mode))
        np.testing.assert_allclose(np.bincount(sample, weight * tokens), of_sample)
    trained = sum(int((micro["loss_mask"] != 0).sum()) for micro in collate.micro_batches(batch))
    assert trained == tokens.sum() == sum(int(row["loss_mask"].sum()) for group in groups for row in group.rows)
