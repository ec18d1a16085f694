"""Batches contain every token of every row once, in its place, and nothing else."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout import Group, advantages, collate, loss_weights

torch = pytest.importorskip("torch")

PER_TOKEN = {"input_ids": np.int64, "loss_mask": np.int8, "logprobs": np.float32, "versions": np.int32}


def make_row(key: str, segment: int, n: int, reward: float | None, seed: int, versions: bool = True) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    mask = random.integers(0, 2, n).astype(np.int8)
    mask[-1] = 1
    arrays: dict[str, Any] = {
        "input_ids": random.integers(1, 1000, n).astype(np.int32),
        "loss_mask": mask,
        "logprobs": np.where(mask, -random.random(n), 0).astype(np.float32),
        "versions": np.where(mask, 3, -1).astype(np.int32) if versions else None,
    }
    for array in arrays.values():
        if array is not None:
            array.flags.writeable = False  # like arrays of a mapped file
    return {"sample_key": key, "segment_index": segment, "reward": reward, "prompt_length": int(mask.argmax()), **arrays}


@st.composite
def groups(draw: st.DrawFn) -> list[Group]:
    made, seed = [], draw(st.integers(0, 10**6))
    for g in range(draw(st.integers(0, 4))):
        rows = []
        samples = draw(st.integers(0, 4))
        for s in range(samples):
            reward = draw(st.sampled_from([None, 0.0, 1.0, -2.5]))
            for k in range(draw(st.integers(1, 3))):
                seed += 1
                rows.append(make_row(f"k{g}.{s}", k, draw(st.integers(1, 90)), reward, seed, draw(st.booleans())))
        made.append(Group(run="r", id=f"g{g}", size=samples + 9, rows=rows, failed=1, empty=2, missing=3, left_out=3))
    return made


def check(batch: Any, given_groups: list[Group], pad_id: int = 99, null_reward: str = "nan") -> None:
    """The micro-batches contain each row once; padding is padding."""
    dropping = null_reward == "drop"
    want = {(g.id, r["sample_key"], r["segment_index"]): r for g in given_groups for r in g.rows if not (dropping and r["reward"] is None)}
    seen = {}
    for micro in collate.micro_batches(batch):
        ids, at = micro["input_ids"], micro["row_ids"].expand(micro["input_ids"].shape)
        real = micro["attention_mask"].bool() if "attention_mask" in micro else torch.ones_like(ids, dtype=torch.bool)
        assert (ids[~real] == pad_id).all() and (micro["versions"][~real] == -1).all()
        for name in ("loss_mask", "logprobs", "position_ids"):
            assert (micro[name][~real] == 0).all()
        for b in at[real].unique().tolist():
            key, segment = batch["rows"][b]
            row = want[given_groups[int(batch["group"][b])].id, key, segment]
            seen[(row["sample_key"], row["segment_index"])] = b
            here = real & (at == b)
            n = len(row["input_ids"])
            assert micro["position_ids"][here].tolist() == list(range(n))
            for name, dtype in PER_TOKEN.items():
                expected = row[name] if row[name] is not None else np.full(n, -1)
                assert micro[name].numpy().dtype == dtype
                np.testing.assert_array_equal(micro[name][here].numpy(), expected)
            reward = batch["reward"][b].item()
            assert reward == row["reward"] if row["reward"] is not None else np.isnan(reward)
            assert batch["reward_known"][b].item() == (row["reward"] is not None)
            assert batch["versions_known"][b].item() == (row["versions"] is not None)
            group = given_groups[int(batch["group"][b])]
            assert (batch["group_size"][b].item(), batch["absent"][b].item()) == (group.size, group.failed + group.empty + group.missing)
            assert (batch["length"][b].item(), batch["tokens"][b].item()) == (n, row["loss_mask"].sum())
            assert batch["prompt_length"][b].item() == row["prompt_length"]
    assert len(seen) == len(want) == len(batch["rows"])
    numbers: dict[str, int] = {}
    for b, (key, _) in enumerate(batch["rows"]):
        assert numbers.setdefault(key, int(batch["sample"][b])) == int(batch["sample"][b])
    assert sorted(numbers.values()) == list(range(len(numbers)))
    everyone = {r["sample_key"] for g in given_groups for r in g.rows}
    assert batch["dropped"] == len(everyone) - len(numbers)


@pytest.mark.parametrize("null_reward", ["nan", "drop"])
@settings(deadline=None, max_examples=40)
@given(groups=groups())
def test_every_layout_holds_every_row_once(null_reward: str, groups: list[Group]) -> None:
    for side in ("right", "left", "split"):
        check(collate.padded(99, side, null_reward=null_reward)(groups), groups, null_reward=null_reward)
    for order in ("first-fit", "given"):
        for limit in (None, 90, 200):
            check(collate.packed(limit, order=order, null_reward=null_reward)(groups), groups, null_reward=null_reward)
        check(collate.packed(50, order=order, longer="own", null_reward=null_reward)(groups), groups, null_reward=null_reward)
    for side in ("right", "left"):
        for edges, limit in ((None, None), ((10, 50, 100), 150), ((40,), None)):
            made = collate.bucketed(99, edges, limit, side, longer="own", null_reward=null_reward)(groups)
            check(made, groups, null_reward=null_reward)


def some(lengths: list[int]) -> list[Group]:
    rows = [make_row(f"k{i}", 0, n, 1.0, i) for i, n in enumerate(lengths)]
    return [Group(run="r", id="g", size=len(rows), rows=rows)]


def test_where_padding_is() -> None:
    groups = some([3, 5])
    real = [collate.padded(0, side)(groups)["attention_mask"].tolist() for side in ("right", "left")]
    assert real == [[[1, 1, 1, 0, 0], [1] * 5], [[0, 0, 1, 1, 1], [1] * 5]]
    assert collate.padded(0, multiple_of=8)(groups)["input_ids"].shape == (2, 8)
    for i, row in enumerate(groups[0].rows):
        row["loss_mask"] = np.array([0] * (i + 2) + [1] * (len(row["loss_mask"]) - i - 2), np.int8)
        row["prompt_length"] = i + 2
    batch = collate.padded(0, "split", multiple_of=4)(groups)
    p, lengths = batch["prompt_width"], batch["prompt_length"]
    assert p == lengths.max() and batch["input_ids"].shape[1] % 4 == 0
    assert batch["attention_mask"][:, :p].sum(1).tolist() == lengths.tolist()
    assert batch["attention_mask"][:, :p].diff().min() >= 0 and batch["attention_mask"][:, p:].diff().max() <= 0
    assert (batch["loss_mask"][:, :p] == 0).all() and (batch["loss_mask"][:, p] == 1).all()


def test_packs_keep_the_budget() -> None:
    groups = some([30, 70, 20, 60, 10, 90])
    batch = collate.packed(100)(groups)
    packs = list(collate.micro_batches(batch))
    assert [m["cu_seqlens"].tolist() for m in packs] == [[0, 90, 100], [0, 70, 100], [0, 60, 80]]
    assert [m["max_seqlen"] for m in packs] == [90, 70, 60] and batch["max_seqlen"] == 90
    assert batch["cu_seqlens"].dtype == packs[1]["cu_seqlens"].dtype == torch.int32
    assert batch["length"].tolist() == [90, 10, 70, 30, 60, 20]
    assert packs[1]["input_ids"].data_ptr() == batch["input_ids"].data_ptr() + 100 * 8  # a view
    packs = list(collate.micro_batches(collate.packed(100, order="given")(groups)))
    assert [m["cu_seqlens"].tolist() for m in packs] == [[0, 30, 100], [0, 20, 80, 90], [0, 90]]
    with pytest.raises(ValueError, match="row 0 of sample k5 has 90 tokens, but max_tokens allows 80"):
        collate.packed(80)(groups)
    packs = list(collate.micro_batches(collate.packed(80, longer="own")(groups)))
    assert [m["cu_seqlens"].tolist() for m in packs] == [[0, 90], [0, 70, 80], [0, 60, 80], [0, 30]]


def test_buckets_have_the_length_of_their_edge() -> None:
    groups = some([30, 70, 20, 64, 65, 128])
    batch = collate.bucketed(0)(groups)
    shapes = [tuple(m["input_ids"].shape) for m in collate.micro_batches(batch)]
    assert shapes == [(3, 64), (3, 128)] and batch["bucket_width"].tolist() == [64, 128]
    shapes = [tuple(m["input_ids"].shape) for m in collate.micro_batches(collate.bucketed(0, max_tokens=256)(groups))]
    assert shapes == [(3, 64), (2, 128), (1, 128)]
    for side, column in (("right", 0), ("left", -1)):
        for micro in collate.micro_batches(collate.bucketed(0, side=side)(groups)):
            assert micro["attention_mask"][:, column].all()
    with pytest.raises(ValueError, match="has 128 tokens, but edges allows 100"):
        collate.bucketed(0, [50, 100])(groups)
    shapes = [tuple(m["input_ids"].shape) for m in collate.micro_batches(collate.bucketed(0, [50, 100], longer="own")(groups))]
    assert shapes == [(2, 50), (3, 100), (1, 128)]


def test_workers_that_are_not_forked_can_have_it() -> None:
    groups = some([3, 5])
    for make in (collate.padded(0), collate.packed(100), collate.bucketed(0, dtypes={"loss_mask": "bool"})):
        again = pickle.loads(pickle.dumps(make))(groups)
        assert again.keys() == make(groups).keys() and torch.equal(again["input_ids"], make(groups)["input_ids"])


def test_a_batch_that_was_sent_is_the_same() -> None:
    groups = some([3, 5, 70])
    for make in (collate.padded(9, "split"), collate.packed(100), collate.bucketed(0, dtypes={"loss_mask": "bool"})):
        for given_groups in (groups, some([])):
            batch = make(given_groups)
            loader = torch.utils.data.DataLoader([given_groups], batch_size=None, num_workers=1, collate_fn=make)
            for sent in (pickle.loads(pickle.dumps(batch)), next(iter(loader))):
                assert list(sent) == list(batch) and type(sent) is type(batch)
                for name, value in batch.items():
                    if isinstance(value, torch.Tensor):
                        assert (sent[name].dtype, sent[name].shape) == (value.dtype, value.shape) and torch.equal(sent[name], value), name
                    else:
                        assert sent[name] == value, name


def test_no_reward_is_an_error_unless_said_otherwise() -> None:
    rows = [make_row("a", 0, 3, None, 1), make_row("a", 1, 4, None, 2), make_row("b", 0, 5, 1.0, 3)]
    groups = [Group(run="r", id="g", size=2, rows=rows)]
    for make in (collate.padded(0), collate.packed(), collate.bucketed(0)):
        with pytest.raises(ValueError, match="group g: sample a has no reward: pass null_reward='drop'"):
            make(groups)
    batch = collate.padded(0, null_reward="drop")(groups)
    assert (batch["rows"], batch["dropped"], batch["input_ids"].shape) == ([("b", 0)], 1, (1, 5))
    batch = collate.padded(0, null_reward="nan")(groups)
    assert batch["reward_known"].tolist() == [False, False, True] and batch["dropped"] == 0
    rows[0]["reward"] = 1.0  # one row of two has none: the sample is dropped whole
    batch = collate.padded(0, null_reward="drop")(groups)
    assert (batch["rows"], batch["dropped"]) == ([("b", 0)], 1)


def test_a_batch_of_which_nothing_is_left() -> None:
    groups = [Group(run="r", id="g", size=1, rows=[make_row("a", 0, 3, None, 1)])]
    for make in (collate.padded, collate.bucketed):
        batch = make(0, null_reward="drop")(groups)
        assert list(collate.micro_batches(batch)) == [] and batch["dropped"] == 1
        assert len(advantages.grpo(batch["reward"], batch["group"], batch["sample"])) == 0
        assert len(advantages.reinforce_plus_plus(batch["reward"], batch["tokens"], batch["sample"])) == 0
        assert len(loss_weights(batch["tokens"], batch["sample"])) == 0


def test_each_token_is_copied_once() -> None:
    """Neither lists of ints nor copies of arrays: Python and numpy use less than a byte per
    token meanwhile."""
    groups = some([50_000] * 20)
    for make, kept in ((collate.padded(0), 0), (collate.packed(), 8), (collate.bucketed(0), 8 * 65536 / 50_000)):  # row_ids
        make(groups)
        tracemalloc.start()
        try:
            make(groups)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most / 1_000_000 < kept + 1, f"{make}: {most} bytes for a million tokens"


def test_dtypes_and_columns() -> None:
    groups = some([3, 5])
    batch = collate.padded(0, dtypes={"loss_mask": "bool", "input_ids": torch.int32, "logprobs": "float64"})(groups)
    assert (batch["loss_mask"].dtype, batch["input_ids"].dtype, batch["logprobs"].dtype) == (torch.bool, torch.int32, torch.float64)
    with pytest.raises(ValueError, match="dtypes: 'mask' is not one of input_ids"):
        collate.padded(0, dtypes={"mask": "bool"})
    with pytest.raises(ValueError, match="loss_mask: 'bfloat16' is not a dtype of both"):
        collate.padded(0, dtypes={"loss_mask": "bfloat16"})
    for name, narrow in (("input_ids", "int16"), ("logprobs", "int32"), ("versions", "uint8"), ("position_ids", torch.int16)):
        for make in (collate.packed, lambda dtypes: collate.padded(0, dtypes=dtypes), lambda dtypes: collate.bucketed(0, dtypes=dtypes)):
            with pytest.raises(ValueError, match=f"dtypes: .* cannot hold every value of {name}: must be one of "):
                make(dtypes={name: narrow})
    del groups[0].rows[1]["logprobs"]
    with pytest.raises(ValueError, match="group g: its rows have no column logprobs"):
        collate.padded(0)(groups)
    groups[0].rows[1]["logprobs"] = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="sample k1: 4 values of logprobs for 5 input_ids"):
        collate.padded(0)(groups)


def test_without_torch_there_are_arrays() -> None:
    program = """
import sys
sys.modules["torch"] = None
import numpy as np
from rollout import Group, advantages, collate, loss_weights
row = {"sample_key": "a", "segment_index": 0, "reward": 1.0, "prompt_length": 1, "versions": None,
       "input_ids": np.arange(3), "loss_mask": np.array([0, 1, 1]), "logprobs": np.zeros(3)}
groups = [Group(run="r", id="g", size=2, rows=[row, {**row, "sample_key": "b", "reward": 0.0}])]
for make in (collate.padded(7, multiple_of=4), collate.packed(3), collate.bucketed(7)):
    batch = make(groups)
    a = advantages.dr_grpo(batch["reward"], batch["group"], batch["sample"])
    w = loss_weights(batch["tokens"], batch["sample"])
    assert type(a) is type(w) is np.ndarray and a.tolist() == [0.5, -0.5] and w.tolist() == [0.25, 0.25]
    for micro in collate.micro_batches(batch):
        assert type(micro["input_ids"]) is np.ndarray and a[micro["row_ids"]].shape[0] == micro["input_ids"].shape[0]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
