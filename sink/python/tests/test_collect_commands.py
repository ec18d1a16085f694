"""The messages of collect() to its process, standin.py, and its behavior without an answer."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE, alive, heard, prompts, wait_for

import rollout
from rollout.collecting import commands, supervisor
from rollout.collecting._control import Control
from rollout.collecting.tasks import Source


def versions(run: Path) -> list[int]:
    return [r["version"] for r in heard(run, "set-version")]


def test_a_process_that_says_much_before_it_answers(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    with stand_in(prompts(3), standin={"noisy": 3000}, max_ahead=2) as c:
        c.set_version(2)
        assert [g.id for g in c] == ["g1", "g2", "g3"]
        assert c.restarts == 0
    assert versions(tmp_path / "run") == [2]


def test_a_late_answer(
    stand_in: Callable[..., rollout.Collection], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with stand_in(prompts(5), standin={"late": "set-version"}, max_ahead=1) as c:
        assert next(c).id == "g1"
        monkeypatch.setattr(commands, "PATIENCE", 0.5)
        c.set_version(3)
        assert "has not answered 'set-version' for 0.5 s" in caplog.text
        wait_for(lambda: versions(tmp_path / "run") == [3])
        c.set_version(4)
        assert c.status()["run_id"] == "r" and versions(tmp_path / "run") == [3], "a word said again may overtake another"
        (tmp_path / "run/answer").touch()
        monkeypatch.setattr(commands, "PATIENCE", PATIENCE)
        c.set_version(5)
        assert [g.id for g in c] == ["g2", "g3", "g4", "g5"], "acknowledgements came through"
        assert c.restarts == 0
    heard_versions = versions(tmp_path / "run")
    assert heard_versions[0] == 3 and heard_versions[-1] == 5 and heard_versions == sorted(set(heard_versions))


def test_a_word_holds_for_the_tasks_after_it(stand_in: Callable[..., rollout.Collection], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "PATIENCE", 0.1)
    with stand_in(None, standin={"late": "set-version"}) as c:
        c.set_version(7)
        for task in prompts(2):
            c.add(task)
        wait_for(lambda: versions(tmp_path / "run") == [7])
        c.status()
        assert not heard(tmp_path / "run", "task"), "its samples would begin under no version"
        (tmp_path / "run/answer").touch()
        assert next(c).id == "g1"


@pytest.mark.parametrize("op", ["set-version", "ack", "task", "status"])
def test_a_connection_that_breaks(stand_in: Callable[..., rollout.Collection], tmp_path: Path, op: str) -> None:
    with stand_in(prompts(4), standin={"drop": op}, max_ahead=1) as c:
        c.status()
        c.set_version(3)
        assert [g.id for g in c] == ["g1", "g2", "g3", "g4"]
        assert c.restarts == 0
    assert set(versions(tmp_path / "run")) == {3} and len(heard(tmp_path / "run", "start")) == 1


def test_a_process_that_is_stopped(stand_in: Callable[..., rollout.Collection], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stand_in(prompts(3), max_ahead=1) as c:
        assert next(c).id == "g1"
        pid = heard(tmp_path / "run", "start")[-1]["pid"]
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError, match="the collector did not answer within 0.3 s and might be suspended"):
            c.status(0.3)
        monkeypatch.setattr(commands, "PATIENCE", 0.05)
        for version in range(5):
            c.set_version(version)
        with pytest.raises(TimeoutError):
            c.status(0.3)
        os.kill(pid, signal.SIGCONT)
        assert c.status()["run_id"] == "r"
        assert [g.id for g in c] == ["g2", "g3"]
    got = versions(tmp_path / "run")
    assert got[-1] == 4 and got == sorted(got)


def test_the_status_of_a_process_that_has_ended(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    c = stand_in(prompts(1))
    assert len(list(c)) == 1 and c.status() == {"phase": "ended"}
    c = stand_in(prompts(1), standin={"exit": [2, "panic: no"]}, out=tmp_path / "run2", restarts=0)
    with pytest.raises(rollout.CrashError):
        c.status()
    c.close()
    with pytest.raises(rollout.CrashError):
        c.status()


def test_a_word_that_is_refused(stand_in: Callable[..., rollout.Collection], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stand_in(prompts(4), standin={"kill": 2, "starts": 1}) as c:
        c.status()
        c.set_version(1)
        with pytest.raises(rollout.UsageError, match="set-version: the version is negative"):
            c.set_version(-1)
        assert len(list(c)) == 4 and c.restarts == 1
    assert versions(tmp_path / "run") == [1, -1, 1], "the refused version is told again"
    assert not any(a.startswith("--policy-version") for s in heard(tmp_path / "run", "start") for a in s["args"]), "a newer one may be said meanwhile"
    with stand_in(None, out=tmp_path / "run2") as c:
        c.status()
        monkeypatch.setattr(commands, "PATIENCE", 0)
        c.set_version(-1)  # no caller waits for the answer
        with pytest.raises(rollout.UsageError, match="set-version: the version is negative"):
            next(c)


@pytest.mark.parametrize("who", ["nobody", "the trainer", "rollout ctl"])
def test_the_version_of_a_flag_is_of_the_first_process(stand_in: Callable[..., rollout.Collection], tmp_path: Path, who: str) -> None:
    run = tmp_path / "run"
    with stand_in(None, standin={"kill": 1, "starts": 2}, flags=["--policy-version=5"]) as c:
        c.status()
        if who == "the trainer":
            c.set_version(6)
        elif who == "rollout ctl":
            with contextlib.closing(Control(str(run / "ctl.sock"))) as control:
                control.ask("set-version", 10, version=6)
        for task in prompts(3):
            c.add(task)
            next(c)
    for n, start in enumerate(heard(run, "start")):
        assert ("--unclaimed" in start["args"]) == (n > 0 and who != "nobody"), "samples would have the older version until it hears the newer one"
    assert len(heard(run, "start")) == 3


def test_a_refusal_after_ctrl_c(stand_in: Callable[..., rollout.Collection], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stand_in(None, standin={"late": "set-version"}) as c:
        c.status()
        with monkeypatch.context() as patch:
            changed, main = c._commands._changed, threading.current_thread()
            wait_as_ever = changed.wait_for

            def interrupted(*args: Any) -> bool:
                if threading.current_thread() is main:
                    raise KeyboardInterrupt
                return wait_as_ever(*args)

            patch.setattr(changed, "wait_for", interrupted)
            with pytest.raises(KeyboardInterrupt):
                c.set_version(-1)
        (tmp_path / "run/answer").touch()
        with pytest.raises(rollout.UsageError, match="set-version: the version is negative"):
            c.within(PATIENCE)


def test_an_error_while_the_process_starts(stand_in: Callable[..., rollout.Collection], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    class Slow(supervisor.Child):
        def __init__(self, *args: Any) -> None:
            failed.wait(PATIENCE)
            super().__init__(*args)

    def tasks() -> Iterator[dict[str, Any]]:
        raise KeyError("mine")
        yield {}

    monkeypatch.setattr(supervisor, "Child", Slow)
    c = stand_in(tasks())
    with pytest.raises(KeyError, match="mine"):
        next(c)
    failed.set()
    supervise = c._supervisor._threads[0]
    supervise.join(PATIENCE)
    assert not supervise.is_alive() and c._supervisor._child is not None
    assert not alive(c._supervisor._child.process.pid)


def test_nothing_tells_to_continue_what_was_meant_to_end(
    stand_in: Callable[..., rollout.Collection], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with stand_in(None) as c:
        c.add({"prompt": "p"})
        assert next(c).id == "g1"
    wait_for(lambda: not alive(heard(tmp_path / "run", "start")[-1]["pid"]))
    assert caplog.messages == []


def test_the_end_of_the_tasks_leaves_a_pause(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    run, more = tmp_path / "run", threading.Event()

    def tasks() -> Iterator[dict[str, Any]]:
        yield {"prompt": "p"}
        more.wait(PATIENCE)

    with stand_in(tasks()) as c:
        assert next(c).id == "g1"
        c.pause()
        more.set()
        c._supervisor._threads[1].join(PATIENCE)  # has no more tasks to pass
        c.set_version(2)  # is sent after what was due
        os.kill(heard(run, "start")[-1]["pid"], signal.SIGKILL)
        wait_for(lambda: len(heard(run, "pause")) == 2)
        c.set_version(3)
        assert heard(run, "drain") == []
        c.resume()
        assert list(c) == []
    assert len(heard(run, "drain")) == 1


def test_a_drain_ends_a_pause_before_it_alone(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    run = tmp_path / "run"
    with stand_in(None) as c:
        c.status()
        c.pause()
        c.add({"prompt": "p"})
        c.drain()
        assert [g.id for g in c] == ["g1"]
        assert [len(heard(run, op)) for op in ("pause", "resume", "drain")] == [1, 1, 1]
    run = tmp_path / "run2"
    with stand_in(None, out=run, max_ahead=1, ack="manual") as c:
        c.add({"id": "a", "prompt": "p"})
        first = next(c)
        c.add({"id": "b", "prompt": "p"})
        wait_for(lambda: len(heard(run, "task")) == 2)  # waits for the acknowledgement
        c.pause()
        c.drain()
        c.pause()
        c.set_version(1)
        c.ack(first)
        assert c.within(0.3) is None, "the pause was lifted"
        c.resume()
        assert next(c).id == "gb"
        c.ack()
        assert list(c) == []


def test_a_pause_after_the_end(stand_in: Callable[..., rollout.Collection]) -> None:
    with stand_in(prompts(1)) as c:
        wait_for(lambda: c.over)
        c.pause()
        assert [g.id for g in c] == ["g1"]
        c.resume()
        assert list(c) == []


def test_what_began_is_kept_for_a_task_alone(stand_in: Callable[..., rollout.Collection]) -> None:
    with stand_in(None, standin={"noisy": 500}) as c:
        c.status()
        c.add({"prompt": "p"})
        assert next(c).id == "g1"
        wait_for(lambda: not c._supervisor._waits)
        assert c._supervisor._begun == set()


def test_a_signal_during_the_last_word(stand_in: Callable[..., rollout.Collection], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(timeout: float) -> None:
        raise KeyboardInterrupt

    c = stand_in(None)
    c.status()
    monkeypatch.setattr(c._commands, "flush", interrupted)
    with pytest.raises(KeyboardInterrupt):
        c.close()
    assert not alive(heard(tmp_path / "run", "start")[-1]["pid"])


def test_an_error_of_the_iterable_after_a_drain() -> None:
    asked, drained = threading.Event(), threading.Event()

    def tasks() -> Iterator[dict[str, Any]]:
        asked.set()
        drained.wait(PATIENCE)
        raise KeyError("nobody wants it")
        yield {}

    source = Source(tasks())
    taker = threading.Thread(target=source.take)
    taker.start()
    assert asked.wait(PATIENCE)
    source.add({"id": "a"})
    taker.join(PATIENCE)
    source.add({"id": "b"})
    source.end()
    drained.set()
    wait_for(lambda: not [t for t in threading.enumerate() if t.name == "rollout-iterable"])
    assert source.take() == {"id": "b"} and source.take() is None


class _Alarm(Exception):
    pass


@pytest.mark.parametrize("call", [functools.partial(commands.Commands("run").acknowledge, (1, 0)), Source(None).end, supervisor.News()._notify], ids=["commands", "source", "news"])
def test_a_signal_leaves_no_lock_held(call: Callable[[], object]) -> None:
    """A Ctrl-C can come between any two instructions of the trainer's thread."""
    stop, alarms = threading.Event(), 0

    def repeat() -> None:
        while not stop.is_set():
            call()

    def ring(*_: object) -> None:
        raise _Alarm

    others = [threading.Thread(target=repeat, daemon=True) for _ in range(3)]
    before = signal.signal(signal.SIGALRM, ring)
    for thread in others:
        thread.start()
    try:
        while alarms < 100:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.003)
                while True:
                    call()
            except _Alarm:
                alarms += 1
    finally:
        signal.signal(signal.SIGALRM, before)
        stop.set()
    for thread in others:
        thread.join(10)
    assert not any(thread.is_alive() for thread in others)
