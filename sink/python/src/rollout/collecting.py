"""A collector that stays warm for a training loop: its process, and its groups as they come.

    with rollout.collect("run.yaml", tasks, out="run1", max_ahead=2) as c:
        for group in c:                 # or: async for group in c
            step = train(group)
            c.set_version(step)         # which weights answer from now on

The process is `rollout collect --stream`: it takes tasks as they come, commits a group as
soon as it is whole, and begins no more than max_ahead groups that were not acknowledged.
Groups are read from the log of the run, so nothing is lost or given twice when the process
is killed: it is started again and goes on. When this process is killed the collector stops,
and collect() with the same folder goes on.

A checkpoint holds state_dict(). From a state exactly the groups behind it are given, each
once, acknowledged since or not. Without a state the groups come that were not acknowledged:
those in a trainer's hands when it was killed come again. So a trainer that must see each
group exactly once saves a state before its first group, too.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from rollout._cursor import Place, acknowledged, cursor, parse
from rollout._process import distributed as ranks
from rollout._program import program
from rollout._reader import Reader
from rollout._settings import Limits, settings
from rollout._supervisor import Supervisor
from rollout._tasks import Source, Tasks
from rollout._types import Group
from rollout.errors import StateError
from rollout.filters import Counts, Where
from rollout.log import Check, Path

if TYPE_CHECKING:
    from rollout._distributed import RankedCollection

Ack = Literal["auto", "manual"]


class Collection:
    """The groups of a run that is being collected for one trainer; collect() makes it.

    It is an iterator, plain and asynchronous, for one consumer, and a context manager of
    both kinds. Its methods may be called from any thread of the process that made it; a
    forked process must not use it, and it cannot be pickled: give workers the groups.
    """

    def __init__(self, supervisor: Supervisor, reader: Reader, source: Source, place: Place, ack: Ack, timeout: float | None) -> None:
        self._supervisor, self._reader, self._source = supervisor, reader, source
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
        asked = True
        while True:
            news = self._supervisor.news
            over = self._supervisor.over
            if self._advance(asked):
                return self._given()
            asked = False
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
        """As __next__. A call that is cancelled loses no group: the next one gives it."""
        self._mine()
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        self.feed()
        end = None if self._timeout is None else loop.time() + self._timeout
        asked = True
        with self._supervisor.watched(lambda: loop.call_soon_threadsafe(event.set)):
            while True:
                event.clear()
                over = self._supervisor.over
                if await loop.run_in_executor(None, self._advance, asked):
                    return self._given()
                asked = False
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

    def _advance(self, asked: bool) -> bool:
        """Report whether a group is ready. asked: the consumer is done with those before."""
        with self._lock:
            if asked and self._auto and self._open:
                self._acknowledged(len(self._open))
            if not self._ready:
                found = self._reader.next()
                self._supervisor.run_id = self._reader.run_id
                self._supervisor.leave_out(self._reader.left_out())
                if found is not None:
                    self._ready.append(found)
                elif not self._open:  # a cursor passes what was left out, too
                    self._supervisor.acknowledge(self._reader.end)
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
        self._supervisor.acknowledge(place if self._open else max(place, self._place))

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
        no version, null. A collector that is started again is told the last one.
        """
        self._mine()
        self._supervisor.set_version(int(version))

    def pause(self) -> None:
        """Begin no more samples until resume; those in flight go on."""
        self._mine()
        self._supervisor.pause(True)

    def resume(self) -> None:
        """Begin samples again."""
        self._mine()
        self._supervisor.pause(False)

    def drain(self) -> None:
        """Take no more tasks. What was taken is collected and given, and the iteration ends."""
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

        Waits for a collector that is being started; TimeoutError where none answers. Of one
        that has ended in order it is {"phase": "ended"}.
        """
        self._mine()
        return self._supervisor.status(timeout)

    @property
    def counts(self) -> Counts:
        """What the filters left out so far: by reason, how many groups, samples and rows."""
        return self._reader.counts

    @property
    def over(self) -> bool:
        """Whether the collector has ended for good; groups of it may be left to give."""
        return self._supervisor.over

    @property
    def restarts(self) -> int:
        """How often the process was started again."""
        return max(0, self._supervisor.starts - 1)

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
        another run.
        """
        self._mine()
        run_id, place = parse(state)
        with self._lock:
            if run_id and self._reader.run_id and run_id != self._reader.run_id:
                raise StateError(f"{self.run}: holds run {self._reader.run_id!r}, the state is of run {run_id!r}: give the folder of that run")
            self._reader = self._reader.after(run_id, place)
            self._place = place
            self._open.clear()
            self._ready.clear()
        self._supervisor.acknowledge(place)

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
        await self._source.stop()
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self.close))


