"""Keeps a collector running: starts it, starts it again, tells it what it must know.

What the trainer has said (the version of the policy, a pause, what was acknowledged, that
no more tasks come) is held here and said again to a collector that was started again.
Threads: one reads the events of the process, one hands over tasks, one acknowledges. All
of them end with close.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rollout._acks import Acks
from rollout._child import Child, back_off, log
from rollout._control import Control, GoneError, refusal
from rollout._cursor import Place, acknowledge
from rollout._settings import Limits, Settings
from rollout._tasks import Source, Task
from rollout.errors import CollectError, RolloutError

LOCKED, CLOSED, CLOSED_TEXT = 8, 130, "no more tasks are taken"
"""Exit status of a program that found the folder locked; code and text of a task that comes too late."""

PATIENCE = 10.0
"""Seconds for which the process may refuse what is in the log."""


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
        self.why = ""
        """What the event drained said."""
        self.summary: dict[str, Any] = {}
        """What the event done said."""
        self.run_id = ""
        """Of the run, once a reader knows it."""
        self.news = 0
        """Grows with everything that a reader of the log may have to look at."""
        self._program = program
        self._source = source
        self._changed = threading.Condition()
        self._wakers: list[Callable[[], object]] = []
        self._closing = threading.Event()
        self._child: Child | None = None
        self._control: Control | None = None
        self._tasks: Control | None = None  # of the task that is being handed over
        self._acks = Acks()
        self._version: int | None = None
        self._paused = False
        self._draining = False
        self._begun: set[str] = set()  # groups that began since the last task
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads, and the process with them."""
        for name, work in (("supervise", self._supervise), ("tasks", self._hand_over), ("acknowledge", self._acknowledge)):
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

    def acknowledge(self, place: Place) -> None:
        """Say, soon and in any case before the process ends in order, how far the trainer is."""
        with self._changed:
            self._acks.acknowledge(place)
            self._changed.notify_all()

    def leave_out(self, places: list[Place]) -> None:
        """Say of groups that the filters leave them out: the trainer may have others in their place."""
        if places:
            with self._changed:
                self._acks.leave_out(places)
                self._changed.notify_all()

    def set_version(self, version: int) -> None:
        """Say which version of the policy answers from now on."""
        with self._changed:
            self._version = version
        self._say("set-version", version=version)

    def pause(self, paused: bool) -> None:
        """Begin nothing more, or go on."""
        with self._changed:
            self._paused = paused
        self._say("pause" if paused else "resume")

    def drain(self) -> None:
        """Say that no more tasks come: what was accepted is finished, and the process ends."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()
        self._source.end()
        self._say("drain")

    def status(self, timeout: float) -> dict[str, Any]:
        """Return what the collector says of itself; wait for one that is being started."""
        end = time.monotonic() + timeout
        while True:
            control = self._connected(end)
            if control is None:
                if self.over and self.error is None:
                    return {"phase": "ended"}
                raise self.error if isinstance(self.error, RolloutError) else TimeoutError(f"{self.run}: the collector does not answer")
            with contextlib.suppress(GoneError):
                return {k: v for k, v in control.ask("status", max(0.1, end - time.monotonic())).items() if k != "ok"}

    def _say(self, op: str, **fields: Any) -> None:
        """Say something to the process; one that is being started is told when it answers."""
        control = self._control
        if control is None:
            return
        try:
            answer = control.ask(op, **fields)
        except GoneError:
            return
        if not answer.get("ok"):
            raise refusal(op, answer)

    def _connected(self, until: float | None = None) -> Control | None:
        """Wait for a process that answers; None where there will be none, or not in time."""
        with self._changed:
            ready = lambda: self._control is not None or self.over or self._closing.is_set()  # noqa: E731
            self._changed.wait_for(ready, None if until is None else max(0.0, until - time.monotonic()))
            return None if self._closing.is_set() else self._control

    # The process.

    def _supervise(self) -> None:
        fruitless, locked_since = 0, None
        while not self._closing.is_set():
            commits = self._commits()
            child = self._start()
            if child is None:
                break
            for event in child.events():
                self._heard(child, event)
            self._gone()
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
            if not child.crashed(code):
                self._end(child.error(code))
                break
            fruitless = 0 if self._commits() > commits else fruitless + 1
            error = child.error(code)
            if fruitless > self.limits.restarts:
                self._end(error)
                break
            log.warning("%s; it is started again", error)
            self._closing.wait(back_off(fruitless - 1) if fruitless else 0)

    def _start(self) -> Child | None:
        # The version is known from the first call on, and not only once the socket answers.
        version = [] if self._version is None else [f"--policy-version={self._version}"]
        command = [self._program, "collect", "--stream", "--attached", "--json", "--resume", f"--out={self.run}", *self.settings.flags, *version]
        try:
            child = Child(command, {**os.environ, **self.settings.env}, self.settings.secrets)
        except OSError as err:
            self._end(CollectError(f"{self._program}: {err}"))
            return None
        with self._changed:
            self._child, self.starts = child, self.starts + 1
        if self._closing.is_set():
            child.stop(self.limits.grace)
        return child

    def _heard(self, child: Child, event: dict[str, Any]) -> None:
        name = event.get("event")
        if name == "launch" and event.get("socket"):
            self._connect(child, str(event["socket"]))
        elif name in ("begun", "group", "commit"):
            if name != "commit" and not self._draining:
                with self._changed:
                    self._begun.add(str(event.get("group")))
            self._notify()
        elif name == "drained":
            self.why = str(event.get("why", ""))
        elif name == "done":
            self.summary = event
        elif name == "warning":
            log.warning("%s", event.get("text") or event.get("message") or event)

    def _connect(self, child: Child, path: str) -> None:
        """Say to a process that has begun what the one before it was told."""
        try:
            control = Control(os.path.join(self.run, path) if not os.path.isabs(path) else path)
            with self._changed:
                version, paused, acked = self._version, self._paused, self._acks.cursor
                draining = self._draining
            if version is not None:
                control.ask("set-version", version=version)
            if acked > (0, 0):
                control.ask("ack", seq=acked[0], groups=acked[1])
            if paused:
                control.ask("pause")
            if draining:
                control.ask("drain")
        except GoneError as err:
            log.warning("%s", err)  # it ends, or it is killed: its exit status says more
            child.process.kill()
            return
        with self._changed:
            self._control = control
            self._acks.begun(acked)
            self._changed.notify_all()
        # What was said meanwhile.
        if self._version != version and self._version is not None:
            self._say("set-version", version=self._version)
        if self._paused != paused:
            self._say("pause" if self._paused else "resume")
        if self._draining and not draining:
            self._say("drain")

    def _gone(self) -> None:
        with self._changed:
            control, self._control = self._control, None
        if control is not None:
            control.close()

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            self.error, self.over = self.error or error, True
        self._notify()

    def _commits(self) -> int:
        """Return the number of the newest entry of the log, 0 without one."""
        try:
            return max((int(n[:20]) for n in os.listdir(os.path.join(self.run, "_commits")) if n[:20].isdigit()), default=0)
        except OSError:
            return 0
    # The tasks.

    def _hand_over(self) -> None:
        """Hand every task over once it is taken, one at a time, until no more come."""
        while (task := self._source.take()) is not None:
            answer = self._accepted(task)
            if answer is None or answer.get("code") == CLOSED or CLOSED_TEXT in str(answer.get("error")):
                return
            if not answer.get("ok"):
                raise refusal(f"task {task.get('id')}", answer)
            if not answer.get("again"):
                self._await_begin(str(answer.get("group")))
        self.drain()

    def _accepted(self, task: Task) -> dict[str, Any] | None:
        """Return the answer of the process that took a task, None where none will.

        A process that ended before it answered may have accepted the task: the next one
        knows it again.
        """
        while (control := self._connected()) is not None:
            try:
                tasks = self._tasks = Control(control.path)
                return tasks.ask("task", None, task=task)
            except GoneError:
                self._closing.wait(0.05)
            finally:
                if self._tasks is not None:
                    self._tasks.close()
                    self._tasks = None
        return None

    def _await_begin(self, group: str) -> None:
        """Wait until a group begins, so that no more tasks are taken than can begin.

        A process that is started again begins groups of which this was not heard.
        """
        with self._changed:
            starts = self.starts
            self._changed.wait_for(lambda: group in self._begun or self.starts > starts or self.over or self._closing.is_set())
            self._begun.clear()

    def _acknowledge(self) -> None:
        since: float | None = None  # a refusal
        while True:
            with self._changed:
                due = lambda: self._closing.is_set() or self._control is not None and self._acks.due()  # noqa: E731
                self._changed.wait_for(due)
                control, request = self._control, self._acks.due()
                if self._closing.is_set() or control is None or request is None:
                    return
            try:
                answer = control.ask("ack", **request)
            except GoneError:
                self._closing.wait(0.05)
                continue
            if not answer.get("ok"):
                # The log may be read before the process has counted what it has just committed.
                if since is None:
                    since = time.monotonic()
                if time.monotonic() - since > PATIENCE:
                    raise refusal("ack", answer)
                self._closing.wait(0.01)
                continue
            since = None
            with self._changed:
                if self._control is control:
                    self._acks.answered(request)

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
        self._source.end()
        child, control, tasks = self._child, self._control, self._tasks
        seq, groups = acked = self._acks.cursor
        if control is not None and self._acks.unsaid:
            with contextlib.suppress(GoneError):
                control.ask("ack", 5, seq=seq, groups=groups)
                self._acks.begun(acked)
        with self._changed:
            self._changed.notify_all()
        try:
            if child is not None:
                child.stop(self.limits.grace)
        finally:
            for held in (control, tasks):
                if held is not None:
                    held.close()
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(1)  # the caller's tasks may hold one as long as they like
            self.settings.remove()
            if self._acks.unsaid and self.run_id:
                try:
                    acknowledge(self.run, self.run_id, acked)
                except RolloutError as err:  # the next one to read it meets it again
                    log.warning("%s", err)
            with self._changed:
                self.over = True
            self._notify()
