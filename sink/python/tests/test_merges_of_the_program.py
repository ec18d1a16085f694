"""Merges by the program, finished and while the run is read."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_merges import described, followed

import rollout
from rollout import Following, log

MERGED = Path(__file__).resolve().parents[2] / "testdata" / "merged"


def test_merges_of_the_program(tmp_path: Path) -> None:
    """A folder as the program left it, and after it has deleted what it replaced."""
    if not MERGED.is_dir():
        pytest.skip("the source is not here")
    for run in (MERGED, tmp_path / "run"):
        if run != MERGED:
            shutil.copytree(MERGED, run)
            shutil.rmtree(run / "replaced")
        got, cursors, counts = followed(run)
        assert [(c["seq"], c["groups"]) for c in cursors] == [(4, 1), (6, 1), (17, 1)]
        assert [g[0] for g in got] == ["task-1", "task-0", "task-2"]
        ds = rollout.Dataset(run)
        assert {g.id for g in ds} == {g[0] for g in got} and len(ds.row(34)["input_ids"]) > 0
        assert sum(len(g[-1]) for g in got) + counts["late"]["rows"] == 35  # of samples that had failed before
        assert followed(run, after=json.loads((run / "ack.json").read_text()))[0] == got[2:]
        batches = ds.batches(1, seed=1)
        assert sum(len(g.rows) for b in batches for g in b) == 35


def test_a_stream_of_the_program_is_followed(
    simulator: Callable[..., tuple[str, Path]], start: Callable[..., Any], run_program: Callable[..., str], tmp_path: Path
) -> None:
    """Commits, merges and kills of the real program, while a follower and datasets read."""
    url, tasks = simulator("--input-ids", "--scripted", "60", "--latency", "5ms..40ms")
    run = tmp_path / "run1"
    flags = ["collect", "--stream", "--tasks", "-", "--server", url, "--model", "sglang//models/qwen3", "--samples", "2"]
    flags += ["--out", run, "--resume", "--max-in-flight", "4", "--quiet", "--reward", "number"]
    got: list[Any] = []
    errors: list[BaseException] = []

    def follow() -> None:
        try:
            following = Following(run, timeout=60)
            got.extend((described(g), following.cursor) for g in following)
        except BaseException as err:
            errors.append(err)

    def begin() -> Any:
        with open(tasks, "rb") as f:  # accepted tasks are recognized
            return start(*flags, stdin=f)

    collector = begin()
    while not (run / "_commits").is_dir():
        assert collector.poll() is None
        time.sleep(0.01)
    reader = threading.Thread(target=follow)
    reader.start()
    for _ in range(2):
        had, end = len(got), time.monotonic() + 60
        while len(got) < had + 12 and not errors and time.monotonic() < end:
            ds = rollout.Dataset(run)
            assert len(list(ds)) == len(ds)
        collector.kill()
        collector.wait()
        collector = begin()
    assert collector.wait(120) == 0
    reader.join(60)
    assert not reader.is_alive() and not errors, errors
    assert any("replaces" in entry for entry in log.commits(run)) and run_program("verify", run)
    ds = rollout.Dataset(run)
    assert len(got) == len(ds) == 60 and sorted(g for g, _ in got) == sorted(described(g) for g in ds)
    for n in (0, 20, 59):
        assert [described(g) for g in Following(run, after=got[n][1])] == [g for g, _ in got[n + 1 :]]