def collect(
    config: Path | Mapping[str, Any] | None = None,
    tasks: Tasks | Path | None = None,
    *,
    out: Path,
    server: str | Sequence[str] | None = None,
    model: str | None = None,
    samples: int | None = None,
    max_ahead: int | None = None,
    max_lag: int | None = None,
    until_groups: int | None = None,
    min_std: float | None = None,
    flags: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    where: Where | None = None,
    columns: Sequence[str] | None = None,
    check: Check = "sha256",
    state: Mapping[str, Any] | None = None,
    ack: Ack = "auto",
    timeout: float | None = None,
    lock_wait: float = 60,
    restarts: int = 5,
    grace: float = 20,
    distributed: bool | None = None,
) -> Collection | RankedCollection:
    """Start a collector, or go on with the run in out, and return its groups as they come.

    config: a file of settings (YAML, as for `rollout collect -c`), or the settings as a
        dict of sections. A password or a header's value may stand in the dict: it goes to
        the program by its environment, and into no file.
    tasks: an iterable or async iterable of dicts, each a task: prompt or messages, and
        perhaps id, answer, metadata, samples, agent, deadline. It is asked for the next
        one when the collector can begin it. A task without an id gets its number, from 1,
        so the tasks of a run that is continued must be the same, in the same order: those
        that the run has are taken as collected. A path is a file of JSON lines. None: those of
        config, and of add(), until drain().
    out: the folder of the run.
    server, model, samples, max_ahead, max_lag, until_groups, min_std: the flags of
        `rollout collect` of these names. flags: more of them, such as ["--reward=exact"].
    env: what is added to the environment of the program.
    where, columns, check: which groups, which columns and how files are checked, as for
        Dataset. What is left out is acknowledged in its turn; max_ahead does not count it.
    state: what state_dict() gave: go on behind it. None: behind what was acknowledged.
    ack: "auto": asking for the next group acknowledges the one before; or "manual", by ack().
    timeout: seconds without a group after which TimeoutError is raised; None waits for ever.
    lock_wait: seconds to wait for another process to leave the folder, such as the
        collector of a trainer that was killed a moment ago.
    restarts: starts in a row without a new commit, after which a collector that is killed
        or crashes is a CrashError.
    grace: seconds that the process has to end before it is killed.

    distributed: with torch.distributed, rank 0 has the process and every rank gets one
        group of each round, see RankedCollection; all ranks call collect alike. None:
        where it is initialised with more than one rank. False: this process alone.

    Raises FileNotFoundError without a program. What the program refuses is raised where a
    group is asked for: UsageError, ServerError and the other children of CollectError.
    """
    if ack not in ("auto", "manual"):
        raise ValueError(f"ack={ack!r}: must be 'auto' or 'manual'")
    given = {
        "server": server,
        "model": model,
        "samples": samples,
        "max-ahead": max_ahead,
        "max-lag": max_lag,
        "until-groups": until_groups,
        "min-std": min_std,
    }
    limits = Limits(restarts, lock_wait, grace)

    def make(ack: Ack, timeout: float | None) -> Collection:
        run = os.path.abspath(os.fspath(out))
        run_id, place = acknowledged(run) if state is None else parse(state)
        reader = Reader(run, run_id, place, where, columns, check)
        source = Source(tasks)
        supervisor = Supervisor(program(), run, settings(config, given, flags, env), source, limits)
        supervisor.run_id = run_id
        supervisor.acknowledge(place)
        collection = Collection(supervisor, reader, source, place, ack, timeout)
        supervisor.start()
        return collection

    _, world_size = ranks()
    if distributed is False or distributed is None and world_size == 1:
        return make(ack, timeout)
    from rollout._distributed import RankedCollection, enough

    enough(max_ahead or 0, world_size)
    return RankedCollection(lambda: make("manual", None), ack == "auto", timeout, max_ahead)
