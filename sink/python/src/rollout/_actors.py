"""The actors of rollout.ray. A worker runs the process `rollout work`, and a reader puts groups into the object store."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from rollout.collecting._child import Child, back_off, stop
from rollout.collecting._program import program
from rollout.collecting._settings import Settings
from rollout.collecting.supervisor import LOCKED
from rollout.errors import StorageError
from rollout.runs.follow import Following
from rollout.runs.scores import COLLECTED

log = logging.getLogger("rollout.ray")

AHEAD = 8
"""The maximum number of groups in one answer of the reader. Two answers can wait in the object store."""
GRACE = 30.0
"""Seconds for a worker to end after SIGTERM."""
TRIES = 12
"""How many times in a row a process that crashes, or whose spool is locked, is started: for about a minute."""


class Worker:
    """Keeps the process `rollout work` running on a node.

    spool: a folder for one fleet on a local disk. Each worker on the node locks a subfolder: the first one that is free,
        so a worker finds the samples that a killed worker on this node has left.
    """

    def __init__(self, url: str, spool: str, how: Settings) -> None:
        self._url, self._spool, self._how, self._stopping = url, spool, how, threading.Event()
        # A worker needs some seconds after its grace period; see stop.
        self._env = {**os.environ, "ROLLOUT_RUN_GRACE": f"{GRACE - 10:g}s", **how.env}
        self._child: Child | None = None

    def run(self) -> None:
        """Return when all partitions are complete, or after stop. Raises CollectError."""
        command = [program(), "work", self._url, f"--spool={self._subfolder()}", "--attached", "--json", *self._how.flags]
        tries = 0
        while not self._stopping.is_set():
            begin = time.monotonic()
            self._child = child = Child(command, self._env, self._how.secrets, self._how.body)
            for event in child.events():
                if event.get("event") == "warning":
                    log.warning("%s", event.get("text") or event)
            code = child.wait()
            error = child.error(code)
            if self._stopping.is_set() or error is None:
                return
            tries = 1 if time.monotonic() - begin > 60 else tries + 1
            if tries >= TRIES or code != LOCKED and not child.crashed(code):  # locked: the process of a killed actor is ending
                raise error
            log.warning("%s; starting it again", error)
            self._stopping.wait(back_off(tries - 1))

    def _subfolder(self) -> str:
        """Lock a subfolder of the spool until this process ends, and return its path."""
        try:
            os.makedirs(self._spool, exist_ok=True)
            for number in itertools.count():
                path = os.path.join(self._spool, str(number))
                self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return path
                except BlockingIOError:
                    os.close(self._lock)
        except OSError as err:
            raise StorageError(f"spool: {err}", hint="pass a folder that workers can write on each node") from None
        raise AssertionError  # count does not end

    def stop(self) -> None:
        """End the process."""
        self._stopping.set()
        if self._child is not None:
            with contextlib.suppress(Exception):  # it has ended, or takes too long
                self._child.process.terminate()
                self._child.process.wait(GRACE)
            stop([self._child], 2)


class Reader:
    """Reads groups, and puts them into the object store of its node."""

    def __init__(self, url: str, what: Mapping[str, Any]) -> None:
        self._url, self._what = url, what
        self._following: Following | None = None
        self._end: list[Any] = []  # the place of _following

    def take(self, place: list[Any]) -> list[tuple[Any, str, int, dict[str, Any]]]:
        """Wait for the next group after a place. Return references to it and to more groups that are complete, or
        nothing if the run has ended. The other values are the next fields of rollout.ray.Reference."""
        import ray  # rollout.ray reports that it is missing

        following = self._following if place == self._end else None
        self._following = None  # after an error, begin again at the place
        following = following or Following(self._url, after={"partitions": place}, scores=COLLECTED, **self._what)
        found, end = [], list(place)
        group = next(iter(following), None)
        while group is not None:
            number = following.origin
            end[number] = following.cursor["partitions"][number]
            found.append((ray.put(group), group.id, number, end[number]))
            group = following.poll() if len(found) < AHEAD else None
        self._following, self._end = following, end
        return found
