"""Following a run: every group once, whole, however often the collector is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made import Run, Sample
from waiting import wait_for

import rollout
from rollout import Following, Where

KILLS = 10


def test_ten_kills(
    simulator: Callable[..., tuple[str, Path]],
    start: Callable[..., subprocess.Popen[bytes]],
    run_program: Callable[..., str],
    tmp_path: Path,
) -> None:
    url, tasks = simulator("--input-ids", "--scripted", "100", "--drift", "0.3", "--fault", "stop-error=0.05", "--latency", "20ms..120ms")
    out = tmp_path / "run1"
    config = tmp_path / "run.yaml"
    config.write_text("output:\n  shard_age: 1s\n")
    flags = ["collect", "-c", config, "--server", url, "--model", "sglang//models/qwen3", "--tasks", tasks, "--samples", "4"]
    flags += ["--out", out, "--resume", "--max-in-flight", "4", "--fail-on-error", "100%", "--quiet"]

    got: list[rollout.Group] = []
    seqs: list[int] = []
    errors: list[BaseException] = []
    log = out / "_commits"

    def follow() -> None:
        try:
            for group in rollout.Dataset(out, follow=True).following(timeout=60, interval=0.02):
                got.append(group)
                seqs.append(len(list(log.glob("0*.json"))))
        except BaseException as err:
            errors.append(err)

    collector = start(*flags)
    wait_for(lambda: (out / "run.json").exists() and log.is_dir())
    reader = threading.Thread(target=follow)
    reader.start()
    kills = 0
    while kills < KILLS:
        had = len(list(log.glob("0*.json")))
        process = collector

        def more(had: int = had, process: subprocess.Popen[bytes] = process) -> bool:
            return len(list(log.glob("0*.json"))) > had or process.poll() is not None

        wait_for(more)
        if collector.poll() is not None:
            break
        collector.send_signal(signal.SIGKILL)
        collector.wait()
        kills += 1
        collector = start(*flags)
    assert collector.wait(120) in (0, 3)
    reader.join(60)
    assert not reader.is_alive() and not errors, errors
    assert kills == KILLS

    ds = rollout.Dataset(out)
    assert len(got) == len({g.id for g in got}) == len(ds) > 50
    assert seqs[0] < seqs[-1], "no group came before the run's end"
    for group in got:
        assert describe(group) == describe(ds.group(group.id))
        assert group.missing == 0
    assert run_program("verify", out)


def describe(group: rollout.Group) -> Any:
    rows = [(r["sample_key"], r["segment_index"], r["segment_count"], r["input_ids"].tolist()) for r in group.rows]
    return group.id, group.size, group.failed, group.empty, group.left_out, rows


def test_a_run_that_has_ended_is_followed_to_its_end(collect: Callable[..., Path]) -> None:
    run = collect("--samples", "3")
    got = list(rollout.Dataset(run, follow=True))
    assert {g.id for g in got} == {g.id for g in rollout.Dataset(run)} and len(got) == 8


def test_samples_cut_by_tail_end_the_run(collect: Callable[..., Path]) -> None:
    # Cut samples that never started are in no commit; report.json counts them.
    flags = ["--samples", "4", "--max-in-flight", "2", "--tail", "deadline=400ms"]
    run = collect(*flags, simulate=["--input-ids", "--scripted", "20", "--latency", "50ms"], status=[0, 3, 4])
    coverage = json.loads((run / "report.json").read_text())["coverage"]
    assert coverage["unstarted"] > 0
    follow = Following(run, timeout=5, interval=0.01)
    got = list(follow)
    assert all(g.missing == 0 for g in got)
    assert len(got) == len(rollout.Dataset(run))


def test_groups_come_when_they_are_complete(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.plan(8)
    run.commit([Sample("a", 0), Sample("b", 1), Sample("a", 1, [], failures=1)])
    steps = [
        [Sample("a", 2, [], failures=1), Sample("b", 0)],
        [Sample("a", 3, [])],  # a is complete: two failed, one empty
        [Sample("a", 1, [5]), Sample("b", 2)],  # too late: the group was returned
        [Sample("b", 3)],
    ]
    at: list[tuple[str, int]] = []

    def idle(_: float) -> None:
        run.commit(steps.pop(0))

    follow = Following(run.dir, interval=0, idle=idle)
    for g in follow:
        at.append((g.id, run.seq))
        if g.id == "a":
            assert (g.failed, g.empty, len(g.rows)) == (2, 1, 1)
    assert at == [("a", 3), ("b", 5)]
    assert follow.counts == {"late": {"groups": 0, "samples": 1, "rows": 1}}


@pytest.mark.parametrize("after", [{"run_id": "r", "seq": 4, "groups": 1}, {"run_id": "r", "seq": 1, "groups": 3}, {"run_id": "other", "seq": 1, "groups": 0}])
def test_a_follower_that_met_an_error_gives_nothing_more(tmp_path: Path, after: dict[str, Any]) -> None:
    """Its groups would not be the ones after the cursor, or would lack samples."""
    run = Run(tmp_path / "run")
    run.commit([Sample("a", 0, [3], 1), Sample("b", 0, [3], 1)])
    follow = Following(run.dir, after=after)
    with pytest.raises(rollout.StateError) as first:
        follow.poll()
    for name in "cdefg":
        run.commit([Sample(name, 0, [3], 1)])
        with pytest.raises(rollout.StateError, match=re.escape(str(first.value))):
            follow.poll()
    with pytest.raises(rollout.StateError):
        list(follow)


def test_a_commit_that_was_taken_in_part_is_not_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path / "run")
    run.commit([Sample("a", 0, [3], 1), Sample("b", 0, [3], 2)])
    run.commit([Sample("b", 1, [3], 2), Sample("c", 0, [3], 1)])
    follow = Following(run.dir)
    group = follow.poll()
    assert group and group.id == "a"
    at = follow.cursor

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(follow, "_filter_groups", interrupted)
        follow.poll()
    with pytest.raises(rollout.StateError, match="KeyboardInterrupt.. interrupted the reading of the log: start again from the last cursor"):
        follow.poll()
    again = Following(run.dir, after=at)
    assert [g.id for g in (again.poll(), again.poll()) if g] == ["b", "c"]


def test_a_sample_that_is_there_twice_is_damage(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for n in (3, 4):
        run.commit([Sample("g", 0, [n], 2)])
    run.plan(2)
    for follow in (False, True):
        with pytest.raises(rollout.CorruptError, match="the log contains rows of sample g-0 more than once; run `rollout verify` for details"):
            list(rollout.Dataset(run.dir, follow=follow))


def test_waiting_ends(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.commit([Sample("a", 0, [3], 1)])
    with pytest.raises(ValueError, match="no run.json, so the end of the run is unknown"):
        list(Following(run.dir))
    run.plan(2)
    waited: list[float] = []
    follow = Following(run.dir, timeout=0.05, interval=0.01, idle=waited.append)
    iterator = iter(follow)
    assert next(iterator).id == "a"
    with pytest.raises(TimeoutError, match="no commit for 0.05 s after entry 1; is the collector running"):
        next(iterator)
    assert waited == sorted(waited) and len(waited) > 1
    (run.dir / "run.json").write_text("{")
    with pytest.raises(rollout.CorruptError, match="cannot read .*run.json"):
        list(Following(run.dir))


def test_batches_of_a_followed_run(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for g in range(11):
        run.commit([Sample(f"g{g:02}", i, [3], 2) for i in range(2)])
    run.plan(22)
    for world, fill, n in ((1, "drop", 5), (2, "drop", 2), (2, "repeat", 3)):
        got = []
        for rank in range(world):
            for workers in (0, 2):
                pytest.importorskip("torch")
                ds = rollout.Dataset(run.dir, follow=True)
                batches = ds.batches(2, rank=rank, world_size=world, fill=fill)  # type: ignore[arg-type]
                ids = [tuple(g.id for g in b) for b in rollout.DataLoader(batches, num_workers=workers)]
                assert len(ids) == n
                got.append(ids)
            assert got[-1] == got[-2]
        given = [g for ids in got[::2] for batch in ids for g in batch]
        assert len(set(given)) == (11 if fill == "repeat" else len(given))
    loader = rollout.DataLoader(rollout.Dataset(run.dir, follow=True).batches(2))
    iterator = iter(loader)
    first = [next(iterator), next(iterator)]
    again = rollout.DataLoader(rollout.Dataset(run.dir, follow=True).batches(2))
    again.load_state_dict(loader.state_dict())
    assert [g.id for b in [*first, *again] for g in b] == [f"g{i:02}" for i in range(10)]
    other = Run(tmp_path / "other", run_id="another")
    other.commit([Sample("h", 0, [3], 1)])
    with pytest.raises(rollout.StateError, match="contains run 'another', but the state is from run 'r'"):
        rollout.Dataset(other.dir, follow=True).batches(2).load_state_dict(loader.state_dict())
    for ask in (len, lambda b: b.dropped, lambda b: b.repeated):
        with pytest.raises(TypeError, match="unknown"):
            ask(loader.batches)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("fill, dropped, repeated", [("drop", 2, 0), ("repeat", 0, 2)])
def test_batches_of_a_followed_run_count_what_they_leave_out(tmp_path: Path, workers: int, fill: Any, dropped: int, repeated: int) -> None:
    pytest.importorskip("torch")
    run = Run(tmp_path / "run")
    for g in range(12):  # every sixth group has a row that is too long
        run.commit([Sample(f"g{g:02}", i, [9 if g % 6 == 0 and i else 3], 2) for i in range(2)])
    run.commit([Sample("half", 0, [3], 2)])
    run.plan(25)
    where = Where(max_tokens=5, partial="drop")
    ds = rollout.Dataset(run.dir, follow=True, where=where)
    want = {
        "max_tokens": {"groups": 0, "samples": 2, "rows": 2},
        "partial": {"groups": 2, "samples": 2, "rows": 2},
        "missing": {"groups": 1, "samples": 1, "rows": 1},
    }
    for rank in range(2):
        batches = ds.batches(2, rank=rank, world_size=2, fill=fill)
        loader = rollout.DataLoader(batches, num_workers=workers)
        assert batches.counts == {}
        for epoch in range(2):
            loader.set_epoch(epoch)
            given = iter(loader)
            assert len(next(given)) == 2
            if not workers:  # g00 was dropped before the first round was full
                assert {name: n["samples"] for name, n in batches.counts.items()} == {"max_tokens": 1, "partial": 1}
                with pytest.raises(TypeError, match="unknown until the iteration ends"):
                    assert batches.dropped
            assert len(list(given)) == (1 if fill == "drop" else 2)
            assert batches.counts == want == rollout.Dataset(run.dir, where=where).counts
            assert (batches.dropped, batches.repeated) == (dropped, repeated)
    whole = rollout.Dataset(run.dir, where=where)
    assert whole.batches(2, rank=0, world_size=1).counts == whole.counts


def test_counts_are_there_while_no_batch_comes(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.commit([Sample("g", 0, [9], 1)])
    run.plan(2)
    batches = rollout.Dataset(run.dir, follow=True, timeout=0.1, where=Where(max_tokens=5)).batches(1)
    with pytest.raises(TimeoutError):
        list(batches)
    assert {name: n["samples"] for name, n in batches.counts.items()} == {"max_tokens": 1, "no_rows": 0}
    with pytest.raises(TypeError, match="unknown until the iteration ends"):
        assert batches.dropped


def test_what_a_followed_dataset_is_not(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.plan(1)
    ds = rollout.Dataset(run.dir, follow=True)
    for use in (len, lambda d: d[0], lambda d: d.counts, lambda d: d.group("x")):
        with pytest.raises(TypeError, match="follow=True"):
            use(ds)
    with pytest.raises(ValueError, match="needs exactly one run"):
        rollout.Dataset([run.dir, run.dir], follow=True)
    with pytest.raises(TypeError, match="does not follow"):
        rollout.Dataset(run.dir).following()
    with pytest.raises(ValueError, match="needs follow=True"):
        rollout.Dataset(run.dir, timeout=1)


def test_workers_that_follow_end_with_their_trainer(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run = Run(tmp_path / "run")
    run.plan(4)
    run.commit([Sample("g", 0, [3], 1)])
    program = """
