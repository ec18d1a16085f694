"""The groups of a collector that collect() started, as an iterator and an async iterator."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from rollout._args import integer
from rollout._types import Group
from rollout.collecting.supervisor import Supervisor
from rollout.collecting.tasks import Source
from rollout.runs.cursor import Place, acknowledged, belongs, cursor, parse
from rollout.runs.follow import Following
from rollout.runs.log import Check
from rollout.runs.scores import COLLECTED
from rollout.runs.select import Counts, Where

Ack = Literal["auto", "manual"]


class Reader:
    """Reads the groups of a run one at a time, each when it is requested."""

    def __init__(self, run: str, state: Mapping[str, Any] | None, where: Where | None, columns: Sequence[str] | None, check: Check) -> None:
        """Start after a state, or after the acknowledged groups if state is None. Raises StateError
        if the state is from another run or ahead of this run's log."""
        run_id, place = acknowledged(run) if state is None else parse(state)
        belongs(run, run_id, place, "the cursor in ack.json" if state is None else "the state")
        names = None if columns is None else list(columns)
        self._dropped: list[Place] = []
        self._following = Following(run, where=where, columns=names, check=check, after=cursor(run_id, place), left_out=self._dropped.append, scores=COLLECTED)
        self._what = (where, columns, check)

    def restored(self, state: Mapping[str, Any]) -> Reader:
        """Return a new reader that starts after a state."""
        return Reader(self._following.run, state, *self._what)

    def state(self, place: Place) -> dict[str, Any]:
        """Return the state for a place."""
        return cursor(self.run_id, place)

    @property
    def run_id(self) -> str:
        """The run's id, or "" before the run's first commit if no cursor contains the id."""
        return str(self._following.cursor["run_id"])

    @property
    def end(self) -> Place:
        """The place after the last returned group and the dropped groups that follow it."""
        at = self._following.cursor
        return at["seq"], at["groups"]

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The numbers of dropped groups, samples and rows; see Following."""
        return {k: dict(v) for k, v in self._following.counts.items()}

    def take_dropped(self) -> list[Place]:
        """Return the places of the groups that the filters dropped since the last call."""
        out = list(self._dropped)
        self._dropped.clear()
        return out

    def next(self) -> tuple[Group, Place] | None:
        """Return the next group and the place after it, or None if the next group is not yet
        available."""
        group = self._following.poll()
        return None if group is None else (group, self.end)


class Collection:
    """The groups of a run that is being collected for one trainer. collect() returns a Collection.

    A collection is an iterator and an async iterator for one consumer, and a context manager for
    `with` and `async with`. Its methods are safe to call from any thread of the process that
    created it. A forked process must not use a collection, and a collection cannot be pickled.
    Pass groups, not the collection, to workers.
    """

    def __init__(self, supervisor: Supervisor, reader: Reader, source: Source, ack: Ack, timeout: float | None) -> None:
        self._supervisor, self._reader, self._source = supervisor, reader, source
        self._commands = supervisor.commands
        self._place = reader.end  # the place of the last returned group
        self._auto, self._timeout = ack == "auto", timeout
        self._open: deque[tuple[str, Place]] = deque()  # groups that were returned but not acknowledged
        self._ready: deque[tuple[Group, Place]] = deque()  # groups that were read but not returned, because the call was canceled
        self._lock = threading.Lock()
        self._pid = os.getpid()
        # This runs at garbage collection or when the interpreter exits.
        self._finalizer = weakref.finalize(self, supervisor.close)

    # Groups.

    def __iter__(self) -> Iterator[Group]:
        """Return the collection itself. So a second loop continues where the first loop
        stopped."""
        return self

    def __next__(self) -> Group:
        """Wait for the next group and return it. If ack="auto", acknowledge the previous group.

        Raises StopIteration after all tasks have been collected and their groups have been
        returned. Raises TimeoutError after `timeout` seconds without a group. The caller can then
        call again. If an error ended the collector, all groups that are already whole are
        returned before the error is raised.
        """
        self._mine()
        if self._source.wants_loop:
            raise TypeError("the tasks are an async iterable: iterate over the groups with `async for`")
        group = self.within(self._timeout)
        if group is None:
            raise self._late()
        return group

    def within(self, timeout: float | None) -> Group | None:
        """Like next(), but return None if no group comes within timeout seconds."""
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
        """Return the collection itself, for `async for`."""
        return self

    async def __anext__(self) -> Group:
        """Like __next__. If a call is canceled, the next call returns the group.

        But the canceled call has already acknowledged the previous group. If you request a group
        while you still train on the previous group, use ack="manual".
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
        """If the tasks are an async iterable, start to read them in the running event loop.
        `async for` calls this method."""
        self._source.pump()

    def _done(self) -> Place | None:
        """Return the place up to which the next request acknowledges groups, or None if there is
        nothing to acknowledge.

        Call this method before you wait for a group, because another thread's call can return a
        group during the wait.
        """
        with contextlib.suppress(IndexError):
            return self._open[-1][1] if self._auto else None
        return None

    def _advance(self, done: Place | None) -> bool:
        """Acknowledge the groups up to the place `done`, and report whether the next group is
        ready."""
        with self._lock:
            n = 0 if done is None else sum(place <= done for _, place in self._open)
            if n:
                self._acknowledged(n)
            if not self._ready:
                found = self._reader.next()
                self._commands.run_id = self._reader.run_id
                self._commands.skip(self._reader.take_dropped())
                if found is not None:
                    self._ready.append(found)
                elif not self._open:  # the cursor can then also pass skipped groups
                    self._commands.acknowledge(self._reader.end)
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
        self._commands.acknowledge(place if self._open else max(place, self._place))

    def _late(self) -> TimeoutError:
        return TimeoutError(f"{self._supervisor.run}: no group for {self._timeout:g} s; call status() for details")

    def _over(self) -> None:
        """If an error ended the collector, raise this error."""
        if not self._finalizer.alive:
            raise ValueError("the collection is closed")
        if self._supervisor.error is not None:
            raise self._supervisor.error

    def _mine(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(f"the collection belongs to process {self._pid}, and this process is a fork of it: "
                               "pass the groups to workers, not the collection")

    def __reduce__(self) -> Any:
        raise TypeError("a collection cannot be pickled: it owns a process; pass the groups to workers, or create it in the actor that trains")

    # Messages to the collector.

    def set_version(self, version: int) -> None:
        """Set the policy version with which the engines sample from now on.

        Call this method when the engine has the new weights. Model calls that are in progress
        during the change have an unknown version, unless a trace contains their version. Tasks
        that are taken after this method returns do not start before the collector has received
        the version. If the collector is restarted, it receives the last version again. If the
        collector does not answer within 30 s, this method logs a warning and returns, and the
        collector receives the version later.
        """
        self._mine()
        integer("version", version)
        self._commands.send("version", "set-version", version=int(version))

    def pause(self) -> None:
        """Stop starting samples until resume or drain. Samples in flight continue.

        A pause remains in effect after the last task and after a restart of the collector. During
        a pause, a request for a group that has not yet started blocks until resume. If the
        collector has ended, this method does nothing.
        """
        self._mine()
        self._commands.send("pause", "pause")

    def resume(self) -> None:
        """End a pause."""
        self._mine()
        self._commands.send("pause", "resume")

    def drain(self) -> None:
        """Stop taking tasks from the iterable. The collector still collects the tasks that were
        already taken or added. The iteration ends after their groups have been returned.

        drain also ends a pause. If you pause after drain, the remaining tasks wait until resume.
        """
        self._mine()
        self._supervisor.drain()

    def add(self, task: Mapping[str, Any]) -> None:
        """Add a task without blocking. Added tasks are collected before the remaining tasks of
        the iterable.

        An added task waits in memory until the collector can start it. Give the task an id that
        stays the same when the trainer is restarted.
        """
        self._mine()
        self._source.add(task)

    def ack(self, group: Group | None = None) -> None:
        """Acknowledge a group and all groups returned before it. If group is None, acknowledge
        all returned groups.

        With ack="manual", this allows more groups to start (see max_ahead).
        """
        self._mine()
        with self._lock:
            ids = [name for name, _ in self._open]
            if group is not None and group.id not in ids:
                return  # already acknowledged
            n = len(ids) if group is None else len(ids) - ids[::-1].index(group.id)
            if n:
                self._acknowledged(n)

    # State.

    def status(self, timeout: float = 30) -> dict[str, Any]:
        """Return the collector's status: counts of samples and groups, lag, version.

        With several workers, the counts are sums, and "workers" is the list of all statuses.

        If the collector is starting, waits for it. Raises TimeoutError if there is no answer within
        timeout seconds. If the collector has failed, raises its error. If the collector has ended
        normally, returns {"phase": "ended"}.
        """
        self._mine()
        return self._supervisor.status(timeout)

    @property
    def counts(self) -> Counts:
        """The numbers of groups, samples and rows that the filters have dropped so far, by reason."""
        with self._lock:
            return self._reader.counts

    @property
    def over(self) -> bool:
        """Whether the collector has ended permanently. Even then, the last groups might not yet
        have been returned."""
        return self._supervisor.over

    @property
    def restarts(self) -> int:
        """How many times the process was restarted after a crash or a kill."""
        return self._supervisor.restarts

    @property
    def run(self) -> str:
        """The folder of the run."""
        return self._supervisor.run

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the last returned group, as a dict of JSON values."""
        with self._lock:
            return self._reader.state(self._place)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after a saved state. Each group after the state is returned once.

        This includes groups that were returned after the state was saved. If the state is from
        another run or ahead of this run's log, raises StateError and changes nothing.
        """
        self._mine()
        reader = self._reader.restored(state)
        with self._lock:
            self._reader = reader
            self._commands.run_id = reader.run_id
            self._place = place = reader.end
            self._open.clear()
            self._ready.clear()
        self._commands.acknowledge(place)

    # End.

    def close(self) -> None:
        """Stop the process. Samples in flight continue when the run is resumed.

        The process gets a signal to stop. If it does not end within the grace time, it is killed.
        Further calls do nothing.
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
        """Like close, without blocking the event loop."""
        try:
            await self._source.stop()
        finally:  # also if the call is canceled
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self.close))
