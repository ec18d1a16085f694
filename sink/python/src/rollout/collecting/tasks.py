"""The tasks of a collection. They come from an iterable, from an async iterable, or from calls of
add()."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import math
import os
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from rollout._types import Path

Task = dict[str, Any]
Tasks = Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]]


def of_file(path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the tasks from a JSON Lines file. The file can be compressed with gzip."""
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
    """Provides tasks on request. If a task has no id, its number, counted from 1, becomes its id.

    Added tasks come first, even while the iterable produces its next task. If there is an
    iterable, no task can be added after the iterable ends.
    """

    def __init__(self, tasks: Tasks | Path | None) -> None:
        if isinstance(tasks, (str, os.PathLike)):
            tasks = of_file(os.fspath(tasks))
        if tasks is not None and (isinstance(tasks, (bytes, Mapping)) or not hasattr(tasks, "__iter__") and not hasattr(tasks, "__aiter__")):
            raise TypeError(f"tasks={tasks!r:.60}: must be an iterable of dicts with a prompt or messages")
        self._lock = threading.RLock()  # not the condition: a signal inside its __enter__ would leave it locked
        self._changed = threading.Condition(self._lock)
        self._added: deque[tuple[Task, asyncio.Event | None]] = deque()  # the event, if any, is set when the task is taken
        self._n = 0
        self._wanted = False  # true while take waits for a task
        self._ended = False
        self.closed = False
        """True after close(). No more tasks are taken from this Source, but another collection
        can collect the rest."""
        self._sync: Iterator[Mapping[str, Any]] | None = None
        self._async: AsyncIterator[Mapping[str, Any]] | None = None
        if isinstance(tasks, AsyncIterable):
            self._async = aiter(tasks)
        elif tasks is not None:
            self._sync = iter(tasks)
        self._pump: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # the event loop that runs _pump
        self._error: BaseException | None = None

    @property
    def wants_loop(self) -> bool:
        """Whether the tasks come from an async iterable, which needs an event loop."""
        return self._async is not None

    def add(self, task: Mapping[str, Any]) -> None:
        """Add a task, which comes before the remaining tasks of the iterable."""
        numbered = self._numbered(task)
        with self._lock:
            if self._ended:
                raise ValueError("no more tasks are accepted: the tasks have ended, or drain() was called")
            self._added.append((numbered, None))
            self._changed.notify_all()

    def end(self) -> None:
        """Stop accepting added tasks."""
        with self._lock:
            self._ended = True
            self._changed.notify_all()

    def close(self) -> None:
        """Stop taking tasks."""
        with self._lock:
            self.closed = True
            self._added.clear()
        self.end()

    def take(self) -> Task | None:
        """Wait for the next task and return it, or None if there are no more tasks."""
        with self._lock:
            if self._sync is not None:  # the first call
                threading.Thread(target=self._pull, args=(self._sync,), name="rollout-iterable", daemon=True).start()
                self._sync = None
            self._wanted = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._added or self._ended or self._error)
            self._wanted = False
            if self._error is not None:
                raise self._error
            if not self._added:
                return None
            task, taken = self._added.popleft()
            if self._loop is not None and taken is not None:
                with contextlib.suppress(RuntimeError):  # the loop was closed
                    self._loop.call_soon_threadsafe(taken.set)
            return task

    def _pull(self, tasks: Iterator[Mapping[str, Any]]) -> None:
        """Read a task from the iterable whenever take() waits for a task. This method runs in its
        own thread, because the iterable can block."""
        try:
            while True:
                with self._lock:
                    self._changed.wait_for(lambda: self._ended or self._wanted and not self._added)
                    if self._ended:
                        return
                task = self._numbered(next(tasks))
                with self._lock:
                    if not self._ended:
                        self._added.append((task, None))
                        self._changed.notify_all()
        except StopIteration:
            self.end()
        except BaseException as err:
            self._failed(err)

    def pump(self) -> None:
        """If the tasks are an async iterable, start to read them in the running event loop."""
        if self._async is None:
            return
        loop = asyncio.get_running_loop()
        if self._pump is None:
            self._loop, self._pump = loop, loop.create_task(self._pumped(self._async))
        elif self._loop is not loop and not self._ended:
            raise RuntimeError("another event loop already iterates over the tasks: use the collection in only one event loop")

    async def _pumped(self, tasks: AsyncIterator[Mapping[str, Any]]) -> None:
        try:
            async for task in tasks:
                taken = asyncio.Event()
                numbered = self._numbered(task)
                with self._lock:
                    if self._ended:
                        return
                    self._added.append((numbered, taken))
                    self._changed.notify_all()
                await taken.wait()
            self.end()
        except asyncio.CancelledError:
            self._failed(RuntimeError("the event loop that iterated the async iterable of tasks ended before the last task"))
            raise
        except Exception as err:
            self._failed(err)

    def _failed(self, error: BaseException) -> None:
        with self._lock:
            if self._ended:  # ignore errors of the iterable: tasks that were added before the end can still be taken
                return
            self._error = error
            self._changed.notify_all()

    async def stop(self) -> None:
        """Like close(), but also stop reading the async iterable."""
        self.close()
        pump, self._pump = self._pump, None
        if pump is None or self._loop is None:
            return
        if self._loop is asyncio.get_running_loop():
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
        else:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(pump.cancel)

    def _numbered(self, task: Mapping[str, Any]) -> Task:
        if not isinstance(task, Mapping):
            raise TypeError(f"a task must be a dict with a prompt or messages, not {task!r:.60}")
        with self._lock:
            self._n += 1
            number = str(self._n)
        out: Task = {"id": number, **task}
        return {str(k): plain(v, f"task {out['id']!s:.40}: {k}") for k, v in out.items()}


def plain(value: Any, where: str) -> Any:
    """Return a copy of a value that contains only JSON types. Numpy numbers and arrays become
    Python values.

    Raises TypeError for any other type, and ValueError for a number that JSON cannot represent.
    The message says where in the task the value is.
    """
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise ValueError(f"{where}: {value} is not a JSON number")
    if isinstance(value, Mapping):
        return {str(k): plain(v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
    raise TypeError(f"{where}: {type(value).__name__} is not a JSON type: use a string, a number, a boolean, None, or a list or dict of these")
