"""Sends the trainer's messages to its collector. A restarted collector receives the messages
again.

For each subject, such as the policy version, only the last message counts. One thread sends all
messages over one connection, in order, so no process receives an older version after a newer one.
The thread waits for the answer to a message as long as the process runs. It does not repeat the
message over a second connection, because the second message could overtake the first. The caller
of send() waits only PATIENCE seconds, but the message remains queued after this time.

In the collector, a drain ends a pause. So Commands delays a drain until the trainer ends the
pause. Otherwise, if the tasks ended while the trainer paused to update the engine's weights, the
collector would start samples during the update.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rollout.collecting._control import Control, GoneError, refusal
from rollout.errors import CollectError
from rollout.runs.cursor import START, Place

log = logging.getLogger("rollout.collect")


class Acks:
    """The acknowledged cursor, and the groups after the cursor that the filters skip.

    The cursor cannot pass a group that the trainer is still using. A skipped group that comes
    later is reported separately, so that max_ahead does not count it. Only the cursor is durable,
    so a restarted process must receive the skipped groups again. Not thread-safe: the caller must
    hold a lock.
    """

    def __init__(self) -> None:
        self.cursor: Place = START
        self._known: Place = START  # the cursor that the current process knows
        self._skipped: deque[Place] = deque()  # skipped groups; some can be before the cursor
        self._unsent: deque[Place] = deque()

    def acknowledge(self, place: Place) -> None:
        """Record that the trainer no longer needs the groups before a place."""
        self.cursor = max(self.cursor, place)
        for places in (self._skipped, self._unsent):
            while places and places[0] <= self.cursor:
                places.popleft()

    def skip(self, places: Iterable[Place]) -> None:
        """Record groups that the filters drop."""
        for place in places:
            self._skipped.append(place)
            self._unsent.append(place)

    @property
    def pending(self) -> bool:
        """Whether the current process has not yet received the cursor."""
        return self.cursor > self._known

    def restarted(self, known: Place) -> None:
        """Record that a new process was started. known is the cursor that the new process knows."""
        self._known, self._unsent = known, deque(self._skipped)

    def next_request(self) -> dict[str, Any] | None:
        """Return the next request for the current process, or None if the process is up to date."""
        if self.pending:
            return {"seq": self.cursor[0], "groups": self.cursor[1]}
        return {"seq": self._unsent[0][0], "groups": self._unsent[0][1], "only": True} if self._unsent else None

    def answered(self, request: dict[str, Any]) -> None:
        """Record that the current process has accepted a request."""
        place = (request["seq"], request["groups"])
        if "only" not in request:
            self._known = max(self._known, place)
        elif self._unsent and self._unsent[0] == place:
            self._unsent.popleft()


PATIENCE = 30.0
"""How many seconds a caller waits for the answer to its message."""
ACK_PATIENCE = 10.0
"""How many seconds a rejected acknowledgement is retried. A process can reject it because a
commit appears in the log before the process counts it."""
AGAIN = 0.05
"""How many seconds to wait before replacing a broken connection."""

_ACK = "ack"


@dataclass(eq=False)
class Command:
    """A request to the process."""

    op: str
    fields: dict[str, Any] = field(default_factory=dict)
    awaited: bool = False
    """Whether a caller is waiting for the answer. If the process refuses the request, this caller
    raises the error."""
    refused: CollectError | None = None


class Commands:
    """The last message on each subject, and the messages that the current process has accepted."""

    def __init__(self, run: str) -> None:
        self.run_id = ""
        """The run's id, or "" until it is known. Each acknowledgement contains the id, so the
        collector of another run rejects it."""
        self._run = run
        self._acks = Acks()
        self._lock = threading.RLock()  # not the condition: a signal inside its __enter__ would leave it locked
        self._changed = threading.Condition(self._lock)
        self._last: dict[str, Command] = {}  # the last message by subject, in order
        self._accepted: dict[str, Command] = {}  # messages that the current process has accepted, by subject
        self._socket: str | None = None  # the socket of the current process
        self._control: Control | None = None
        self._process = 0  # the number of the current process
        self._closed = False

    # Messages from the trainer.

    def send(self, subject: str, op: str, **fields: Any) -> None:
        """Send a message and wait for the answer. If the process is still starting, return at
        once; the process receives the message later.

        Raises an error if the process refuses the message. The message then has no effect.
        """
        self.wait(subject, self.post(subject, op, **fields), time.monotonic() + PATIENCE)

    def post(self, subject: str, op: str, **fields: Any) -> Command:
        """Send a message, and return it for wait()."""
        command = Command(op, fields, awaited=True)
        with self._lock:
            self._last.pop(subject, None)
            self._last[subject] = command
            self._changed.notify_all()
        return command

    def wait(self, subject: str, command: Command, until: float) -> None:
        """Wait for the answer to a message that post() sent. See send()."""
        with self._lock:
            try:
                answered = self._changed.wait_for(lambda: self._settled(subject, command), until - time.monotonic())
            finally:  # a signal can also end the wait
                command.awaited = False
        if command.refused is not None:
            raise command.refused
        if not answered:
            log.warning("%s: the collector has not answered %r for %g s and might be suspended or overloaded", self._run, command.op, PATIENCE)

    @property
    def versioned(self) -> bool:
        """Whether the trainer has set a policy version."""
        with self._lock:
            return "version" in self._last

    def end_pause(self) -> None:
        """End a pause, without waiting for the answer."""
        with self._lock:
            if self._paused():
                self._last["pause"] = Command("resume")
                self._changed.notify_all()

    def _paused(self) -> bool:
        return "pause" in self._last and self._last["pause"].op == "pause"

    def _held(self, command: Command) -> bool:
        return command.op == "drain" and self._paused()

    def acknowledge(self, place: Place) -> None:
        """Acknowledge all groups before a place, without waiting for the answer."""
        with self._lock:
            self._acks.acknowledge(place)
            self._changed.notify_all()

    def skip(self, places: list[Place]) -> None:
        """Report groups that the filters dropped, so that other groups can start instead."""
        if places:
            with self._lock:
                self._acks.skip(places)
                self._changed.notify_all()

    @property
    def acked(self) -> Place:
        """The acknowledged place."""
        with self._lock:
            return self._acks.cursor

    def flush(self, until: float) -> None:
        """Wait until the process, if there is one, has received the acknowledged place."""
        with self._lock:
            self._changed.wait_for(lambda: not self._acks.pending or self._socket is None or self._closed, until - time.monotonic())

    def _settled(self, subject: str, command: Command) -> bool:
        """Report whether send() can stop waiting: the answer has arrived, or the command will be
        sent later or never."""
        if self._held(command) or self._socket is None or self._closed:
            return True
        return self._accepted.get(subject) is command or self._last.get(subject) is not command

    # The process.

    def started(self, socket: str) -> None:
        """Record the socket of a process that has just started. All messages are sent to this
        process."""
        with self._lock:
            self._socket, self._process = socket, self._process + 1
            self._accepted = {}
            self._acks.restarted(START)
            self._changed.notify_all()

    def ended(self) -> None:
        """Record that the process has ended."""
        with self._lock:
            self._socket, self._accepted = None, {}
            control, self._control = self._control, None
            self._changed.notify_all()
        if control is not None:
            control.close()

    def socket(self, until: float | None = None) -> str | None:
        """Wait until a process is running, and return its socket. Return None on a timeout or if
        no further process will start."""
        with self._lock:
            left = None if until is None else max(0.0, until - time.monotonic())
            self._changed.wait_for(lambda: self._socket is not None or self._closed, left)
            return None if self._closed else self._socket

    def ready_socket(self) -> str | None:
        """Wait until a process has received all messages, and return its socket. Return None if
        no further process will start.

        So a message such as a policy version takes effect before a task that follows it.
        """
        with self._lock:
            self._changed.wait_for(lambda: self._closed or (self._socket is not None and self._next_command() is None))
            return None if self._closed else self._socket

    def close(self) -> None:
        """Stop sending messages."""
        with self._lock:
            self._closed = True
        self.ended()

    # Sending.

    def run(self) -> None:
        """Send messages until close() is called. This method runs in its own thread. It raises an
        error if the process refuses a message and no caller is waiting for the answer."""
        refusing = (0, 0.0)  # the process that refuses acknowledgements, and the time of its first refusal
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._closed or self._due() is not None)
                due, number, socket, control = self._due(), self._process, self._socket, self._control
                if self._closed:
                    return
                assert due is not None and socket is not None
                subject, command = due
            try:
                if control is None and (control := self._connected(socket, number)) is None:
                    continue
                answer = control.ask(command.op, None, **command.fields)
            except GoneError:
                self._dropped(control)
                continue
            if subject == _ACK and answer.get("ok"):
                refusing = (0, 0.0)
            elif subject == _ACK:
                # The trainer can read a commit from the log before the process has counted the
                # commit.
                if refusing[0] != number:
                    refusing = (number, time.monotonic())
                if time.monotonic() - refusing[1] <= ACK_PATIENCE:
                    with self._lock:
                        self._changed.wait(0.01)
                    continue
            self._answered(number, subject, command, answer)

    def _due(self) -> tuple[str, Command] | None:
        """Return the subject of the next message, and the message. Acknowledgements come last,
        because the process can reject an acknowledgement for a short time."""
        if self._socket is None:
            return None
        command = self._next_command()
        request = self._acks.next_request() if command is None else None
        if request is None:
            return command
        return _ACK, Command("ack", {**request, "run_id": self.run_id} if self.run_id else request)

    def _next_command(self) -> tuple[str, Command] | None:
        due = ((subject, c) for subject, c in self._last.items() if self._accepted.get(subject) is not c and not self._held(c))
        return next(due, None)

    def _connected(self, socket: str, number: int) -> Control | None:
        """Return a connection to a process, or None if the process has ended in the meantime."""
        control = Control(socket)
        with self._lock:
            if self._process == number and self._socket is not None:
                self._control = control
                return control
        control.close()
        return None

    def _dropped(self, control: Control | None) -> None:
        """Drop a broken connection. If the process is not ending, it will receive the request
        again."""
        with self._lock:
            if self._control is control:
                self._control = None
        if control is not None:
            control.close()
        with self._lock:
            self._changed.wait_for(lambda: self._closed or self._socket is None, AGAIN)

    def _answered(self, number: int, subject: str, command: Command, answer: dict[str, Any]) -> None:
        with self._lock:
            if answer.get("ok"):
                if self._process != number or self._socket is None:
                    pass  # the next process gets the message
                elif subject == _ACK:
                    self._acks.answered(command.fields)
                else:
                    self._accepted[subject] = command
            else:
                command.refused = refusal(command.op, answer)
                if self._last.get(subject) is command:
                    before = self._accepted.get(subject)
                    if before is None:
                        del self._last[subject]
                    else:
                        self._last[subject] = before
            self._changed.notify_all()
            if command.refused is not None and not command.awaited:
                raise command.refused
