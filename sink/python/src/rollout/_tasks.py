"""The tasks of a collection, one at a time: of an iterable, of an async one, added ones."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from rollout.log import Path

Task = dict[str, Any]
Tasks = Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]]


def of_file(path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the tasks of a file of JSON lines, which may be compressed with gzip."""
    with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as f:
        for number, line in enumerate(f, 1):
            if not line.strip():
                continue
            try:
                task = json.loads(line)
            except ValueError as err:
                raise ValueError(f"{path}:{number}: not a JSON object: {err}") from None
            if not isinstance(task, dict):
                raise ValueError(f"{path}:{number}: not a JSON object")
            yield task


class Source:
    """Tasks, as they are asked for. A task without an id gets its number, from 1 on.

    Added tasks come first. Where there is an iterable, its end is the end.
    """

    def __init__(self, tasks: Tasks | Path | None) -> None:
        if isinstance(tasks, (str, os.PathLike)):
            tasks = of_file(os.fspath(tasks))
        if isinstance(tasks, (bytes, Mapping)):
            raise TypeError(f"tasks={tasks!r:.60}: give an iterable of dicts, each with a prompt or messages")
        self._changed = threading.Condition()
        self._added: deque[Task] = deque()
        self._n = 0
        self._ended = False
        self._sync: Iterator[Mapping[str, Any]] | None = None
        self._async: AsyncIterator[Mapping[str, Any]] | None = None
        if isinstance(tasks, AsyncIterable):
            self._async = aiter(tasks)
        elif tasks is not None:
            self._sync = iter(tasks)
        self._pump: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._taken: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @property
    def wants_loop(self) -> bool:
        """Whether the tasks come from an event loop."""
        return self._async is not None

    def add(self, task: Mapping[str, Any]) -> None:
        """Put a task before those of the iterable."""
        numbered = self._numbered(task)
        with self._changed:
            if self._ended:
                raise ValueError("no more tasks are taken: the tasks have ended, or drain() was called")
            self._added.append(numbered)
            self._changed.notify_all()

    def end(self) -> None:
        """Say that no more come."""
        with self._changed:
            self._ended = True
            self._added.clear()
            self._changed.notify_all()

    def take(self) -> Task | None:
        """Wait for the next task; None where no more come."""
        with self._changed:
            waits = self._sync is None
            self._changed.wait_for(lambda: not waits or self._added or self._ended or self._error)
            if self._error is not None:
                raise self._error
            if self._added:
                task = self._added.popleft()
                for loop, event in self._taken:
                    loop.call_soon_threadsafe(event.set)
                self._taken.clear()
                return task
            if self._ended:
                return None
        assert self._sync is not None
        try:
            return self._numbered(next(self._sync))
        except StopIteration:
            with self._changed:
                if self._added:
                    return self._added.popleft()
                self._ended = True
            return None

    def pump(self) -> None:
        """Take tasks from the running event loop, from now on."""
        if self._async is not None and self._pump is None:
            self._pump = asyncio.get_running_loop().create_task(self._pumped(self._async))

    async def _pumped(self, tasks: AsyncIterator[Mapping[str, Any]]) -> None:
        try:
            async for task in tasks:
                event = asyncio.Event()
                with self._changed:
                    if self._ended:
                        return
                    self._taken.append((asyncio.get_running_loop(), event))
                    self._added.append(self._numbered(task))
                    self._changed.notify_all()
                await event.wait()
            with self._changed:
                self._ended = True
                self._changed.notify_all()
        except Exception as err:
            with self._changed:
                self._error = err
                self._changed.notify_all()

    async def stop(self) -> None:
        """End the pump, which belongs to the running event loop."""
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    def _numbered(self, task: Mapping[str, Any]) -> Task:
        if not isinstance(task, Mapping):
            raise TypeError(f"a task is a dict with a prompt or messages, not {task!r:.60}")
        with self._changed:
            self._n += 1
            return {"id": str(self._n), **task}
