"""Keeps several collectors running, with common limits on their groups.

Each collector (a worker) has its own run and its own Supervisor; see merged.py for the folders. The
workers do not apply max_ahead, max_lag and until_groups themselves (--unpaced). Instead, one thread
here takes the tasks and passes each task to its worker when the sum over all workers allows another
group (see Pace). A second thread asks a worker for the numbers of its groups when they might have
changed. A group counts from the moment when its task is passed, so the sum is never too low.

An error of one worker ends all workers. After a ToleranceError or a normal end of one worker, the
others still collect the tasks that they have.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rollout.collecting._child import Child
from rollout.collecting._pace import Groups, Pace
from rollout.collecting._settings import Limits, Settings
from rollout.collecting.commands import Command, Commands
from rollout.collecting.merged import Places, known_tasks, partition
from rollout.collecting.supervisor import News, Supervisor
from rollout.collecting.tasks import Source, Task
from rollout.errors import CollectError, ToleranceError
from rollout.runs.cursor import Place

_COUNTS = ("planned", "committed", "filtered", "failed", "skipped", "remaining", "in_flight")
_GROUPS = ("begun", "whole", "ahead", "filtered", "informative")


class Workers(News):
    """The workers of one collection. It has the methods of Supervisor that Collection uses."""

    def __init__(self, program: str, out: str, runs: list[str], settings: Settings, source: Source, limits: Limits) -> None:
        super().__init__()
        self.run, self.over = out, False
        self.error: BaseException | None = None
        self.pace = Pace()
        self.lock = threading.Condition()  # for the pace and the numbers of groups
        self._source, self._limits, self._pid = source, limits, os.getpid()
        self._known = known_tasks(runs)
        self._asked = False  # true while a task waits until its group can start
        self._stop = False  # true if no more tasks are passed
        self._closed = False
        settings = replace(settings, flags=[*settings.flags, "--unpaced"])
        self.workers = [Worker(self, program, run, settings, limits) for run in runs]
        self.commands = AllCommands(self)
        self._threads = [threading.Thread(target=self._guarded, args=(work,), name="rollout-pace", daemon=True) for work in (self._dispatch, self._look)]

    def start(self) -> None:
        """Start the workers and the threads."""
        for worker in self.workers:
            worker.start()
        for thread in self._threads:
            thread.start()

    @property
    def restarts(self) -> int:
        """How many times a process was restarted after it ended unexpectedly."""
        return sum(w.restarts for w in self.workers)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Inside the with block, the caller holds the lock. Then the threads decide again."""
        with self.lock:
            yield
            self.lock.notify_all()

    def drain(self) -> None:
        """See Supervisor.drain."""
        self._source.end()
        for w in self.workers:
            w.commands.end_pause()

    def status(self, timeout: float) -> dict[str, Any]:
        """Return the status of each worker, and the sums over those that have not ended."""
        end = time.monotonic() + timeout
        every = [w.status(max(0.1, end - time.monotonic())) for w in self.workers]
        live = [s for s in every if "groups" in s]
        if not live:
            return {"phase": "ended"}
        out = {k: live[0][k] for k in ("phase", "paused", "version")} | {k: sum(s[k] for s in live) for k in _COUNTS}
        return out | {"groups": live[0]["groups"] | {k: sum(s["groups"][k] for s in live) for k in _GROUPS}, "workers": every}

    # The tasks.

    def _dispatch(self) -> None:
        """Take tasks one at a time and pass each task to its worker, until there are no more tasks."""
        while (task := self._source.take()) is not None:
            name = str(task["id"])
            key = name.encode(errors="surrogatepass")
            worker, new = self.workers[partition(name, len(self.workers))], key not in self._known
            with self.changing():
                self._asked = new
                while not self._stop and (left := math.inf if worker.busy else self._wait() if new else 0):
                    self.lock.notify_all()
                    self.lock.wait(None if left == math.inf else left)
                self._asked = False
                if self._stop:
                    break
                worker.busy = True
                worker.passed += new
            self._known.add(key)
            worker.add(task)
        self.stop()
        if not self._source.closed:  # otherwise the trainer will resume this run later
            for w in self.workers:
                w.end_tasks()

    def _wait(self) -> float:
        """Return 0 if another group can start, or the seconds after which to ask again."""
        if any(w.stale or w.seen is None for w in self.workers):
            return math.inf
        return self.pace.wait(w.groups for w in self.workers)

    def _look(self) -> None:
        """Ask the workers for the numbers of their groups, if a decision depends on them."""
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self._stop or any(w.stale and (self._asked or self.pace.until > 0 or w.seen is None) for w in self.workers))
                if self._stop:
                    return
            for w in self.workers:
                if w.stale:
                    w.look()
            with self.changing():
                self._wait()
            if self.pace.enough:
                self.stop()

    def stop(self) -> None:
        """Pass no more tasks. The workers collect the tasks that they have."""
        with self.changing():
            self._stop = True
        self._source.end()

    # The end.

    def ended(self, error: BaseException | None) -> None:
        """Handle the end of a worker."""
        self.stop()
        with self.lock:
            self.error = self.error or error
        if error is not None and not isinstance(error, ToleranceError):
            for w in self.workers:
                if not w.over:
                    w._fail(None)
        with self.lock:
            if all(w.over for w in self.workers) and not self.over:
                self.error = self.error or self._short()
                self.over = True
        self._notify()

    def _short(self) -> ToleranceError | None:
        """Return the error of a collection that ended before it had enough groups."""
        informative, whole = sum(w.groups.informative for w in self.workers), sum(w.groups.whole for w in self.workers)
        if self._closed or informative >= self.pace.until:
            return None
        said = f"ran out of tasks before reaching until_groups={self.pace.until}: {informative} of {whole} whole groups are informative"
        return ToleranceError(f"{self.run}: {said}", hint="call collect with more tasks, or lower until_groups")

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as err:  # an error from the caller's tasks, or a bug in this package
            self.ended(err)

    def close(self) -> None:
        """Stop all workers. Does nothing in a forked process."""
        if os.getpid() != self._pid or self._closed:
            return
        with contextlib.ExitStack() as stack:  # also if a signal ends one of the calls
            stack.callback(self._close)
            for w in self.workers:
                stack.callback(w.close)
            self._closed = True
            self._source.close()
            self.stop()

    def _close(self) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(1 + self._limits.grace)
        self.over = True
        self._notify()


