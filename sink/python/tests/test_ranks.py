"""Two ranks with two workers each, on a run with forks, failures and null rewards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made import Run, Sample
from test_docs import blocks

import rollout

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def mixed_run(simulator: Callable[..., tuple[str, Path]], collect: Callable[..., Path]) -> Path:
    """A run in which tasks have forks, failed samples, and every fourth task no answer."""
    url, tasks = simulator("--input-ids", "--scripted", "60", "--drift", "0.4", "--fault", "stop-error=0.05")
    lines = [json.loads(line) for line in tasks.read_text().splitlines()]
    for line in lines[::4]:
        del line["answer"]
    tasks.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return collect("--server", url, "--tasks", tasks, "--samples", "4", "--reward", "number", "--fail-on-error", "100%", status=3)


@pytest.fixture
def ranks(mixed_run: Path) -> Iterator[Callable[..., list[subprocess.Popen[bytes]]]]:
    """ranks(folder, workers, slow) starts two ranks, which are killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(folder: Path, workers: int, slow: bool = False) -> list[subprocess.Popen[bytes]]:
        folder.mkdir(exist_ok=True)
        env = {**os.environ, "MEET": str(len(started)), "OMP_NUM_THREADS": "1"}
        script = Path(__file__).with_name("rank.py")
        new = []
        for rank in range(2):
            command = [sys.executable, script, mixed_run, str(rank), "2", str(workers), folder, *(["slow"] if slow else [])]
            with open(folder / f"err-{rank}", "ab") as err:
                new.append(subprocess.Popen(list(map(str, command)), env=env, stderr=err, start_new_session=True))
        started.extend(new)
        return new

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def lines(folder: Path, rank: int) -> list[Any]:
    path = folder / f"rank-{rank}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def finish(processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    for rank, process in enumerate(processes):
        assert process.wait(120) == 0, (folder / f"err-{rank}").read_text()[-2000:]


def test_each_group_on_one_rank(mixed_run: Path, ranks: Callable[..., Any], tmp_path: Path) -> None:
    finish(ranks(tmp_path / "a", 2), tmp_path / "a")
    ds = rollout.Dataset(mixed_run, where=rollout.Where(null_reward="drop"))
    assert any(g.failed for g in ds) and any(r["segment_count"] > 1 for g in ds for r in g.rows)
    assert ds.counts["null_reward"]["samples"] > 10
    got = [lines(tmp_path / "a", rank) for rank in range(2)]
    assert len(got[0]) == len(got[1]) == len(ds) // 4
    group = {r["sample_key"]: g.id for g in ds for r in g.rows}
    given = [Counter(group[key] for batch in rank for key in {key for key, _ in batch["rows"]}) for rank in got]
    assert not set(given[0]) & set(given[1])
    samples = {g.id: len({r["sample_key"] for r in g.rows}) for g in ds}
    for rank in given:
        assert all(n == samples[g] for g, n in rank.items()), "a group is not whole"
    assert len(given[0]) + len(given[1]) == len(ds) // 4 * 4
    rows = [tuple(r) for rank in got for batch in rank for r in batch["rows"]]
    assert len(set(rows)) == len(rows) == sum(len(g.rows) for g in ds if g.id in given[0] or g.id in given[1])
    assert not any(batch["null"] for rank in got for batch in rank)


def test_a_killed_job_goes_on(ranks: Callable[..., Any], tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finish(ranks(whole, 0), whole)
    jobs = ranks(cut, 2, slow=True)
    end = time.monotonic() + 120
    while len(lines(cut, 0)) < 3 or len(lines(cut, 1)) < 3:
        assert time.monotonic() < end and all(p.poll() is None for p in jobs), (cut / "err-0").read_text()[-2000:]
        time.sleep(0.01)
    for process in jobs:  # with its workers
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = [json.loads((cut / f"state-{rank}.json").read_text())["next"] for rank in range(2)]
    first = [lines(cut, rank)[: before[rank]] for rank in range(2)]
    # One rank can be a batch ahead of the other: the job continues at the last one.
    for rank in range(2):
        state = cut / f"state-{rank}.json"
        state.write_text(json.dumps({**json.loads(state.read_text()), "next": min(before), "begin": min(before)}))
        (cut / f"rank-{rank}.jsonl").unlink()
    finish(ranks(cut, 3), cut)
    for rank in range(2):
        want = lines(whole, rank)
        assert 2 <= min(before) < len(want)  # the kill can come between a line and its state
        assert first[rank][: min(before)] + lines(cut, rank) == want


def test_ranks_share_a_snapshot_as_the_readme_does(tmp_path: Path) -> None:
    """Rank 1 opens the run when its log is longer."""
    (block,) = (b for b in blocks("sink/python/README.md", "python") if "dist.broadcast_object_list" in b)
    processes = []
    for rank, commits in enumerate((2, 5)):
        run = Run(tmp_path / str(rank) / "run1")
        for n in range(commits):
            run.commit([Sample(f"g{n}", i, size=2) for i in range(2)])
        begin = f"import torch.distributed as d; d.init_process_group('gloo', init_method='file://{tmp_path}/meet', rank={rank}, world_size=2)\n"
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", begin + block]
        processes.append(subprocess.Popen(command, cwd=run.dir.parent, env=env, stdout=subprocess.PIPE))
    try:
        said = [process.communicate(timeout=100)[0].decode() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert said == ["2 [{'run_id': 'r', 'seq': 2, 'scores': 'collected'}] {}\n"] * 2
