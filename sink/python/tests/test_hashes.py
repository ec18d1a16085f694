"""The set of hashes of a follower."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import Run, Sample

from rollout import Following
from rollout.runs._hashes import Hashes


@given(st.lists(st.binary(max_size=2), max_size=3000))
def test_a_set(texts: list[bytes]) -> None:
    hashes, want = Hashes(), set()
    for text in texts:
        assert (text in hashes) == (text in want)
        hashes.add(text)
        want.add(text)
        assert text in hashes
    assert len(hashes) == len(want)


def test_many() -> None:
    hashes = Hashes()
    for n in range(50_000):
        hashes.add(b"%d" % n)
    assert len(hashes) == 50_000 and all(b"%d" % n in hashes for n in range(50_000)) and b"50000" not in hashes
    assert hashes._table.nbytes <= 32 * 50_000 + 8 * 1024


def test_a_follower_forgets_what_it_gave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides the last shards, which it remembers, it keeps a hash of each group."""
    monkeypatch.setattr("rollout.runs.shards.ADDED", 8)
    monkeypatch.setattr("rollout.runs.log.CHECKED", 8)
    monkeypatch.setattr("rollout.runs.log._checked", {})  # other tests have filled it
    run = Run(tmp_path / "run")
    follow = Following(run.dir)
    sizes = []
    tracemalloc.start(8)
    for part in range(3):
        for g in range(60):
            run.commit([Sample(f"g{part}-{g}", i, [3], 8) for i in range(8)])
            group = follow.poll()
            assert group is not None and group.id == f"g{part}-{g}"
            if g % 20 == 19:
                run.merge(run.counting()[-20:])
        gc.collect()  # leftovers of other tests can delay the collection
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/rollout/*.py", all_frames=True)])
        sizes.append(sum(trace.size for trace in ours.traces))
    tracemalloc.stop()
    assert sizes[2] - sizes[1] < 60 * 100, sizes
