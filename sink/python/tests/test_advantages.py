"""Cases that test_presets.py does not cover: forks, missing and unscored members, kinds of
arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout import advantages

Function = Callable[..., Any]
BY_GROUP = [advantages.grpo, advantages.dr_grpo, advantages.rloo]


@st.composite
def forked(draw: st.DrawFn) -> dict[str, Any]:
    """A batch of whole groups, and the rows of the same samples cut into segments."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    n = sum(sizes)
    reward = np.array(draw(st.lists(st.floats(-4, 4, width=32), min_size=n, max_size=n)))
    tokens = np.array(draw(st.lists(st.integers(2, 9), min_size=n, max_size=n)))
    segments = [draw(st.integers(1, t)) for t in tokens]
    sample = np.repeat(np.arange(n), segments)
    parts = [np.diff([0, *sorted(draw(st.permutations(range(1, t)))[: k - 1]), t]) for t, k in zip(tokens, segments)]
    order = np.array(draw(st.permutations(range(len(sample)))))
    return {
        "reward": reward,
        "group": np.repeat(np.arange(len(sizes)), sizes),
        "tokens": tokens,
        "sample": sample[order],
        "tokens_of_rows": np.concatenate(parts)[order],
    }


@pytest.mark.parametrize("function", BY_GROUP)
@pytest.mark.parametrize("preset", ["trl", "verl", "openrlhf"])
@settings(deadline=None)
@given(b=forked())
def test_a_forked_group_equals_its_twin(function: Function, preset: str, b: dict[str, Any]) -> None:
    whole = function(b["reward"], b["group"], preset=preset)
    s = b["sample"]
    rows = function(b["reward"][s], b["group"][s], s, preset=preset)
    np.testing.assert_allclose(rows, whole[s], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("preset", ["verl", "openrlhf"])
@pytest.mark.parametrize("baseline", [False, True])
@settings(deadline=None)
@given(b=forked())
def test_a_forked_batch_equals_its_twin(preset: str, baseline: bool, b: dict[str, Any]) -> None:
    s = b["sample"]
    more: Any = lambda g: {"group": g} if baseline else {}  # noqa: E731
    whole = advantages.reinforce_plus_plus(b["reward"], b["tokens"], preset=preset, **more(b["group"]))
    rows = advantages.reinforce_plus_plus(b["reward"][s], b["tokens_of_rows"], s, preset=preset, **more(b["group"][s]))
    np.testing.assert_allclose(rows, whole[s], rtol=1e-9, atol=1e-9)


def test_by_hand() -> None:
    reward, group = [1.0, 0.0, 0.0, 0.0, 5.0], [7, 7, 7, 7, 2]
    std = np.sqrt((0.75**2 + 3 * 0.25**2) / 3)
    np.testing.assert_allclose(advantages.grpo(reward, group, epsilon=0)[:2], [0.75 / std, -0.25 / std])
    std = np.sqrt((0.75**2 + 3 * 0.25**2) / 4)
    np.testing.assert_allclose(advantages.grpo(reward, group, epsilon=0.5, ddof=0)[:2], [0.75 / (std + 0.5), -0.25 / (std + 0.5)])
    np.testing.assert_allclose(advantages.dr_grpo(reward, group), [0.75, -0.25, -0.25, -0.25, 0])
    np.testing.assert_allclose(advantages.rloo(reward, group), [1, -1 / 3, -1 / 3, -1 / 3, 0])
    np.testing.assert_allclose(advantages.rloo(reward, group, single="reward")[4], 5)


def test_equal_rewards_give_exactly_nothing() -> None:
    reward = np.full(7, 0.1)
    for function in BY_GROUP:
        np.testing.assert_array_equal(function(reward, np.zeros(7), preset="openrlhf"), np.zeros(7))


def test_missing_members() -> None:
    reward, group, sample, absent = [1.0, 1.0, 0.0, 2.0], [0, 0, 0, 1], [0, 0, 1, 2], [2, 2, 2, 0]
    whole = advantages.grpo([1, 0, -1, -1, 2], [0, 0, 0, 0, 1])
    got = advantages.grpo(reward, group, sample, absent=absent, missing=-1.0)
    np.testing.assert_allclose(got, whole[[0, 0, 1, 4]])
    got = advantages.rloo(reward, group, sample, absent=absent, missing=0)
    np.testing.assert_allclose(got, [1, 1, -1 / 3, 0])
    np.testing.assert_allclose(advantages.dr_grpo(reward, group, sample, absent=absent), [0.5, 0.5, -0.5, 0])
    # A sample that was not scored never counts as a missing one.
    got = advantages.rloo([1, 0, np.nan], [0, 0, 0], absent=1, missing=0, null="nan")
    np.testing.assert_allclose(got, [1, -0.5, np.nan])
    with pytest.raises(ValueError, match="samples are missing from 1 of 2 groups"):
        advantages.dr_grpo(reward, group, sample, absent=absent, missing="error")
    with pytest.raises(ValueError, match="needs absent"):
        advantages.dr_grpo(reward, group, sample, missing="error")
    with pytest.raises(ValueError, match="must not be negative"):
        advantages.dr_grpo(reward[:3], group[:3], absent=-1, missing=0)
    assert advantages.grpo([3.0, 2.0], [0, 0], absent=0, missing="error").shape == (2,)


def test_rewards_that_are_not_known() -> None:
    reward, group = [1.0, np.nan, 0.0, np.nan], [0, 0, 0, 1]
    for function in BY_GROUP:
        with pytest.raises(ValueError, match="no value for 2 of 4 samples"):
            function(reward, group)
        known = function([1.0, 0.0], [0, 0])
        np.testing.assert_array_equal(function(reward, group, null="zero"), [known[0], 0, known[1], 0])
        np.testing.assert_array_equal(function(reward, group, null="nan"), [known[0], np.nan, known[1], np.nan])
    known = advantages.reinforce_plus_plus([1.0, 0.0], [3, 4])
    got = advantages.reinforce_plus_plus(reward, [3, 90, 4, 7], null="nan")
    np.testing.assert_allclose(got, [known[0], np.nan, known[1], np.nan])


def test_what_cannot_be_is_refused() -> None:
    """Wrong types and values of one argument are in test_args.py."""
    with pytest.raises(ValueError, match=r"reward\[1\] is 2.0, but another row of sample 5 has 1.0"):
        advantages.grpo([1, 2], [0, 0], [5, 5])
    with pytest.raises(ValueError, match=r"group\[2\] is 1, but another row of sample 0 has 0"):
        advantages.grpo([1, 2, 1, 2], [0, 0, 1, 1], [0, 1, 0, 1])  # sample_index instead of sample
    with pytest.raises(ValueError, match=r"group has shape \(1,\), want \(2,\)"):
        advantages.grpo([1, 2], [0])
    with pytest.raises(ValueError, match="TRL has no"):
        advantages.reinforce_plus_plus([1], [1], preset="trl")
    with pytest.raises(ValueError, match="must be finite"):
        advantages.grpo([np.inf], [0])
    with pytest.raises(ValueError, match="the batch has 1"):
        advantages.reinforce_plus_plus([1], [1])


def test_no_rows() -> None:
    for function in BY_GROUP:
        assert function([], []).shape == (0,)


def test_tensors_give_tensors() -> None:
    torch = pytest.importorskip("torch")
    reward, group = torch.tensor([1.0, 0.0, 3.0]), torch.tensor([0, 0, 0])
    got = advantages.grpo(reward, group)
    assert got.dtype == torch.float32
    np.testing.assert_allclose(got.numpy(), advantages.grpo(reward.numpy(), group.numpy()), rtol=1e-6)
    assert advantages.rloo(reward.bfloat16(), group).dtype == torch.bfloat16
    assert advantages.rloo(torch.tensor([1, 0]), torch.tensor([0, 0])).dtype == torch.float64