import os, sys, time, rollout
trainer = os.getpid()

def late(worker):  # worker 1 begins when the trainer has ended
    while worker == 1 and os.getppid() == trainer:
        time.sleep(0.01)

loader = rollout.DataLoader(rollout.Dataset(sys.argv[1], follow=True).batches(1), num_workers=2, worker_init_fn=late)
for batch in loader:
    print(batch[0].id, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program, str(run.dir)], stdout=subprocess.PIPE, start_new_session=True) as trainer:
        try:
            assert trainer.stdout and trainer.stdout.readline() == b"g\n"
            trainer.kill()
            trainer.wait()
            end = time.monotonic() + 60
            while time.monotonic() < end and exists(trainer.pid):
                time.sleep(0.1)
            assert not exists(trainer.pid), "workers are left"
        finally:
            if exists(trainer.pid):
                os.killpg(trainer.pid, signal.SIGKILL)


def exists(group: int) -> bool:
    """Report whether a process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_batches_of_a_collector_that_is_gone_end(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.plan(4)
    run.commit([Sample("g", i, [3], 2) for i in range(2)])
    batches = iter(rollout.Dataset(run.dir, follow=True, timeout=0.2).batches(1))
    assert [g.id for g in next(batches)] == ["g"]
    with pytest.raises(TimeoutError, match="no commit for 0.2 s after entry 1"):
        next(batches)
