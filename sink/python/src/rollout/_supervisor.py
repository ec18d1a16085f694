"""Keeps a collector running: starts it, starts it again, tells it what it must know.

What the trainer has said (the version of the policy, a pause, what was acknowledged, that
no more tasks come) is said again to a collector that was started again, see Words.
Threads: one starts the process and reads its events, one hands over tasks, one says words.
All of them end with close. The thread that runs the caller's iterable is not waited for: it
ends with the task that it is making. The first never waits for an answer: a process that nobody
reads waits itself, and answers nobody.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rollout._child import Child, back_off, log
from rollout._control import Control, GoneError, refusal
from rollout._cursor import START, acknowledge, newest
from rollout._settings import Limits, Settings
from rollout._tasks import Source, Task
from rollout._words import Words
from rollout.errors import CollectError, RolloutError

LOCKED = 8
"""Exit status of a program that found the folder locked."""

LAST_WORD = 5.0
"""Seconds that close waits for the answer to an acknowledgement."""


class Supervisor:
    """The process of one run and the words that it was told."""

    def __init__(self, program: str, run: str, settings: Settings, source: Source, limits: Limits) -> None:
        self.run, self.settings, self.limits = run, settings, limits
        self.pid = os.getpid()
        self.over = False
        """The last process has ended, and no other will be started."""
        self.error: BaseException | None = None
        """Why, where that is not the end of the run. Groups that are there may be read first."""
        self.starts = 0
        self.restarts = 0
        """Starts after the end of a process that had no reason to end; waiting for the lock is none."""
        self.words = Words(run)
        self.news = 0
        """Grows with everything that a reader of the log may have to look at."""
        self._program = program
        self._source = source
        self._changed = threading.Condition()
        self._wakers: list[Callable[[], object]] = []
        self._closing = threading.Event()
        self._child: Child | None = None
        self._tasks: Control | None = None  # of the task that is being handed over
        self._draining = False
        self._versioned = False  # a process was told a version, by whomever
        self._waits = False  # a task is being handed over, or its group has not begun
        self._begun: set[str] = set()  # groups that began meanwhile
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads, and the process with them."""
        for name, work in (("supervise", self._supervise), ("tasks", self._hand_over), ("words", self.words.tell)):
            thread = threading.Thread(target=self._until_closed, args=(work,), name=f"rollout-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    # What the reader of the log needs.

    def wait(self, news: int, timeout: float | None) -> bool:
        """Wait until there are more news than these, and report whether there are.

        At most a second: a signal that another thread gets does not end a longer wait.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self.news > news, 1.0 if timeout is None else min(timeout, 1.0))

    @contextlib.contextmanager
    def watched(self, waker: Callable[[], object]) -> Iterator[None]:
        """Call waker, from another thread, at all news while the context lasts."""
        with self._changed:
            self._wakers.append(waker)
        try:
            yield
        finally:
            with self._changed:
                self._wakers.remove(waker)

    def _notify(self) -> None:
        with self._changed:
            self.news += 1
            self._changed.notify_all()
            wakers = list(self._wakers)
        for waker in wakers:
            with contextlib.suppress(RuntimeError):  # its loop was closed
                waker()

    # What the trainer says.

    def drain(self) -> None:
        """Take no more tasks, and end a pause. Once those that were added are accepted the process is told, and ends after them."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()
        self._source.end()
        self.words.end_pause()

    def status(self, timeout: float) -> dict[str, Any]:
        """Return what the collector says of itself; wait for one that is being started."""
        end = time.monotonic() + timeout
        while True:
            path = self.words.socket(end)
            left = max(0.1, end - time.monotonic())
            if path is not None:
                # A connection of its own: another one may wait for an answer.
                with contextlib.suppress(GoneError), contextlib.closing(Control(path, left)) as control:
                    answer = control.ask("status", left)
                    if not answer.pop("ok", False):
                        raise refusal("status", answer)
                    return answer
            elif self.over:
                if self.error is not None:
                    raise self.error
                return {"phase": "ended"}
            if time.monotonic() >= end:
                what = "is being started" if path is None else "may be stopped, or its machine be overloaded"
                raise TimeoutError(f"{self.run}: the collector does not answer within {timeout:g} s: it {what}")
            with self._changed:
                self._changed.wait(0.05)

    # The process.

    def _supervise(self) -> None:
        fruitless, locked_since = 0, None
        while not self._closing.is_set() and not self.over:
            commits = newest(self.run)
            child = self._start()
            if child is None:
                break
            for event in child.events():
                self._heard(child, event)
            self.words.gone()
            code = child.wait()
            if self._closing.is_set() or self.over:
                break
            self._notify()  # what it has committed last
            if code == LOCKED and not child.launched:
                now = time.monotonic()
                if locked_since is None:
                    locked_since = now
                    log.warning("%s: another process collects into it; waiting up to %g s for its end", self.run, self.limits.lock_wait)
                if now - locked_since < self.limits.lock_wait:
                    self._closing.wait(0.2)
                    continue
            locked_since = None
            if not child.crashed(code):
                self._end(child.error(code))
                break
            fruitless = 0 if newest(self.run) > commits else fruitless + 1
            error = child.error(code)
            if fruitless > self.limits.restarts:
                self._end(error)
                break
            log.warning("%s; it is started again", error)
            self.restarts += 1
            self._closing.wait(back_off(fruitless - 1) if fruitless else 0)

    def _start(self) -> Child | None:
        # No version that was said: a trainer that says a newer one meanwhile would have samples of
        # it take the older one. A version is unknown until the process has heard it.
        command = [self._program, "collect", "--stream", "--attached", "--json", "--resume", f"--out={self.run}", *self.settings.flags]
        if self._versioned or self.words.versioned:  # a number in the settings is as old
            command.append("--unclaimed")
        try:
            child = Child(command, {**os.environ, **self.settings.env}, self.settings.secrets, self.settings.body)
        except OSError as err:
            self._end(CollectError(f"{self._program}: {err}"))
            return None
        with self._changed:
            self._child, self.starts = child, self.starts + 1
            self._changed.notify_all()
        if self._closing.is_set() or self.over:  # since it was looked at: who ended all has not seen this process
            child.stop(self.limits.grace)
        return child

    def _heard(self, child: Child, event: dict[str, Any]) -> None:
        name = event.get("event")
        if name == "launch":
            if not event.get("socket"):
                raise CollectError(f"{self.run}: its file system keeps no sockets, and tasks come over one: give a folder on a local disk")
            self.words.reached(os.path.join(self.run, str(event["socket"])))
        elif name == "commit":
            self._notify()
        elif name == "version":
            self._versioned = True
        elif name in ("begun", "group"):  # a group whose samples were all cut never begins
            with self._changed:
                if self._waits:
                    self._begun.add(str(event.get("group")))
                self._changed.notify_all()
        elif name == "warning" and not self._closing.is_set():  # else it says how to go on with what was meant to end
            log.warning("%s", event.get("text") or event.get("message") or event)

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            self.error, self.over = self.error or error, True
        self.words.close()
        self._notify()

    # The tasks.

    def _hand_over(self) -> None:
        """Hand every task over once it is taken, one at a time, until no more come."""
        while True:
            starts = self.starts
            if (task := self._source.take()) is None:
                break
            with self._changed:
                self._begun, self._waits = set(), True
            answer = self._accepted(task)
            if answer is None:
                break
            if not answer.get("ok"):
                raise refusal(f"task {task.get('id')}", answer)
            if not answer.get("again"):
                self._await_begin(str(answer.get("group")), starts)
            with self._changed:
                self._begun, self._waits = set(), False
        if self._source.closed:  # a run that the trainer goes on with later has not ended
            return
        with self._changed:
            self._draining, self._waits = True, False
        self.words.say("drain", "drain")

    def _accepted(self, task: Task) -> dict[str, Any] | None:
        """Return what a process answered to a task, None where none takes any more: it was drained, or none comes.

        A process that ended before it answered may have accepted the task: the next one
        knows it again.
        """
        while (path := self.words.listener()) is not None:
            try:
                with contextlib.closing(Control(path)) as self._tasks:
                    answer = self._tasks.ask("task", None, task=task)
                    late = not answer.get("ok") and self._tasks.ask("status", None).get("end_of_tasks")
                    return None if late else answer
            except GoneError:
                self._closing.wait(0.05)
        return None

    def _await_begin(self, group: str, starts: int) -> None:
        """Wait until a group begins, so that no more tasks are taken than can begin.

        A process that was started again since begins groups of which this was not heard. Nor
        is a drain waited with: what was added is safe once it is accepted.
        """
        with self._changed:
            done = lambda: group in self._begun or self.starts > starts or self._draining or self.over or self._closing.is_set()  # noqa: E731
            self._changed.wait_for(done)

    # The end.

    def _until_closed(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as err:  # of the caller's tasks, or a fault of this package
            self._fail(err)

    def _fail(self, error: BaseException) -> None:
        self._end(error)
        child = self._child
        if child is not None and not self._closing.is_set():
            child.stop(self.limits.grace)

    def close(self) -> None:
        """End the process and the threads. Only the process that started it can."""
        if os.getpid() != self.pid or self._closing.is_set():
            return
        self._closing.set()
        try:
            self._source.close()
            self.words.flush(LAST_WORD)  # a signal may end the wait for it
        finally:
            self._stop()

    def _stop(self) -> None:
        self.words.close()
        child, tasks = self._child, self._tasks
        with self._changed:
            self._changed.notify_all()
        try:
            if child is not None:
                child.stop(self.limits.grace)
        finally:
            if tasks is not None:
                tasks.close()
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(1 + self.limits.grace)  # one may be ending a process that it has just started
            if self.words.acked > START and self.words.run_id:
                try:
                    acknowledge(self.run, self.words.run_id, self.words.acked)
                except RolloutError as err:  # the next one to read it meets it again
                    log.warning("%s", err)
            with self._changed:
                self.over = True
            self._notify()
