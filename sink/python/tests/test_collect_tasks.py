"""The tasks of collect(): added ones, tasks of an iterable, and their values."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import PATIENCE, heard, prompts, wait_for

import rollout
from rollout.collecting._control import Control

ADDED = 1000


def test_added_tasks_are_collected_before_a_drain(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    with stand_in(None, max_ahead=8) as c:
        for i in range(ADDED):
            c.add({"id": str(i), "prompt": "p"})
        c.drain()
        assert [g.id for g in c] == [f"g{i}" for i in range(ADDED)]
    assert len(heard(tmp_path / "run", "drain")) == 1


def test_a_drain_does_not_wait_for_the_iterable(stand_in: Callable[..., rollout.Collection]) -> None:
    begun, end = threading.Event(), threading.Event()

    def tasks() -> Iterator[dict[str, Any]]:
        yield {"prompt": "p"}
        begun.set()
        end.wait(PATIENCE)
        yield {"prompt": "after the drain"}

    with stand_in(tasks()) as c:
        assert next(c).id == "g1"
        assert begun.wait(PATIENCE)
        c.add({"id": "a", "prompt": "p"})
        assert next(c).id == "ga", "an added task waits for the iterable"
        c.add({"id": "b", "prompt": "p"})
        c.drain()
        assert [g.id for g in c] == ["gb"]
        end.set()


def test_a_drain_is_said_again(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    with stand_in(None, standin={"kill": 3}) as c:
        c.pause()
        for i in range(7):
            c.add({"id": str(i), "prompt": "p"})
        c.drain()
        wait_for(lambda: heard(tmp_path / "run", "drain"))
        c.resume()
        assert [g.id for g in c] == [f"g{i}" for i in range(7)]
        assert c.restarts == 2
    assert len(heard(tmp_path / "run", "drain")) >= 3


def test_a_drain_by_another_process_is_said_again(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    run = tmp_path / "run"
    first, second, third = ({"id": name, "prompt": "p"} for name in "abc")
    with stand_in(None, max_ahead=1, ack="manual") as c:
        c.add(first)
        assert next(c).id == "ga"
        c.add(second)  # cannot start
        wait_for(lambda: len(heard(run, "task")) == 2)
    with stand_in(None, max_ahead=1, ack="manual") as c:
        c.status()
        with contextlib.closing(Control(str(run / "ctl.sock"))) as outside:
            assert outside.ask("drain", PATIENCE)["ok"]
        known = len(heard(run, "status"))
        c.add(third)
        wait_for(lambda: len(heard(run, "status")) > known)  # queried for the reason of the refusal
        wait_for(lambda: not c._supervisor._threads[1].is_alive())
        os.kill(heard(run, "start")[-1]["pid"], signal.SIGKILL)
        got = []
        for group in c:
            got.append(group.id)
            c.ack()
        assert got == ["ga", "gb"] and c.restarts == 1
    assert len(heard(run, "drain")) >= 2


def test_numbers_of_numpy(stand_in: Callable[..., rollout.Collection], tmp_path: Path) -> None:
    task = {"id": "a", "prompt": np.str_("p"), "samples": np.int64(2), "metadata": {"x": np.arange(3), "y": [np.float32(0.5), np.bool_(True)], "z": (1, None)}}
    with stand_in([task]) as c:
        assert len(list(c)) == 1
    want = {"id": "a", "prompt": "p", "samples": 2, "metadata": {"x": [0, 1, 2], "y": [0.5, True], "z": [1, None]}}
    assert heard(tmp_path / "run", "task")[0]["task"] == want


@pytest.mark.parametrize(
    "value, kind, text",
    [
        ({"x": [1, {2}]}, TypeError, "task 1: metadata.x[1]: set is not a JSON type"),
        ({"x": np.float64("nan")}, ValueError, "task 1: metadata.x: nan is not a JSON number"),
        ({"at": np.datetime64("2026-01-01")}, TypeError, "task 1: metadata.at: date"),
    ],
)
def test_what_is_no_json(stand_in: Callable[..., rollout.Collection], value: Any, kind: type[Exception], text: str) -> None:
    c = stand_in([{"prompt": "p", "metadata": value}])
    with pytest.raises(kind) as caught:
        next(c)
    assert str(caught.value).startswith(text)
    c = stand_in(None, out=c.run + "2")
    with pytest.raises(kind) as caught:
        c.add({"prompt": "p", "metadata": value})
    assert str(caught.value).startswith(text)


def test_async_tasks_stay_in_their_event_loop(stand_in: Callable[..., rollout.Collection]) -> None:
    async def tasks() -> AsyncIterator[dict[str, Any]]:
        for task in prompts(100):
            yield task

    c = stand_in(tasks(), max_ahead=2)

    async def first() -> str:
        return (await anext(c)).id

    assert asyncio.run(first()) == "g1"
    with pytest.raises(RuntimeError, match="another event loop already iterates"):
        asyncio.run(first())
    with pytest.raises(RuntimeError, match="the event loop that iterated the async iterable of tasks ended"):
        wait_for(lambda: c.within(0.1) and None)  # the groups that were whole come first
    asyncio.run(c.aclose())


def test_groups_come_in_any_event_loop(stand_in: Callable[..., rollout.Collection]) -> None:
    c = stand_in(prompts(3))

    async def one() -> str:
        return (await anext(c)).id

    assert [asyncio.run(one()) for _ in range(3)] == ["g1", "g2", "g3"]


def test_a_cancelled_call_that_is_late_acknowledges_nothing(stand_in: Callable[..., rollout.Collection], monkeypatch: pytest.MonkeyPatch) -> None:
    c = stand_in(prompts(3), max_ahead=1)
    real, begun, late, ended = c._advance, threading.Event(), threading.Event(), threading.Event()

    def slow(*asked: Any) -> bool:
        monkeypatch.undo()
        begun.set()
        late.wait(PATIENCE)
        try:
            return real(*asked)
        finally:
            ended.set()

    async def main() -> None:
        assert (await anext(c)).id == "g1"
        monkeypatch.setattr(c, "_advance", slow)
        task = asyncio.ensure_future(anext(c))
        await asyncio.to_thread(begun.wait, PATIENCE)
        task.cancel()
        await asyncio.wait([task])
        assert (await anext(c)).id == "g2"
        late.set()
        await asyncio.to_thread(ended.wait, PATIENCE)
        assert [name for name, _ in c._open] == ["g2"], "the group that a trainer has in its hands was acknowledged"
        assert c.within(PATIENCE) is not None

    asyncio.run(main())
