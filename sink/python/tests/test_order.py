"""Every group is dealt once, the same number to every rank, in an order that depends only on
the seed and the epoch."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rollout.data import order

sizes = st.integers(1, 7)


@given(st.integers(0, 300), st.integers(0, 2**63), st.integers(0, 1000), st.integers(0, 12))
def test_shuffled_is_a_permutation(count: int, seed: int, epoch: int, blocks: int) -> None:
    home = None if blocks == 0 else np.arange(count) * blocks // max(1, count)
    got = order.shuffled(count, seed, epoch, home)
    assert sorted(got.tolist()) == list(range(count))
    assert got.tolist() == order.shuffled(count, seed, epoch, home).tolist()
    if home is not None:  # the groups of a block stay together
        assert (np.diff(home[got]) != 0).sum() == max(0, len(set(home.tolist())) - 1)


def test_epochs_and_seeds_differ() -> None:
    a = [tuple(order.shuffled(50, seed, epoch, None)) for seed in range(5) for epoch in range(5)]
    assert len(set(a)) == 25


def test_the_order_is_pinned() -> None:
    # A saved state must mean the same in every later version. Do not change this test.
    assert order.shuffled(10, 7, 3, None).tolist() == PINNED
    assert order.shuffled(10, 7, 3, np.arange(10) // 4).tolist() == PINNED_BLOCKS


def test_every_place_is_as_likely() -> None:
    where = np.array([order.shuffled(8, 0, epoch, None) for epoch in range(4000)])
    share = np.array([[(where[:, place] == group).mean() for place in range(8)] for group in range(8)])
    assert abs(share - 1 / 8).max() < 0.03  # five standard deviations


@given(st.integers(0, 200), sizes, sizes, st.integers(1, 9), st.sampled_from(["drop", "repeat"]))
def test_every_group_once_and_equal_numbers(total: int, groups: int, world: int, lanes: int, fill: order.Fill) -> None:
    deal = order.Deal(groups, world, lanes, fill, total)
    permutation = order.shuffled(total, 1, 1, None)
    by_lane = [deal.lane(rank, lane, permutation) for rank in range(world) for lane in range(lanes)]
    in_turn = [deal.in_turn(rank, permutation) for rank in range(world)]
    for got in (by_lane, in_turn):
        dealt = np.concatenate([x.reshape(-1) for x in got])
        assert len(dealt) == deal.dealt == deal.batches * world * groups
        times = np.bincount(dealt, minlength=total)
        if fill == "drop":
            assert times.max(initial=0) <= 1
            assert (times == 0).sum() == deal.dropped < groups * world
        elif total:
            assert times.min() >= 1
            assert times.sum() - total == deal.repeated < groups * world
    for rank in range(world):
        assert sum(deal.length(lane) for lane in range(lanes)) == deal.batches == len(in_turn[rank])


@given(st.integers(1, 5000), st.integers(1, 1 << 30), sizes)
def test_lanes_stay_within_memory(blocks: int, size: int, world: int) -> None:
    n = order.lanes(blocks, size, world)
    assert n == 1 or n * size <= order.LANES_BYTES


PINNED = [8, 1, 5, 3, 2, 6, 4, 0, 7, 9]
PINNED_BLOCKS = [8, 9, 1, 3, 2, 0, 5, 6, 4, 7]
