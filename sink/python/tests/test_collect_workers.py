"""collect(workers=N) with the real program: the same groups as one collector, with the same limits
over all workers, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from looping import once
from test_collect_run import LOOPING, Server, collector_of, config, lines, trained_by
from waiting import PATIENCE, alive, wait_for

import rollout
from rollout.collecting._pace import Groups, Pace
from rollout.collecting.merged import partition

N = 3


@pytest.fixture(scope="module")
def server(simulator: Callable[..., Server]) -> Server:
    return simulator("--input-ids", "--scripted", "40", "--drift", "0.3", "--wrong", "0.3", "--latency", "2ms..20ms")


@pytest.fixture
def collect(server: Server, tmp_path: Path) -> Iterator[Callable[..., rollout.Collection]]:
    """collect(tasks, **options) collects with N workers into tmp_path/run. At the end, no process
    of any collection can be alive."""
    pids: set[int] = set()
    made: list[rollout.Collection] = []

    def start(tasks: Any = (), **options: Any) -> rollout.Collection:
        options = {"out": tmp_path / "run", "samples": 2, "workers": N, "timeout": PATIENCE, **options}
        made.append(rollout.collect(options.pop("config", config(server)), tasks, **options))
        return made[-1]

    yield start
    for c in made:
        pids |= {w._child.process.pid for w in getattr(c._supervisor, "workers", []) if w._child}
        c.close()
    assert not [pid for pid in pids if alive(pid)]
    wait_for(lambda: not [t for t in threading.enumerate() if t.name.startswith("rollout-")])  # the iterable's thread ends with its current task


def runs(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir())


def content(group: rollout.Group) -> Any:
    rows = [(r["sample_index"], r["segment_index"], r["input_ids"].tolist(), r["loss_mask"].tolist(), r["reward"]) for r in group.rows]
    return group.size, group.failed, group.empty, rows


def most_ahead(began: Iterable[float], acked: list[float]) -> int:
    """Return how many groups were ahead at most. acked: times at which groups were acknowledged, or
    earlier."""
    starts = list(began)
    return max(sum(s <= at for s in starts) - sum(a <= at for a in acked) for at in starts)


def began(group: rollout.Group) -> float:
    return min(r["started_at"].timestamp() for r in group.rows)


def test_a_task_belongs_to_one_worker() -> None:
    # printf 'rollout partition 1\0a' | sha256sum begins with 4993a987abffb139.
    assert [partition("a", n) for n in (1, 3, 64, 10_000)] == [0x4993A987ABFFB139 % n for n in (1, 3, 64, 10_000)] == [0, 2, 57, 5849]
    assert [partition("ü", n) for n in (1, 3, 64, 10_000)] == [0, 1, 48, 4528]


def test_the_groups_are_those_of_one_collector(collect: Callable[..., rollout.Collection], server: Server, tmp_path: Path, run_program: Callable[..., str]) -> None:
    one = {g.id: content(g) for g in collect(lines(server[1]), out=tmp_path / "one", workers=1)}
    with collect(lines(server[1]), max_ahead=6) as c:
        every = [(g.id, content(g)) for g in c]
        assert c.restarts == 0 and c.counts == {} and c.status() == {"phase": "ended"}
    assert len(every) == len(one) == 40 and dict(every) == one
    assert len(runs(tmp_path / "run")) == N
    for i, run in enumerate(runs(tmp_path / "run")):
        assert {partition(t["id"], N) for t in lines(run / "tasks.jsonl")} == {i}
        run_program("verify", run)


def test_max_ahead_and_versions_are_global(collect: Callable[..., rollout.Collection], server: Server) -> None:
    """Checked with the times at which samples started and groups were acknowledged."""
    most, starts, acked, versions, known = 4, [], [], [], set()
    rng = random.Random(5)
    with collect(lines(server[1]), max_ahead=most) as c:
        for step, group in enumerate(c):
            starts.append(began(group))
            known |= {group.run for row in group.rows if row["policy_version_min"] is not None}
            for row in group.rows:
                said = max((v for at, v in versions if at < row["started_at"].timestamp()), default=None)
                if said is not None:
                    assert row["policy_version_min"] is None or row["policy_version_min"] >= said, "a worker did not have the version"
            time.sleep(rng.choice((0, 0.002, 0.02)))
            if step % 5 == 1:
                c.set_version(step)
                versions.append((time.time(), step))
            acked.append(time.time())  # the next request acknowledges the group
    assert len(starts) == 40 and most_ahead(starts, acked) == most and len(known) == N
    assert len({partition(str(i), N) for i in range(9)}) == N


def test_until_groups_is_exact(collect: Callable[..., rollout.Collection], server: Server, tmp_path: Path) -> None:
    with collect(lines(server[1]), until_groups=5) as c:
        assert len(list(c)) == 5
    assert sum(len(lines(run / "tasks.jsonl")) for run in runs(tmp_path / "run")) == 5, "a group that was not needed has begun"
    with collect(lines(server[1]), out=tmp_path / "std", samples=4, until_groups=5, min_std=0.01, max_ahead=1) as c:
        groups = list(c)
    assert len(groups) == 5 and all(len({r["reward"] for r in g.rows}) > 1 for g in groups)
    with collect(lines(server[1]), until_groups=5) as c:  # a resumed run has enough
        assert list(c) == []
    got = []
    with pytest.raises(rollout.ToleranceError, match="ran out of tasks before reaching until_groups=9: 4 of 4 whole groups"):
        got.extend(collect(lines(server[1])[:4], out=tmp_path / "few", until_groups=9))


def test_a_group_that_waits_for_the_iterable_does_not_hide_enough(collect: Callable[..., rollout.Collection], server: Server) -> None:
    """The last needed group becomes whole while the iterable has no task."""

    def tasks() -> Iterator[dict[str, Any]]:
        yield from lines(server[1])[:3]
        ended.wait()

    ended = threading.Event()
    assert len(list(collect(tasks(), until_groups=3))) == 3
    ended.set()


def test_states(collect: Callable[..., rollout.Collection], server: Server, tmp_path: Path) -> None:
    tasks, states, ids = lines(server[1])[:20], [], []
    with collect(tasks, max_ahead=5) as c:
        states.append(c.state_dict())
        for group in c:
            ids.append(group.id)
            states.append(json.loads(json.dumps(c.state_dict())))
            if len(ids) == 15:
                break
    # The last group was in the hands of a trainer that ended: without a state it comes again.
    with collect(tasks) as c:
        rest = [g.id for g in c]
    assert rest[0] == ids[14] and len(rest) == 6
    for n in (0, 1, 7, 15):
        with collect(tasks, state=states[n]) as c:
            assert [g.id for g in c] == [*ids[:14], *rest][n:], "the order is not the order of the first iteration"
    with collect(tasks) as c:
        assert list(c) == []
        c.load_state_dict(states[3])
        assert [g.id for g in c] == [*ids[:14], *rest][3:]
    with open(tmp_path / "run/workers.jsonl", "ab") as f:
        f.write(b"[1, 2")  # a machine crashed
    with collect(tasks, state=states[12]) as c:
        assert [g.id for g in c] == [*ids[:14], *rest][12:]
    assert all(line.endswith(b"]\n") for line in (tmp_path / "run/workers.jsonl").read_bytes().splitlines(keepends=True)[1:])


def test_a_full_disk_loses_no_group(collect: Callable[..., rollout.Collection], server: Server, tmp_path: Path) -> None:
    order, moved = tmp_path / "run/workers.jsonl", tmp_path / "moved"
    with collect(lines(server[1])[:8]) as c:
        ids = [next(c).id for _ in range(3)]
        order.rename(moved)
        order.mkdir()  # it cannot be written
        for _ in range(2):
            with pytest.raises(IsADirectoryError):
                next(c)
        order.rmdir()
        moved.rename(order)
        ids += [g.id for g in c]
    assert len(ids) == len(set(ids)) == 8 and order.read_bytes().count(b"\n") == 9


def test_filters(collect: Callable[..., rollout.Collection], server: Server, tmp_path: Path) -> None:
    """With two samples, most groups have equal rewards. They must not count as ahead."""
    where = rollout.Where(reward_variance=True)
    with collect(lines(server[1]), max_ahead=2, where=where) as c:
        groups = list(c)
        assert len(groups) + c.counts["reward_variance"]["groups"] == 40
    with collect(lines(server[1]), max_ahead=3, where=where, ack="manual", out=tmp_path / "manual") as c:
        for _ in range(3):
            assert len([next(c) for _ in range(3)]) == 3
            c.ack()


def test_another_number_of_workers_is_refused(collect: Callable[..., rollout.Collection], server: Server, tmp_path: Path) -> None:
    tasks = lines(server[1])[:3]
    with collect(tasks) as c:
        state = c.state_dict()
        assert len(list(c)) == 3
    for n in (1, 2, 4):
        with pytest.raises(rollout.FolderError, match=f"the run has 3 workers, not {n}.*\nhint: pass workers=3"):
            collect(tasks, workers=n)
    with collect(tasks, out=tmp_path / "one", workers=1) as c:
        assert len(list(c)) == 3
        single = c.state_dict()
    with pytest.raises(rollout.FolderError, match="contains a run of one worker"):
        collect(tasks, out=tmp_path / "one")
    for wrong in (single, {"workers": state["workers"][:2]}, {"workers": 3}):
        with pytest.raises(rollout.StateError, match="is not a state of 3 workers"):
            collect(tasks, state=wrong)
    with pytest.raises(rollout.StateError, match="is not a cursor"):
        collect(tasks, state=state, out=tmp_path / "new", workers=1)
    with pytest.raises(rollout.StateError, match="contains no run"):
        collect(tasks, state={"workers": [{"run_id": "r", "seq": 1, "groups": 1}] * N}, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_killed_worker_is_restarted(collect: Callable[..., rollout.Collection], server: Server, tmp_path: Path) -> None:
    ids, starts, acked = [], [], []
    with collect(lines(server[1]), max_ahead=4) as c:
        for n, group in enumerate(c):
            ids.append(group.id)
            starts.append(began(group))
            if n in (5, 6, 20) and (pid := collector_of(tmp_path / f"run/{n % N:04}")):
                os.kill(pid, signal.SIGKILL)
            acked.append(time.time())
        assert c.restarts >= 2
    assert len(ids) == len(set(ids)) == 40 and most_ahead(starts, acked) <= 4


def test_a_restart_lets_no_more_groups_start(collect: Callable[..., rollout.Collection], simulator: Callable[..., Server], tmp_path: Path) -> None:
    """Each worker runs one sample at a time. So when it is killed, it has a task whose group has not
    started."""
    slow = simulator("--input-ids", "--scripted", "40", "--latency", "300ms")

    def accepted() -> int:
        return sum((run / "tasks.jsonl").read_bytes().count(b"\n") for run in runs(tmp_path / "run") if (run / "tasks.jsonl").exists())

    settings = config(slow)
    settings["server"]["max_in_flight"] = 1
    with collect(lines(slow[1]), config=settings, samples=1, max_ahead=6, ack="manual") as c:
        wait_for(lambda: accepted() == 6)
        for run in runs(tmp_path / "run"):
            os.kill(collector_of(run) or 0, signal.SIGKILL)
        assert len({next(c).id for _ in range(6)}) == 6
        assert c.restarts == N and c.within(0.3) is None and accepted() == 6


def test_a_task_that_is_known_is_not_held(collect: Callable[..., rollout.Collection], server: Server) -> None:
    """As many groups as max_ahead are in the trainer's hands, and there is nothing else to collect."""
    tasks = lines(server[1])[:3]
    for _ in range(2):
        with collect(tasks, max_ahead=3, ack="manual") as c:
            assert len(list(c)) == 3