class Worker(Supervisor):
    """The supervisor of one worker. It is given one task at a time."""

    def __init__(self, fleet: Workers, program: str, run: str, settings: Settings, limits: Limits) -> None:
        super().__init__(program, run, settings, Source(None), limits)
        self._fleet = fleet
        self.commands = _Commands(run, self)
        self.busy = False  # true while a task is being passed, or its group has not started
        self.passed = 0  # new tasks that were passed
        self.stale = False  # true if the numbers in seen might have changed
        self.seen: dict[str, int] | None = None  # the last numbers of groups; None before the first
        self._started, self._counted = 0, 0  # passed tasks whose groups have started; those that seen contains
        self._earlier = 0  # tasks that the run had when the process started
        self._times: dict[str, float] = {}  # when each group in progress started

    def add(self, task: Task) -> None:
        """Pass a task."""
        self._source.add(task)

    def end_tasks(self) -> None:
        """Pass no more tasks. The process ends after the tasks that it has."""
        self._source.end()

    @property
    def groups(self) -> Groups:
        """The numbers of groups. A group whose task was passed is in progress, even if it has not
        started."""
        s = self.seen or dict.fromkeys(_GROUPS, 0)
        progress = s["begun"] - s["whole"]
        waiting = max(0, self._earlier - s["begun"]) + self.passed - self._counted
        return Groups(progress + waiting, s["ahead"] - progress, s["informative"], s["whole"])

    def look(self) -> None:
        """Ask the process for the numbers of its groups."""
        with self._fleet.lock:
            starts, counted, self.stale = self.starts, self._started, False
        try:
            status = self.status(1.0)
        except (CollectError, TimeoutError):
            status = {}
        with self._fleet.lock:
            if "groups" in status and self.starts == starts:
                self.seen, self._counted = status["groups"], counted
                self._fleet.pace.read_limits(status)
            elif not self.over:
                self.stale = True

    def changed(self) -> None:
        """Record that the numbers of groups have changed."""
        with self._fleet.changing():
            self.stale = self.seen is None or self._fleet.pace.limited

    def _handle_event(self, child: Child, event: dict[str, Any]) -> None:
        name, group = event.get("event"), str(event.get("group"))
        if name == "launch":
            self._earlier, self._times = int(event["tasks"]), {}
        super()._handle_event(child, event)
        if name == "begun":
            self._times[group] = time.monotonic()
        elif name == "group" and (began := self._times.pop(group, None)):
            self._fleet.pace.arrived(time.monotonic() - began)
        elif name == "done" and (last := event["summary"].get("groups")):
            with self._fleet.lock:
                self.seen = last
        if name in ("launch", "group"):
            self.changed()

    def _pass_task(self, task: Task, starts: int) -> dict[str, Any] | None:
        answer = super()._pass_task(task, starts)
        with self._fleet.changing():
            self.busy = False
            if answer is not None and answer.get("again"):
                self.passed = self._started  # no group starts
            else:
                self._started = self.passed
        return answer

    def _notify(self) -> None:
        super()._notify()
        self._fleet._notify()

    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, CollectError) and self.error is None:
            error.text = f"{self.run}: {error.text}"
        super()._end(error)
        self._fleet.ended(error)


