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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from looping import once
from test_collect_run import LOOPING, Server, collector_of, config, lines, trained_by
from waiting import PATIENCE, alive, wait_for

import rollout
from rollout.collecting import _pace, commands
from rollout.collecting._settings import Limits, Settings
from rollout.collecting.merged import partition
from rollout.collecting.tasks import Source
from rollout.collecting.workers import Worker, Workers

N = 3
CHILD: Any = SimpleNamespace(launched=True)


@pytest.fixture(scope="module")
def server(simulator: Callable[..., Server]) -> Server:
    return simulator("--input-ids", "--scripted", "40", "--drift", "0.3", "--wrong", "0.3", "--latency", "2ms..20ms")


@pytest.fixture
def collect(server: Server, tmp_path: Path) -> Iterator[Callable[..., rollout.Collection]]:
    """collect(tasks, **options) collects with N workers into tmp_path/run. At the end, no process
    of any collection can be alive."""
    pids: set[int] = set()
    made: list[rollout.Collection] = []
    others = set(threading.enumerate())  # an iterable of another test can still wait

    def start(tasks: Any = (), **options: Any) -> rollout.Collection:
        options = {"out": tmp_path / "run", "samples": 2, "workers": N, "timeout": PATIENCE, **options}
        made.append(rollout.collect(options.pop("config", config(server)), tasks, **options))
        return made[-1]

    yield start
    for c in made:
        pids |= {w._child.process.pid for w in getattr(c._supervisor, "workers", []) if w._child}
        c.close()
    assert not [pid for pid in pids if alive(pid)]
    wait_for(lambda: not [t for t in set(threading.enumerate()) - others if t.name.startswith("rollout-")])  # the iterable's thread ends with its current task


def runs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*-of-*"))


def tasks_of(folder: Path) -> list[list[str]]:
    """Return the accepted tasks of each run."""
    files = [run / "tasks.jsonl" for run in runs(folder)]
    return [file.read_text().splitlines() if file.exists() else [] for file in files]


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
    assert [partition(b"a", n) for n in (1, 3, 64, 10_000)] == [0x4993A987ABFFB139 % n for n in (1, 3, 64, 10_000)] == [0, 2, 57, 5849]
    assert [partition("ü".encode(), n) for n in (1, 3, 64, 10_000)] == [0, 1, 48, 4528]


def test_the_groups_are_those_of_one_collector(collect: Callable[..., rollout.Collection], server: Server, tmp_path: Path, run_program: Callable[..., str]) -> None:
    one = {g.id: content(g) for g in collect(lines(server[1]), out=tmp_path / "one", workers=1)}
    with collect(lines(server[1]), max_ahead=6) as c:
        every = [(g.id, content(g)) for g in c]
        assert c.restarts == 0 and c.counts == {} and c.status() == {"phase": "ended"}
    assert len(every) == len(one) == 40 and dict(every) == one
    assert len(runs(tmp_path / "run")) == N
    for i, run in enumerate(runs(tmp_path / "run")):
        assert {partition(t["id"].encode(), N) for t in lines(run / "tasks.jsonl")} == {i}
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


