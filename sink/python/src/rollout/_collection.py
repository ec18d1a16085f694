"""The groups of a collector that collect() has started, as a plain and an asynchronous iterator."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal

from rollout._args import integer
from rollout._cursor import Place, belongs, cursor, parse
from rollout._reader import Reader
from rollout._supervisor import Supervisor
from rollout._tasks import Source
from rollout._types import Group
from rollout.filters import Counts

Ack = Literal["auto", "manual"]


class Collection:
    """The groups of a run that is being collected for one trainer; collect() makes it.

    It is an iterator, plain and asynchronous, for one consumer, and a context manager of
    both kinds. Its methods may be called from any thread of the process that made it; a
    forked process must not use it, and it cannot be pickled: give workers the groups.
    """

    def __init__(self, supervisor: Supervisor, reader: Reader, source: Source, place: Place, ack: Ack, timeout: float | None) -> None:
        self._supervisor, self._reader, self._source = supervisor, reader, source
        self._words = supervisor.words
        self._place = place  # of the group that was given last
        self._auto, self._timeout = ack == "auto", timeout
        self._open: deque[tuple[str, Place]] = deque()  # given and not acknowledged
        self._ready: deque[tuple[Group, Place]] = deque()  # read, and not given: who asked was cancelled
        self._lock = threading.Lock()
        self._pid = os.getpid()
        # On garbage collection, and at the interpreter's exit.
        self._finalizer = weakref.finalize(self, supervisor.close)

    # Groups.

    def __iter__(self) -> Iterator[Group]:
        """The iterator is the collection itself: a second loop goes on where the first ended."""
        return self

    def __next__(self) -> Group:
        """Wait for the next group. Asking for it acknowledges the one before (ack="auto").

        Raises StopIteration once all tasks are collected and given, and TimeoutError after
        timeout seconds without a group; then it may be asked again. An error that ended the
        collector is raised after the groups that were whole by then.
        """
        self._mine()
        if self._source.wants_loop:
            raise TypeError("the tasks are an async iterable: iterate with `async for`")
        group = self.within(self._timeout)
        if group is None:
            raise self._late()
        return group

    def within(self, timeout: float | None) -> Group | None:
        """As next(), but None where no group has come after timeout seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        done = self._done()
        while True:
            news = self._supervisor.news
            over = self._supervisor.over
            if self._advance(done):
                return self._given()
            done = None
            if over:
                self._over()
                raise StopIteration
            left = None if end is None else max(0.0, end - time.monotonic())
            if not self._supervisor.wait(news, left) and end is not None and time.monotonic() >= end:
                return None

    def __aiter__(self) -> AsyncIterator[Group]:
        """As __iter__, for `async for`."""
        return self

    async def __anext__(self) -> Group:
        """As __next__. A call that is cancelled loses no group: the next one gives it.

        It has acknowledged the group before, as any call: who asks for a group while it still
        trains on one wants ack="manual".
        """
        self._mine()
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        self.feed()
        end = None if self._timeout is None else loop.time() + self._timeout
        done = self._done()
        with self._supervisor.watched(lambda: loop.call_soon_threadsafe(event.set)):
            while True:
                event.clear()
                over = self._supervisor.over
                if await loop.run_in_executor(None, self._advance, done):
                    return self._given()
                done = None
                if over:
                    self._over()
                    raise StopAsyncIteration
                try:
                    await asyncio.wait_for(event.wait(), None if end is None else max(0.0, end - loop.time()))
                except asyncio.TimeoutError:
                    raise self._late() from None

    def feed(self) -> None:
        """Take the tasks of an async iterable in the running event loop; `async for` does it."""
        self._source.pump()

    def _done(self) -> Place | None:
        """Return the place behind what the consumer is done with that asks now; None: nothing new.

        It is looked up at once: _advance may come late, after another call has given a group.
        """
        with contextlib.suppress(IndexError):
            return self._open[-1][1] if self._auto else None
        return None

    def _advance(self, done: Place | None) -> bool:
        """Report whether a group is ready. The consumer is done with those before a place."""
        with self._lock:
            n = 0 if done is None else sum(place <= done for _, place in self._open)
            if n:
                self._acknowledged(n)
            if not self._ready:
                found = self._reader.next()
                self._words.run_id = self._reader.run_id
                self._words.leave_out(self._reader.left_out())
                if found is not None:
                    self._ready.append(found)
                elif not self._open:  # a cursor passes what was left out, too
                    self._words.acknowledge(self._reader.end)
            return bool(self._ready)

    def _given(self) -> Group:
        with self._lock:
            group, self._place = self._ready.popleft()
            self._open.append((group.id, self._place))
            return group

    def _acknowledged(self, n: int) -> None:
        place = self._open[n - 1][1]
        for _ in range(n):
            self._open.popleft()
        self._words.acknowledge(place if self._open else max(place, self._place))

    def _late(self) -> TimeoutError:
        return TimeoutError(f"{self._supervisor.run}: no group for {self._timeout:g} s; status() says what the collector does")

    def _over(self) -> None:
        """Raise what ended the collector."""
        if not self._finalizer.alive:
            raise ValueError("the collection is closed")
        if self._supervisor.error is not None:
            raise self._supervisor.error

    def _mine(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(f"the collection belongs to process {self._pid}, and this is a fork of it: give workers the groups, not the collection")

    def __reduce__(self) -> Any:
        raise TypeError("a collection cannot be pickled: it owns a process; give workers the groups, or make it in the actor that trains")

    # Words for the collector.

    def set_version(self, version: int) -> None:
        """Say that this version of the policy answers from now on.

        Call it after the engine has the new weights. What was sampled across the change has
        no version, null; tasks that are taken after it wait until it was heard. A collector
        that is started again is told the last one, and one that does not answer for 30 s,
        which is logged, hears it when it does.
        """
        self._mine()
        integer("version", version)
        self._words.say("version", "set-version", version=int(version))

    def pause(self) -> None:
        """Begin no more samples until resume or drain; those in flight go on.

        The end of the tasks does not end it, nor does a new start of the collector: who asks
        for a group that is not in flight waits for resume, after drain as well. It does
        nothing once the collector has ended.
        """
        self._mine()
        self._words.say("pause", "pause")

    def resume(self) -> None:
        """Begin samples again."""
        self._mine()
        self._words.say("pause", "resume")

    def drain(self) -> None:
        """Take no more tasks. What was taken or added is collected and given, and the iteration ends.

        It ends a pause. One that comes after it holds what is left until resume.
        """
        self._mine()
        self._supervisor.drain()

    def add(self, task: Mapping[str, Any]) -> None:
        """Add a task, before those of the iterable that were not taken yet. It does not block.

        A task is taken when the collector can begin it; those that were added wait in
        memory until then. Give it an id that is the same when the trainer starts again.
        """
        self._mine()
        self._source.add(task)

    def ack(self, group: Group | None = None) -> None:
        """Acknowledge a group and all that were given before it; None: all.

        With ack="manual" this is what lets further groups begin, see max_ahead.
        """
        self._mine()
        with self._lock:
            ids = [name for name, _ in self._open]
            if group is not None and group.id not in ids:
                return  # acknowledged already
            n = len(ids) if group is None else len(ids) - ids[::-1].index(group.id)
            if n:
                self._acknowledged(n)

    # What is known of it.

    def status(self, timeout: float = 30) -> dict[str, Any]:
        """What the collector says of itself: counts of samples, groups, lag, version.

        Waits for a collector that is being started; TimeoutError where none answers within
        timeout seconds, and the error of one that has ended with one. Of one that has ended in
        order it is {"phase": "ended"}.
        """
        self._mine()
        return self._supervisor.status(timeout)

    @property
    def counts(self) -> Counts:
        """What the filters left out so far: by reason, how many groups, samples and rows."""
        with self._lock:
            return self._reader.counts

    @property
    def over(self) -> bool:
        """Whether the collector has ended for good; groups of it may be left to give."""
        return self._supervisor.over

    @property
    def restarts(self) -> int:
        """How often the process was started again after it was killed or had crashed."""
        return self._supervisor.restarts

    @property
    def run(self) -> str:
        """The folder of the run."""
        return self._supervisor.run

    def state_dict(self) -> dict[str, Any]:
        """The place behind the last group that was given, as a dict of JSON values."""
        with self._lock:
            return cursor(self._reader.run_id, self._place)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on behind a state: the groups after it are given, each once.

        Groups of the future of that state come again. Raises StateError where it is of
        another run or ahead of this one's log; then nothing has changed.
        """
        self._mine()
        run_id, place = parse(state)
        belongs(self.run, run_id, place)
        with self._lock:
            self._reader = self._reader.after(run_id, place)
            self._words.run_id = run_id
            self._place = place
            self._open.clear()
            self._ready.clear()
        self._words.acknowledge(place)

    # The end.

    def close(self) -> None:
        """End the process: what is in flight is taken up when the run is continued.

        It is asked to end, and killed after the grace time. Calling it again does nothing.
        """
        if os.getpid() == self._pid:
            self._finalizer()

    def __enter__(self) -> Collection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Collection:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """As close, without blocking the event loop."""
        try:
            await self._source.stop()
        finally:  # cancelled, or not
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self.close))
