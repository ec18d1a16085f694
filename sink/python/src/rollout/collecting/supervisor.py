"""Keeps a collector running.

A restarted collector receives the trainer's last messages again: policy version, pause,
acknowledgement and end of the tasks (see Commands).

One thread starts the process and reads its events, a second passes tasks, and a third sends
messages. close() ends these threads. It does not wait for the thread that runs the caller's
iterable. That thread ends after it has produced its current task. The thread that reads events
must never wait for an answer. If no thread reads the output of the process, the process blocks
and does not answer requests.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rollout.collecting._child import Child, back_off, stop
from rollout.collecting._control import Control, GoneError, refusal
from rollout.collecting._settings import Limits, Settings
from rollout.collecting.commands import Commands
from rollout.collecting.tasks import Source, Task
from rollout.errors import CollectError, RolloutError
from rollout.runs.cursor import START, acknowledge, newest

log = logging.getLogger("rollout.collect")

LOCKED = 8
"""The program's exit status if another process has locked the folder."""

LAST_WORD = 5.0
"""How many seconds close() waits for the answer to an acknowledgement."""


class News:
    """Wakes the reader of the log whenever it should check the log again."""

    def __init__(self) -> None:
        self.news = 0
        """A counter. It increases whenever a reader should check the log again."""
        self._lock = threading.RLock()  # not the condition: a signal inside its __enter__ would leave it locked
        self._changed = threading.Condition(self._lock)
        self._wakers: list[Callable[[], object]] = []

    def wait(self, news: int, timeout: float | None) -> bool:
        """Wait until self.news exceeds the given number, and report whether it does.

        Wait at most one second, because a signal does not interrupt the wait.
        """
        with self._lock:
            return self._changed.wait_for(lambda: self.news > news, 1.0 if timeout is None else min(timeout, 1.0))

    @contextlib.contextmanager
    def watched(self, waker: Callable[[], object]) -> Iterator[None]:
        """Inside the with block, another thread calls waker whenever self.news increases."""
        with self._lock:
            self._wakers.append(waker)
        try:
            yield
        finally:
            with self._lock:
                self._wakers.remove(waker)

    def _notify(self) -> None:
        with self._lock:
            self.news += 1
            self._changed.notify_all()
            wakers = list(self._wakers)
        for waker in wakers:
            with contextlib.suppress(RuntimeError):  # the caller's event loop was closed
                waker()