def test_until_groups_is_exact(collect: Callable[..., rollout.Collection], server: Server, tmp_path: Path) -> None:
    with collect(lines(server[1]), until_groups=5) as c:
        assert len(list(c)) == 5
    assert sum(map(len, tasks_of(tmp_path / "run"))) == 5, "a group that was not needed has begun"
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
    assert ids[14] in rest and len(rest) == 6 and len({*ids, *rest}) == 20
    for n in (0, 1, 7, 15):
        with collect(tasks, state=states[n]) as c:
            again = [g.id for g in c]
        assert len(again) == 20 - n and {*again} == {*ids, *rest} - {*ids[:n]}
    with collect(tasks, max_ahead=5) as c:
        assert list(c) == []
        c.load_state_dict(states[3])
        assert {g.id for g in c} == {*ids, *rest} - {*ids[:3]}


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
    (tmp_path / "run").mkdir()
    (tmp_path / "run/notes.txt").touch()
    with collect(tasks) as c:
        state = c.state_dict()
        assert len(list(c)) == 3
    with collect(tasks, out=tmp_path / "one", workers=1) as c:
        assert len(list(c)) == 3
        single = c.state_dict()
    for folder, had, n in (("run", 3, 1), ("run", 3, 2), ("run", 3, 4), ("one", 1, 3)):
        with pytest.raises(rollout.FolderError, match=f"{folder}: the run has workers={had}, not {n}.*\nhint: pass workers={had}"):
            collect(tasks, out=tmp_path / folder, workers=n)
    for wrong in (single, {"workers": state["workers"][:2]}, {"workers": 3}):
        with pytest.raises(rollout.StateError, match="is not a state of 3 workers"):
            collect(tasks, state=wrong)
    with pytest.raises(rollout.StateError, match="is not a cursor"):
        collect(tasks, state=state, out=tmp_path / "new", workers=1)
    with pytest.raises(rollout.StateError, match="contains no run"):
        collect(tasks, state={"workers": [{"run_id": "r", "seq": 1, "groups": 1}] * N}, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("n", [1, 2])
def test_the_folder_of_a_fleet_is_refused(collect: Callable[..., rollout.Collection], tmp_path: Path, n: int) -> None:
    (tmp_path / "fleet.json").write_text("{}")
    with pytest.raises(rollout.FolderError, match="the folder contains a fleet\nhint: collect it with rollout.ray.collect or"):
        collect([], out=tmp_path, workers=n)
    assert [file.name for file in tmp_path.iterdir()] == ["fleet.json"]


def test_a_killed_worker_is_restarted(collect: Callable[..., rollout.Collection], server: Server, tmp_path: Path) -> None:
    ids, starts, acked = [], [], []
    with collect(lines(server[1]), max_ahead=4) as c:
        for n, group in enumerate(c):
            ids.append(group.id)
            starts.append(began(group))
            if n in (5, 6, 20) and (pid := collector_of(runs(tmp_path / "run")[n % N])):
                os.kill(pid, signal.SIGKILL)
            acked.append(time.time())
        assert c.restarts >= 2
    assert len(ids) == len(set(ids)) == 40 and most_ahead(starts, acked) <= 4


def test_a_restart_lets_no_more_groups_start(collect: Callable[..., rollout.Collection], simulator: Callable[..., Server], tmp_path: Path) -> None:
    """Each worker runs one sample at a time. So when it is killed, it has a task whose group has not
    started."""
    slow = simulator("--input-ids", "--scripted", "40", "--latency", "300ms")

    def accepted() -> int:
        return sum(map(len, tasks_of(tmp_path / "run")))

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
        pids = [collector_of(run) for run in runs(tmp_path / "run")]
        given.set()
        with pytest.raises(rollout.UsageError, match="run/000[0-2]-of-0003: task x: "):
            list(c)
        assert len(pids) == N
        wait_for(lambda: not any(pid and alive(pid) for pid in pids))
    wrong = config(server) | {"tasks": {"file": str(server[1])}}
    with pytest.raises(rollout.UsageError, match="cannot share tasks.file"):
        next(collect(None, config=wrong, out=tmp_path / "file"))
    with pytest.raises(rollout.UsageError, match="cannot share the port of run.metrics_addr; use port 0"):
        next(collect(None, flags=["--metrics-addr=127.0.0.1:39123"], out=tmp_path / "port"))

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
    wishes = {"config": config(server), "samples": 2, "max_ahead": 4, "workers": N}
    for end, how in ((4, signal.SIGKILL), (12, signal.SIGINT), (30, None)):
        trainer = subprocess.Popen([sys.executable, LOOPING, tmp_path, json.dumps({**wishes, "hold": end + 8})], stderr=subprocess.DEVNULL)
        try:
            if how is None:
                assert trainer.wait(PATIENCE) == 0
                break
            wait_for(lambda: trained_by(tmp_path) >= end or trainer.poll() is not None)
            pids = [pid for pid in (collector_of(run) for run in runs(tmp_path / "run")) if pid]
            trainer.send_signal(how)
            assert trainer.wait(PATIENCE) == -how and len(pids) == N
            if how == signal.SIGKILL:
                wait_for(lambda: not any(alive(pid) for pid in pids))
            assert not any(alive(pid) for pid in pids), "Ctrl-C left a collector"
        finally:
            trainer.kill()
            trainer.wait()
    assert once(json.loads((tmp_path / "checkpoint.json").read_text())["trained"], 30) == []


def test_all_workers_end_in_one_grace_period(
    collect: Callable[..., rollout.Collection], simulator: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same holds for the time to set a version."""
    slow = simulator("--input-ids", "--scripted", "40", "--latency", "3s")
    monkeypatch.setattr(commands, "PATIENCE", 2.0)
    c = collect(lines(slow[1]), config=config(slow), grace=2)
    wait_for(lambda: c.status()["in_flight"] >= N)
    for run in runs(tmp_path / "run"):
        os.kill(collector_of(run) or 0, signal.SIGSTOP)
    for call in (lambda: c.set_version(1), c.close):
        began = time.monotonic()
        call()
        assert 1.9 < time.monotonic() - began < 3.9


def test_a_crash_ends_workers_that_do_not_answer(collect: Callable[..., rollout.Collection], simulator: Callable[..., Server], tmp_path: Path) -> None:
    slow = simulator("--input-ids", "--scripted", "40", "--latency", "3s")
    c = collect(lines(slow[1]), config=config(slow), grace=60, restarts=0)
    wait_for(lambda: c.status()["in_flight"] >= N)
    first, *others = [collector_of(run) or 0 for run in runs(tmp_path / "run")]
    try:
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        os.kill(first, signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(rollout.CrashError, match="run/0000-of-0003: the collector was killed by signal 9"):
            list(c)
        assert time.monotonic() - began < 30, "the error came only after the other workers had ended"
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def test_a_full_worker_does_not_hold_the_others(collect: Callable[..., rollout.Collection], simulator: Callable[..., Server], tmp_path: Path) -> None:
    slow = simulator("--input-ids", "--scripted", "40", "--latency", "3s")
    settings = config(slow)
    settings["server"]["max_in_flight"] = 1
    tasks = sorted(lines(slow[1]), key=lambda t: partition(t["id"].encode(), 2))
    other = next(i for i, t in enumerate(tasks) if partition(t["id"].encode(), 2) == 1)
    collect(tasks[other - 6 : other + 1], config=settings, samples=1, workers=2)
    wait_for(lambda: [bool(tasks) for tasks in tasks_of(tmp_path / "run")] == [True, True])
    assert len(tasks_of(tmp_path / "run")[0]) < 4


def test_max_lag_with_versions_from_a_page(collect: Callable[..., rollout.Collection], server: Server) -> None:
    """The trainer takes four groups per version, and max_lag is 0."""
    version, taken, known = [0], [0], threading.Event()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"weight_version": str(version[0])}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    def tasks() -> Iterator[dict[str, Any]]:
        some = lines(server[1])
        for taken[0] in range(1000):
            if taken[0] == 16:
                known.wait(PATIENCE)
            yield some[taken[0] % len(some)] | {"id": str(taken[0])}

    page = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    settings = config(server) | {"tokens": {"policy_version": f"http://127.0.0.1:{page.server_port}/"}}
    try:
        with collect(tasks(), config=settings, samples=1, max_lag=0, flags=["--one-engine"]) as c:
            for version[0] in range(5):
                wait_for(lambda: {w["version"] for w in c.status()["workers"]} == {version[0]})
                if version[0] == 4:
                    known.set()
                for _ in range(4):
                    next(c)
            time.sleep(0.3)  # enough for hundreds of groups
            assert taken[0] < 40
    finally:
        page.shutdown()
        page.server_close()


@pytest.fixture
def fleet(tmp_path: Path) -> Workers:
    """Two workers without processes."""
    out = Workers("none", str(tmp_path), [str(tmp_path / name) for name in "ab"], Settings(), Source(None), Limits())
    for worker in out.workers:
        Path(worker.run).mkdir()
        launch(worker, [])
        report(worker)
    return out


def launch(worker: Worker, tasks: list[str]) -> None:
    (Path(worker.run) / "tasks.jsonl").write_text("".join(json.dumps({"id": name}) + "\n" for name in tasks))
    worker._handle_event(CHILD, {"event": "launch", "socket": "ctl.sock"})


def report(worker: Worker, **numbers: float) -> None:
    """The process reports its numbers of groups."""
    event = {"event": "pace", "max_ahead": 0, "max_lag": 0, "until_groups": 0, "whole": 0, "informative": 0, "given": 0, "version": -1}
    worker._handle_event(CHILD, event | {"group_seconds": 5, "version_seconds": 10} | numbers)


def held(fleet: Workers) -> bool:
    return fleet._held(fleet.workers[0], b"next") > 0


def test_a_group_counts_once(fleet: Workers) -> None:
    """The limit is four groups."""
    one, other = fleet.workers
    launch(one, ["a"])  # an earlier trainer has passed it
    for name in "bc":
        one.add({"id": name}, name.encode())
    report(other, max_ahead=4)
    report(one, max_ahead=4)
    assert not held(fleet)
    other.add({"id": "d"}, b"d")
    assert held(fleet), "a task that was passed counts, even before its group starts"
    assert fleet._held(one, b"a") == 0
    one._handle_event(SimpleNamespace(launched=False), {"event": "pace"})  # a new process still reads the log
    launch(one, ["a", "b"])  # a task is sent to the next process if it was not accepted
    report(one, max_ahead=4, whole=1, informative=1, given=1)
    assert held(fleet)
    report(one, max_ahead=4, whole=1, informative=1)
    assert not held(fleet)
    for worker in (other, one):
        worker._handle_event(CHILD, {"event": "accepted", "task": "c" if worker is one else "e"})
    assert held(fleet), "another client has added a task"
    report(other, max_ahead=4, whole=1)
    assert not held(fleet)


def test_max_lag_is_that_of_one_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one version behind, in batches of four: the example of the Go package pace."""
    clock, pace, held = [0.0], _pace.Pace(), float("inf")
    monkeypatch.setattr(_pace, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def report(informative: int, acked: int, version: int, filtered: int = 0, behind: int = 1) -> None:
        """One of two collectors has one group, and an older version."""
        first = {"max_ahead": 0, "max_lag": 1, "until_groups": 0, "group_seconds": 5, "version_seconds": 10}
        first |= {"whole": 1, "informative": 1, "given": 0, "version": version - behind}
        pace.update([first, first | {"whole": informative - 1 + filtered, "informative": informative - 1, "given": informative - acked, "version": version}])

    for version in range(3):
        clock[0] += 10
        report(4 * version + 4, 4 * version + 3, version)  # the last group of a batch is acknowledged with the request for the next one
    report(16, 14, 2)
    assert pace.wait(3) == 0  # N = 7
    assert pace.wait(4) == held  # N = 8
    report(16, 14, 2, filtered=16)
    assert pace.wait(4) == 0  # half of the groups are informative
    report(16, 14, 3, behind=2)
    assert pace.wait(4) == 0
    report(24, 24, 3)
    assert pace.wait(1) == held
    assert pace.wait(0) == 15, "the trainer can need more groups than ever before"
    pace.pause(True)
    clock[0] += 1000
    assert pace.wait(0) == held
    pace.pause(False)
    assert pace.wait(0) == 5
    clock[0] += 5
    assert pace.wait(0) == 0
