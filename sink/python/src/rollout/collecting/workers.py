"""Keeps several collectors running, with common limits on their groups.

Each collector (a worker) has its own run and its own Supervisor; see merged.py for the folders. The
workers do not apply max_ahead, max_lag and until_groups themselves (--unpaced). Instead, one thread
here takes the tasks and passes each task to its worker when the sum over all workers allows another
group (see Pace). A group counts from the moment when its task is passed, so the sum is never too
low.

An error of one worker ends all workers. After a ToleranceError or a normal end of one worker, the
others still collect the tasks that they have.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from dataclasses import replace
from typing import Any

from rollout.collecting import commands
from rollout.collecting._child import Child, stop
from rollout.collecting._pace import Pace
from rollout.collecting._settings import Limits, Settings
from rollout.collecting.merged import Places, partition
from rollout.collecting.supervisor import News, Supervisor, close
from rollout.collecting.tasks import Source, Task
from rollout.errors import CollectError, ToleranceError
from rollout.runs._hashes import Hashes
from rollout.runs.cursor import Place

QUEUE = 8
"""How many tasks can wait for a worker that has no free slot. With fewer, the other workers wait for
this worker more often. With more, tasks are requested earlier."""

_COUNTS = ("planned", "committed", "filtered", "failed", "skipped", "remaining", "in_flight")
_GROUPS = ("begun", "whole", "ahead", "filtered", "informative")


class Workers(News):
    """The workers of one collection. It has the methods of Supervisor and Commands that Collection
    uses."""

    def __init__(self, program: str, out: str, runs: list[str], settings: Settings, source: Source, limits: Limits) -> None:
        super().__init__()
        self.run, self.over = out, False
        self.error: BaseException | None = None
        self.commands = self
        self.lock = threading.RLock()  # for all numbers of groups
        self.changed = threading.Condition(self.lock)
        self._pace = Pace()
        self._source, self._limits, self._pid = source, limits, os.getpid()
        self._stopped = False  # true if no more tasks are passed
        self._closed = False
        settings = replace(settings, flags=[*settings.flags, "--unpaced"])
        self.workers = [Worker(self, program, run, settings, limits) for run in runs]

    def start(self) -> None:
        """Start the workers, and the thread that passes tasks."""
        for worker in self.workers:
            worker.start()
        threading.Thread(target=self._pass_tasks, name="rollout-pace", daemon=True).start()

    @property
    def restarts(self) -> int:
        """How many times a process was restarted after it ended unexpectedly."""
        return sum(w.restarts for w in self.workers)

    def status(self, timeout: float) -> dict[str, Any]:
        """Return the status of each worker, and the sums over those that have not ended."""
        end = time.monotonic() + timeout
        every = [w.status(max(0.1, end - time.monotonic())) for w in self.workers]
        live = [s for s in every if "groups" in s]
        if not live:
            return {"phase": "ended"}
        out = {k: live[0][k] for k in ("phase", "paused", "version")} | {k: sum(s[k] for s in live) for k in _COUNTS}
        return out | {"groups": live[0]["groups"] | {k: sum(s["groups"][k] for s in live) for k in _GROUPS}, "workers": every}

    # Messages from the trainer.

    @property
    def run_id(self) -> list[str]:
        """The id of each run."""
        return [w.commands.run_id for w in self.workers]

    @run_id.setter
    def run_id(self, ids: list[str]) -> None:
        for w, run_id in zip(self.workers, ids, strict=True):
            w.commands.run_id = run_id

    def send(self, subject: str, op: str, **fields: Any) -> None:
        """Send a message to all workers, and then wait for the answers. See Commands.send."""
        sent = [(w.commands, w.commands.post(subject, op, **fields)) for w in self.workers]
        until = time.monotonic() + commands.PATIENCE
        for each, command in sent:
            each.wait(subject, command, until)
        if subject == "pause":
            self._pause(op == "pause")

    def _pause(self, on: bool) -> None:
        with self.lock:
            self._pace.pause(on)
            self.changed.notify_all()

    def drain(self) -> None:
        """See Supervisor.drain."""
        self._source.end()
        self._pause(False)
        for w in self.workers:
            w.commands.end_pause()

    def acknowledge(self, place: Places) -> None:
        """Acknowledge all groups before a place, without waiting for the answers."""
        for w, at in zip(self.workers, place, strict=True):
            w.commands.acknowledge(at)

    def skip(self, places: list[list[Place]]) -> None:
        """Report groups that the filters dropped."""
        for w, dropped in zip(self.workers, places, strict=True):
            w.commands.skip(dropped)

    # The tasks.

    def _pass_tasks(self) -> None:
        """Take tasks one at a time and pass each task to its worker, until there are no more tasks."""
        try:
            while (task := self._source.take()) is not None and self._pass_task(task):
                pass
        except BaseException as err:  # an error from the caller's tasks, or a bug in this package
            self.ended(err)
        self._stop()
        if not self._source.closed:  # otherwise the trainer will resume this run later
            for w in self.workers:
                w._source.end()

    def _pass_task(self, task: Task) -> bool:
        """Pass a task when its group can start. Return False if no more tasks are passed."""
        name = _bytes(task["id"])
        worker = self.workers[partition(name, len(self.workers))]
        with self.lock:
            while not self._stopped and (left := self._held(worker, name)):
                self.changed.wait(None if left == math.inf else left)
            if not self._stopped:
                worker.add(task, name)
            return not self._stopped

    def _held(self, worker: Worker, name: bytes) -> float:
        """Return 0 if a task can be passed, or the seconds after which to ask again."""
        if worker.queued >= QUEUE or not all(w.pace for w in self.workers):
            return math.inf
        return 0 if name in worker.known else self._pace.wait(sum(len(w.known) for w in self.workers) - self._pace.whole)

    def count(self) -> None:
        """Update the numbers of groups. The caller holds the lock."""
        self._pace.update([w.pace for w in self.workers if w.pace])
        if self._pace.enough:
            self._stop()
        self.changed.notify_all()

    def _stop(self) -> None:
        """Pass no more tasks. The workers collect the tasks that they have."""
        with self.lock:
            self._stopped = True
            self.changed.notify_all()
        self._source.end()

    # The end.

    def ended(self, error: BaseException | None) -> None:
        """Handle the end of a worker."""
        self._stop()
        with self.lock:
            self.error = self.error or error
        if error is not None and not isinstance(error, ToleranceError):
            live = [w for w in self.workers if not w.over]
            for w in live:
                w._end(None)
            stop([w._child for w in live if w._child], self._limits.grace)
        with self.lock:
            if all(w.over for w in self.workers) and not self.over:
                self.error = self.error or self._short()
                self.over = True
        self._notify()

    def _short(self) -> ToleranceError | None:
        """Return the error of a collection that ended before it had enough groups."""
        pace = self._pace
        if self._closed or pace.informative >= pace.until:
            return None
        said = f"ran out of tasks before reaching until_groups={pace.until}: {pace.informative} of {pace.whole} whole groups are informative"
        return ToleranceError(f"{self.run}: {said}", hint="call collect with more tasks, or lower until_groups")

    def close(self) -> None:
        """Stop all workers. Does nothing in a forked process."""
        if os.getpid() != self._pid or self._closed:
            return
        self._closed = True
        try:
            self._source.close()
            self._stop()
            close(self.workers)
        finally:
            self.over = True
            self._notify()


class Worker(Supervisor):
    """The supervisor of one worker."""

    def __init__(self, fleet: Workers, program: str, run: str, settings: Settings, limits: Limits) -> None:
        super().__init__(program, run, settings, Source(None), limits)
        self._fleet = fleet
        self.queued = 0  # tasks that wait for the worker
        self.known = Hashes()  # ids of the tasks that the run has, or that were passed
        self.pace: dict[str, Any] = {}  # the last event "pace"

    def add(self, task: Task, name: bytes) -> None:
        """Pass a task. The caller holds the lock."""
        self._source.add(task)
        self.known.add(name)
        self.queued += 1

    def _send_task(self, task: Task) -> dict[str, Any] | None:
        with self._fleet.lock:
            self.queued -= 1
            self._fleet.changed.notify_all()
        return super()._send_task(task)

    def _handle_event(self, child: Child, event: dict[str, Any]) -> None:
        name = event.get("event")
        if name == "launch":  # before the process gets tasks
            with open(os.path.join(self.run, "tasks.jsonl"), "rb") as f:
                for line in f:
                    if line.endswith(b"\n"):
                        self._learn(json.loads(line)["id"])
        super()._handle_event(child, event)
        if name == "accepted":  # another client can also add tasks
            self._learn(event["task"])
        elif name == "pace" and child.launched:
            with self._fleet.lock:
                self.pace = event
                self._fleet.count()

    def _learn(self, task_id: str) -> None:
        with self._fleet.lock:
            self.known.add(_bytes(task_id))

    def _notify(self) -> None:
        super()._notify()
        self._fleet._notify()

    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, CollectError) and self.error is None:
            error.text = f"{self.run}: {error.text}"
        super()._end(error)
        self._fleet.ended(error)


def _bytes(task_id: object) -> bytes:
    return str(task_id).encode(errors="surrogatepass")
