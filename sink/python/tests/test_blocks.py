"""Shared memory of workers is reused, and never while it is still in use."""

from __future__ import annotations

import copy
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_dataset import scattered

import rollout
from rollout import collate

torch = pytest.importorskip("torch")

COLLATES = {"groups": None, "padded": collate.padded(0, null_reward="nan"), "packed": collate.packed(null_reward="nan")}


def content(batch: Any) -> list[Any]:
    """Return a copy of everything in a batch that is in shared memory."""
    if isinstance(batch, dict):
        return [(name, value.numpy().copy()) for name, value in batch.items() if isinstance(value, torch.Tensor)]
    return [(name, value.copy()) for group in batch for row in group.rows for name, value in row.items() if isinstance(value, np.ndarray)]


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) > 0 and all(x[0] == y[0] and np.array_equal(x[1], y[1]) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("how", COLLATES)
@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_what_is_kept_stays(tmp_path: Path, fmt: str, how: str) -> None:
    ds = rollout.Dataset(scattered(tmp_path / "run", groups=120, fmt=fmt).dir)
    batches = ds.batches(2, seed=3, collate=COLLATES[how])
    want = [content(batch) for batch in batches]
    draw = random.Random(1)
    for keep in (0.0, 0.3, 1.0):
        loader = rollout.DataLoader(ds.batches(2, seed=3, collate=COLLATES[how]), num_workers=2, persistent_workers=True)
        for end in (5, len(want)):  # the first pass ends early
            kept: list[tuple[int, Any]] = []
            for i, batch in enumerate(loader):
                if i == end:
                    break
                kept = [k for k in kept if draw.random() < keep] + [(i, batch)]
                for at, old in kept:
                    assert same(content(old), want[at]), (keep, i, at)
            assert kept[-1][0] == end - 1


def test_a_part_keeps_its_block(tmp_path: Path) -> None:
    ds = rollout.Dataset(scattered(tmp_path / "run", groups=60).dir)
    how = COLLATES["padded"]
    want = [batch["logprobs"].clone() for batch in ds.batches(2, collate=how)]
    parts = [batch["logprobs"][-1:, 1:] for batch in rollout.DataLoader(ds.batches(2, collate=how), num_workers=1)]
    assert len(parts) == len(want) > 20
    assert all(torch.equal(part, whole[-1:, 1:]) for part, whole in zip(parts, want, strict=True))


class Counted:
    """Adds to the batch the blocks that a worker has created."""

    def __call__(self, groups: Any) -> Any:
        from rollout.data import _blocks

        batch = collate.padded(0, null_reward="nan")(groups)
        batch["addresses"] = sorted(block.tensor.data_ptr() for block in _blocks._blocks)
        return batch


class Wild:
    """A collate function that modifies its batches, and keeps parts that must not change."""

    def __init__(self) -> None:
        self.kept: list[tuple[Any, Any]] = []

    def __call__(self, groups: Any) -> Any:
        make = collate.padded(0, null_reward="nan")
        make(groups)  # is not sent
        batch = make(groups)
        other = copy.deepcopy(make(groups))
        view = copy.copy(batch)
        self.kept = [*self.kept[-3:], (view["logprobs"][1:, :3], view["logprobs"][1:, :3].clone())]
        assert all(torch.equal(part, was) for part, was in self.kept)
        batch["logprobs"] = batch["logprobs"].double()  # larger than what is pickled by value
        batch["left"] = batch["input_ids"][:, :2]  # a part with gaps
        batch["first"] = batch["versions"][0]  # a part without gaps
        batch["twin"] = other["input_ids"]
        return batch


def test_collate_may_do_what_it_likes(tmp_path: Path) -> None:
    ds = rollout.Dataset(scattered(tmp_path / "run", groups=120).dir)
    want = [content(batch) for batch in ds.batches(2, collate=Wild())]
    kept = []
    for i, batch in enumerate(rollout.DataLoader(ds.batches(2, collate=Wild()), num_workers=2)):
        kept = kept[-2:] + [(i, batch)]
        assert all(same(content(old), want[at]) for at, old in kept), i
        assert torch.equal(batch["twin"], batch["input_ids"])
    assert len(want) == i + 1 > 20


def test_few_blocks_are_made(tmp_path: Path) -> None:
    ds = rollout.Dataset(scattered(tmp_path / "run", groups=120).dir)
    last, made = None, set()
    for batch in rollout.DataLoader(ds.batches(2, collate=Counted()), num_workers=1):
        copy.deepcopy(batch)
        made |= set(batch["addresses"])
        last = batch
    # Two are in transit, one is in use, one is being filled; a longer batch creates some new ones.
    assert last is not None and len(last["addresses"]) <= 5 and len(made) <= 12, (last["addresses"], len(made))


def test_reading_does_not_import_pandas(tmp_path: Path) -> None:
    for fmt in ("parquet", "arrow"):
        run = scattered(tmp_path / fmt, fmt=fmt).dir
        code = (
            "import sys, rollout\n"
            f"for batch in rollout.Dataset({str(run)!r}).batches(2): pass\n"
            f"rollout.Dataset({str(run)!r})[0]\n"
            "sys.exit('pandas' in sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_worker_is_forked_while_another_thread_reads(tmp_path: Path) -> None:
    from rollout.runs import _shardfile as shardfile

    files = rollout.Dataset(scattered(tmp_path / "run").dir).selection.files
    holds, done = threading.Event(), threading.Event()

    def other() -> None:
        with files._lock, shardfile._opening:
            holds.set()
            done.wait()

    thread = threading.Thread(target=other)
    thread.start()
    holds.wait()
    pid = os.fork()
    if not pid:
        signal.alarm(20)  # ends the process if a lock stays locked
        files.file(0).part(0, [(0, 1)]).value("input_ids", 0)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    done.set()
    thread.join()
    assert status == 0


@pytest.mark.parametrize("how", COLLATES)
def test_inference_mode_does_not_stop_workers(tmp_path: Path, how: str) -> None:
    batches = rollout.Dataset(scattered(tmp_path / "run").dir).batches(2, collate=COLLATES[how])
    want = [content(batch) for batch in batches]
    with torch.inference_mode():
        got = [content(batch) for batch in rollout.DataLoader(batches, num_workers=1, timeout=60)]
    assert len(got) == len(want) and all(same(a, b) for a, b in zip(got, want, strict=True))


class Own(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """Opens a run in the process that iterates it: a worker."""

    def __init__(self, run: Path) -> None:
        self.run = run

    def __iter__(self) -> Any:
        yield from rollout.Dataset(self.run).batches(2)


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_a_dataset_that_is_made_in_a_worker(tmp_path: Path, fmt: str) -> None:
    run = scattered(tmp_path / "run", fmt=fmt).dir
    got = torch.utils.data.DataLoader(Own(run), batch_size=None, num_workers=1, timeout=60)
    for a, b in zip(got, rollout.Dataset(run).batches(2), strict=True):
        assert same(content(a), content(b))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("how", ["groups", "padded"])
def test_what_a_forked_process_sees_stays(tmp_path: Path, how: str) -> None:
    batches = rollout.Dataset(scattered(tmp_path / "run", groups=120).dir).batches(2, collate=COLLATES[how])
    loader = iter(rollout.DataLoader(batches, num_workers=1))
    batch = next(loader)
    look = os.pipe()
    was = content(batch)
    pid = os.fork()
    if not pid:
        signal.alarm(60)
        os.read(look[0], 1)
        os._exit(0 if same(content(batch), was) else 1)
    del batch
    for _ in range(30):
        next(loader)
    os.write(look[1], b"x")
    assert os.waitpid(pid, 0)[1] == 0


def test_a_replaced_shard_is_not_read(tmp_path: Path) -> None:
    from rollout.data import ship
    from rollout.errors import CorruptError
    from rollout.data.ship import Shipment, unpack

    ds = rollout.Dataset(scattered(tmp_path / "run", fmt="arrow").dir)
    unpacked, sent = Shipment([ds[0]], ds.selection.files).__reduce__()
    assert unpacked is unpack and sent[0] is None  # nothing was copied
    assert same(content(unpack(*sent)), content([ds[0]]))
    for shard in (tmp_path / "run" / "data").glob("*.arrow"):
        body = shard.read_bytes()
        shard.rename(shard.with_suffix(".old"))
        shard.write_bytes(body)
    ship._maps._maps.clear()
    with pytest.raises(CorruptError, match="another file replaced this file"):
        unpack(*sent)
