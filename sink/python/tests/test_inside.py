"""Values from inside the calls stay with their token in every layout, and reach verl."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rollout import Group, collate
from rollout.train import adapters

torch = pytest.importorskip("torch")
LAYERS, TOP_K = 3, 2


def make_row(key: str, n: int, seed: int, inside: bool = True) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    lengths = np.where(np.arange(n) % 3 == 1, random.integers(1, 5, n), 0).astype(np.int32)
    experts = random.integers(0, 128, (n, LAYERS, TOP_K)).astype(np.int8)
    experts[-1] = -1
    return {
        "sample_key": key, "sample_index": seed, "segment_index": 0, "reward": 1.0, "prompt_length": 1, "turn_roles": [0, 1],
        "input_ids": random.integers(1, 1000, n).astype(np.int32), "loss_mask": (np.arange(n) > 0).astype(np.int8),
        "logprobs": np.zeros(n, np.float32), "versions": None, "policy_version_min": 7, "policy_version_max": 7,
        "routed_experts": experts if inside else None,
        "sampling_mask": random.integers(0, 1000, lengths.sum()).astype(np.int32) if inside else None,
        "sampling_mask_lengths": lengths if inside else None,
    }  # fmt: skip


def group_of(*rows: dict[str, Any]) -> Group:
    return Group(run="r", id="g", size=len(rows), rows=list(rows))


def masks_of(row: dict[str, Any]) -> list[list[int]]:
    return [ids.tolist() for ids in np.split(row["sampling_mask"], np.cumsum(row["sampling_mask_lengths"])[:-1])]


@pytest.mark.parametrize(
    "layout",
    [
        collate.padded(0),
        collate.padded(0, side="left", multiple_of=8),
        collate.padded(0, side="split"),
        collate.packed(40),
        collate.packed(40, order="given"),
        collate.bucketed(0, [8, 16, 64], max_tokens=64),
        collate.bucketed(0, [8, 16, 64], side="left"),
    ],
)
def test_every_token_keeps_its_values(layout: collate.Collate) -> None:
    rows = {row["sample_key"]: row for row in (make_row(f"k{n}", n, n, inside=n != 9) for n in (5, 9, 13, 30))}
    batch = layout([group_of(*rows.values())])
    seen: dict[str, int] = dict.fromkeys(rows, 0)
    for micro in collate.micro_batches(batch):
        experts, masks = micro["routed_experts"], micro["sampling_mask"]
        row_ids = torch.broadcast_to(micro["row_ids"], micro["input_ids"].shape).flatten().tolist()
        experts, masks = experts.reshape(-1, LAYERS, TOP_K), masks.reshape(len(row_ids), -1)
        real = micro["attention_mask"].flatten().bool().tolist() if "attention_mask" in micro else [True] * len(row_ids)
        for at, number in enumerate(row_ids):
            if not real[at]:
                assert (experts[at] == -1).all() and (masks[at] == -1).all(), "padding has values"
                continue
            row = rows[batch["rows"][number][0]]
            i = seen[row["sample_key"]]
            seen[row["sample_key"]] += 1
            want = row["routed_experts"][i] if row["routed_experts"] is not None else np.full((LAYERS, TOP_K), -1)
            assert np.array_equal(experts[at].numpy(), want)
            assert [x for x in masks[at].tolist() if x >= 0] == (masks_of(row)[i] if row["sampling_mask"] is not None else [])
    assert seen == {key: len(row["input_ids"]) for key, row in rows.items()}


def test_without_the_columns_there_is_no_entry() -> None:
    batch = collate.padded(0)([group_of(make_row("k", 5, 1, inside=False))])
    assert "routed_experts" not in batch and "sampling_mask" not in batch


def test_two_shapes_are_an_error() -> None:
    other = make_row("k2", 5, 2)
    other["routed_experts"] = np.zeros((5, 2, 2), np.int8)
    with pytest.raises(ValueError, match=r"different shapes in one batch: \(2, 2\) and \(3, 2\)"):
        collate.padded(0)([group_of(make_row("k", 5, 1), other)])


def test_verl_gets_the_experts_of_every_token_but_the_last() -> None:
    row = make_row("k", 6, 1)
    fields, _ = adapters._verl_row("u", row, adapters.row_versions, None)
    assert fields["routed_experts"].dtype == torch.int16 and fields["routed_experts"].shape == (6, LAYERS, TOP_K)
    assert np.array_equal(fields["routed_experts"][:-1].numpy(), row["routed_experts"][:-1]) and not fields["routed_experts"][-1].any()
    for missing in ((3,), (3, 1), (3, 1, 0)):  # of a token, of a layer, and a single expert
        broken = {**row, "routed_experts": row["routed_experts"].copy()}
        broken["routed_experts"][missing] = -1
        with pytest.raises(ValueError, match="lacks routed experts for token 3"):
            adapters._verl_row("u", broken, adapters.row_versions, None)
    fields, _ = adapters._verl_row("u", make_row("k", 6, 1, inside=False), adapters.row_versions, None)
    assert "routed_experts" not in fields