def test_an_error_of_one_worker_ends_all(collect: Callable[..., rollout.Collection], server: Server, tmp_path: Path) -> None:
    given = threading.Event()

    def tasks() -> Iterator[dict[str, Any]]:
        yield from lines(server[1])[:6]
        given.wait(PATIENCE)
        yield {"id": "x", "promt": "p"}

    with collect(tasks()) as c:
        next(c)
        pids = [collector_of(tmp_path / f"run/{i:04}") for i in range(N)]
        given.set()
        with pytest.raises(rollout.UsageError, match="run/000[0-2]: task x: "):
            list(c)
        assert len(pids) == N
        wait_for(lambda: not any(pid and alive(pid) for pid in pids))
    wrong = config(server) | {"tasks": {"file": str(server[1])}}
    with pytest.raises(rollout.UsageError, match="cannot share tasks.file"):
        next(collect(None, config=wrong, out=tmp_path / "file"))

    def tasks_that_fail() -> Iterator[dict[str, Any]]:
        yield lines(server[1])[0]
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(collect(tasks_that_fail(), out=tmp_path / "fails"))


def test_async_iteration_pauses_and_drains(collect: Callable[..., rollout.Collection], server: Server) -> None:
    async def tasks() -> AsyncIterator[dict[str, Any]]:
        for task in lines(server[1]):
            yield task

    async def main() -> int:
        n = 0
        async with collect(tasks(), max_ahead=4) as c:
            async for _ in c:
                n += 1
                if n == 3:
                    c.pause()
                    assert c.status()["paused"]
                    c.resume()
                if n == 8:
                    c.pause()
                    c.drain()  # also ends the pause
        return n

    assert 8 <= asyncio.run(main()) < 16