class Supervisor(News):
    """Starts and restarts the collector process of one run, and passes tasks and messages to
    it."""

    def __init__(self, program: str, run: str, settings: Settings, source: Source, limits: Limits) -> None:
        super().__init__()
        self.run, self.settings, self.limits = run, settings, limits
        self.pid = os.getpid()
        self.over = False
        """True if the last process has ended and no other process will be started."""
        self.error: BaseException | None = None
        """The error that ended the collector, or None. Committed groups are returned before this error is
        raised."""
        self.starts = 0
        self.restarts = 0
        """How many times the process was restarted after it ended unexpectedly. A start that only
        waits for the lock does not count."""
        self.commands = Commands(run)
        self._program = program
        self._source = source
        self._closing = threading.Event()
        self._child: Child | None = None
        self._tasks: Control | None = None  # the connection for the task that is being passed
        self._draining = False
        self._versioned = False  # true if a process has received a version, from any client
        self._waits = False  # true if a task is being passed, or its group has not started
        self._begun: set[str] = set()  # groups that have started while _waits is true
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads, which start the process."""
        for name, work in (("supervise", self._supervise), ("tasks", self._pass_tasks), ("commands", self.commands.run)):
            thread = threading.Thread(target=self._until_closed, args=(work,), name=f"rollout-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    # Messages from the trainer.

    def drain(self) -> None:
        """Stop taking tasks, and end a pause. The process receives the drain after the tasks that
        were already added, and ends after these tasks."""
        with self._lock:
            self._draining = True
            self._changed.notify_all()
        self._source.end()
        self.commands.end_pause()

    def status(self, timeout: float) -> dict[str, Any]:
        """Return the collector's status. If the collector is starting, wait for it."""
        end = time.monotonic() + timeout
        while True:
            path = self.commands.socket(end)
            left = max(0.1, end - time.monotonic())
            if path is not None:
                # Use a separate connection, because the other connections can be waiting for answers.
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
                what = "is still starting" if path is None else "might be suspended or overloaded"
                raise TimeoutError(f"{self.run}: the collector did not answer within {timeout:g} s and {what}")
            with self._lock:
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
                self._handle_event(child, event)
            self.commands.ended()
            code = child.wait()
            if self._closing.is_set() or self.over:
                break
            self._notify()  # the reader must see the last commits of the process
            if code == LOCKED and not child.launched:
                now = time.monotonic()
                if locked_since is None:
                    locked_since = now
                    log.warning("%s: another process is collecting into this folder; waiting up to %g s", self.run, self.limits.lock_wait)
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
            log.warning("%s; restarting it", error)
            self.restarts += 1
            self._closing.wait(back_off(fruitless - 1) if fruitless else 0)

    def _start(self) -> Child | None:
        # Never pass the last policy version as a flag. If the trainer set a newer version during
        # the start, new samples would get the older version. Instead, the version is unknown
        # until the process receives it as a message.
        command = [self._program, "collect", "--stream", "--attached", "--json", "--resume", f"--out={self.run}", *self.settings.flags]
        if self._versioned or self.commands.versioned:  # a version in the settings is also outdated
            command.append("--unclaimed")
        try:
            child = Child(command, {**os.environ, **self.settings.env}, self.settings.secrets, self.settings.body)
        except OSError as err:
            self._end(CollectError(f"cannot start {self._program}: {err}"))
            return None
        with self._lock:
            self._child, self.starts = child, self.starts + 1
            self._changed.notify_all()
        if self._closing.is_set() or self.over:  # close was called after the last check and did not stop this process
            stop([child], self.limits.grace)
        return child

    def _handle_event(self, child: Child, event: dict[str, Any]) -> None:
        name = event.get("event")
        if name == "launch":
            if not event.get("socket"):
                raise CollectError(f"{self.run}: the collector needs sockets to receive tasks, but the file system does not "
                                   "support them: use a folder on a local disk")
            self.commands.started(os.path.join(self.run, str(event["socket"])))
        elif name == "commit":
            self._notify()
        elif name == "version":
            self._versioned = True
        elif name in ("begun", "group"):  # a group whose samples were all cut never starts
            with self._lock:
                if self._waits:
                    self._begun.add(str(event.get("group")))
                self._changed.notify_all()
        elif name == "warning" and not self._closing.is_set():  # if the caller closed the run, do not explain how to resume it
            log.warning("%s", event.get("text") or event.get("message") or event)

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            self.error, self.over = self.error or error, True
        self.commands.close()
        self._notify()

    # The tasks.

    def _pass_tasks(self) -> None:
        """Take tasks one at a time and pass each task to the process, until there are no more tasks."""
        while True:
            starts = self.starts
            if (task := self._source.take()) is None:
                break
            with self._lock:
                self._begun, self._waits = set(), True
            answer = self._send_task(task)
            if answer is None:
                break
            if not answer.get("ok"):
                raise refusal(f"task {task.get('id')}", answer)
            if not answer.get("again"):
                self._await_begin(str(answer.get("group")), starts)
            with self._lock:
                self._begun, self._waits = set(), False
        if self._source.closed:  # the trainer will resume this run later, so the run has not ended
            return
        with self._lock:
            self._draining, self._waits = True, False
        self.commands.send("drain", "drain")

    def _send_task(self, task: Task) -> dict[str, Any] | None:
        """Send a task to the process and return the answer, or None if no process will accept
        tasks.

        If a process accepts the task but ends before it answers, the task is sent to the next
        process, which recognizes it.
        """
        while (path := self.commands.ready_socket()) is not None:
            try:
                with contextlib.closing(Control(path)) as self._tasks:
                    answer = self._tasks.ask("task", None, task=task)
                    late = not answer.get("ok") and self._tasks.ask("status", None).get("end_of_tasks")
                    return None if late else answer
            except GoneError:
                self._closing.wait(0.05)
        return None

    def _await_begin(self, group: str, starts: int) -> None:
        """Wait for a group to start. This keeps the supervisor from taking tasks faster than they can
        start.

        The wait also ends after a restart, because the new process does not report the start of
        the group again. It also ends after a drain, because no more tasks are taken.
        """
        with self._lock:
            done = lambda: group in self._begun or self.starts > starts or self._draining or self.over or self._closing.is_set()  # noqa: E731
            self._changed.wait_for(done)

    # The end.

    def _until_closed(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as err:  # an error from the caller's tasks, or a bug in this package
            self._fail(err)

    def _fail(self, error: BaseException) -> None:
        self._end(error)
        child = self._child
        if child is not None and not self._closing.is_set():
            stop([child], self.limits.grace)

    def close(self) -> None:
        """Stop the collector and the threads. Does nothing in a forked process."""
        close([self])

    def _stopped(self) -> None:
        """Clean up after the process has ended."""
        if self._tasks is not None:
            self._tasks.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(1 + self.limits.grace)  # the thread might still be stopping a process that it has just started
        if self.commands.acked > START and self.commands.run_id:
            try:
                acknowledge(self.run, self.commands.run_id, self.commands.acked)
            except RolloutError as err:  # the next reader gets the same error
                log.warning("%s", err)
        with self._lock:
            self.over = True
        self._notify()


def close(supervisors: Sequence[Supervisor]) -> None:
    """Close supervisors. The waits for their collectors run at the same time."""
    every = [s for s in supervisors if os.getpid() == s.pid and not s._closing.is_set()]
    with contextlib.ExitStack() as stack:  # a signal can end each wait
        for s in every:
            s._closing.set()
            stack.callback(s._stopped)
        stack.callback(_stop, every)
        until = time.monotonic() + LAST_WORD
        for s in every:
            s._source.close()
        for s in every:
            s.commands.flush(until)


def _stop(every: Sequence[Supervisor]) -> None:
    for s in every:
        s.commands.close()
        with s._lock:
            s._changed.notify_all()
    stop([s._child for s in every if s._child], max((s.limits.grace for s in every), default=0))