class _Commands(Commands):
    """Commands that report each acknowledgement that the process has received."""

    def __init__(self, run: str, worker: Worker) -> None:
        super().__init__(run)
        self._worker = worker

    def _answered(self, number: int, subject: str, command: Command, answer: dict[str, Any]) -> None:
        super()._answered(number, subject, command, answer)
        if command.op == "ack":
            self._worker.changed()


class AllCommands:
    """Sends the trainer's messages to all workers. It has the methods of Commands that Collection
    uses."""

    def __init__(self, fleet: Workers) -> None:
        self._workers, self._fleet = fleet.workers, fleet
        self._returned = 0  # the number of acknowledged groups in the last place

    @property
    def run_id(self) -> list[str]:
        """The id of each run."""
        return [w.commands.run_id for w in self._workers]

    @run_id.setter
    def run_id(self, ids: list[str]) -> None:
        for w, run_id in zip(self._workers, ids, strict=True):
            w.commands.run_id = run_id

    def send(self, subject: str, op: str, **fields: Any) -> None:
        """Send a message to all workers, and then wait for the answers. See Commands.send."""
        sent = [(w.commands, w.commands.post(subject, op, **fields)) for w in self._workers]
        for commands, command in sent:
            commands.wait(subject, command)
        if op == "set-version":
            for w in self._workers:
                if self._fleet.pace.max_lag >= 0 and w.seen:  # the next batch is counted from here
                    w.look()
            with self._fleet.changing():
                self._fleet.pace.set_version(fields["version"], sum(w.groups.given for w in self._workers))

    def acknowledge(self, place: Places) -> None:
        """Acknowledge all groups before a place, without waiting for the answers."""
        for w, at in zip(self._workers, place[1:], strict=True):
            w.commands.acknowledge(at)
        with self._fleet.lock:
            self._fleet.pace.acknowledged(max(0, place[0] - self._returned))
            self._returned = place[0]

    def skip(self, places: list[tuple[int, Place]]) -> None:
        """Report groups that the filters dropped."""
        for i, w in enumerate(self._workers):
            w.commands.skip([place for worker, place in places if worker == i])
        with self._fleet.lock:
            self._fleet.pace.acknowledged(len(places))