def test_a_killed_trainer_resumes_all_workers(server: Server, tmp_path: Path) -> None:
    """Each group is trained once, from the last checkpoint on."""
    (tmp_path / "tasks.jsonl").write_text("\n".join(server[1].read_text().splitlines()[:30]))
    wishes = json.dumps({"config": config(server), "samples": 2, "max_ahead": 4, "workers": N})
    for kill in (4, 12, None):
        trainer = subprocess.Popen([sys.executable, LOOPING, tmp_path, wishes])
        try:
            if kill is not None:
                wait_for(lambda: trained_by(tmp_path) >= kill or trainer.poll() is not None)
                pids = [pid for pid in (collector_of(run) for run in runs(tmp_path / "run")) if pid]
                trainer.kill()
                assert trainer.wait() == -signal.SIGKILL and len(pids) == N
                wait_for(lambda: not any(alive(pid) for pid in pids))
            else:
                assert trainer.wait(PATIENCE) == 0
        finally:
            trainer.kill()
            trainer.wait()
    assert once(json.loads((tmp_path / "checkpoint.json").read_text())["trained"], 30) == []


def test_the_pace_is_that_of_one_collector() -> None:
    """The example in the documentation of the Go package pace: at most one version behind, in
    batches of four."""
    pace = Pace()
    pace.max_lag = 1
    for version in range(3):
        pace.set_version(version, given=0)
        pace.acknowledged(4 if version < 2 else 2)  # and two of the third batch
    held = float("inf")
    assert pace.wait([Groups(2, 1, 20, 20), Groups(1, 1, 20, 20)]) == 0  # N = 7
    assert pace.wait([Groups(3, 1, 20, 20), Groups(1, 1, 20, 20)]) == held  # N = 8
    assert pace.wait([Groups(3, 1, 20, 60), Groups(1, 1, 20, 20)]) == 0  # half of them are informative
    pace.set_version(3, given=1)
    assert pace.wait([Groups(3, 1, 20, 20), Groups(1, 1, 20, 20)]) == 0
    pace.acknowledged(9)
    assert pace.wait([Groups(1, 0, 20, 20)]) == held
    pace.arrived(0.2)
    assert 0 < pace.wait([Groups(0, 0, 20, 20)]) <= 0.3, "the trainer can need more groups than ever before"
    wait_for(lambda: pace.wait([Groups(0, 0, 20, 20)]) == 0)
