"""The trainer's messages to its collector, repeated to a restarted collector.

For each subject, such as the version, only the last message counts. One thread sends all
messages over one connection, in order, so no process gets an older version after a newer one.
It waits for an answer as long as the process lives, because a repeated message over a second
connection could overtake the first. The caller of say waits for PATIENCE seconds; the message
then stays due.

A drain ends a pause in the process, so it is held until the pause ends. A trainer that has
paused to update the engine's weights then gets no samples just because the tasks have ended.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from rollout._acks import Acks
from rollout._child import log
from rollout._control import Control, GoneError, refusal
from rollout._cursor import START, Place
from rollout.errors import CollectError

PATIENCE = 30.0
"""Seconds that a caller waits for the answer to its message."""
ACK_PATIENCE = 10.0
"""Seconds during which the process can reject an acknowledgement of what is in the log."""
AGAIN = 0.05
"""Seconds before a broken connection is replaced."""

_ACK = "ack"


@dataclass(eq=False)
class Word:
    """A request to the process."""

    op: str
    fields: dict[str, Any] = field(default_factory=dict)
    awaited: bool = False
    """Its caller waits, and raises the refusal."""
    refused: CollectError | None = None


class Words:
    """The last message on each subject, and which of them the process has received."""

    def __init__(self, run: str) -> None:
        self.run_id = ""
        """The run's id, once a reader knows it. The collector of another run rejects its cursors."""
        self._run = run
        self._acks = Acks()
        self._changed = threading.Condition()
        self._said: dict[str, Word] = {}  # by subject, in order
        self._heard: dict[str, Word] = {}  # by the current process
        self._socket: str | None = None  # of the current process
        self._control: Control | None = None
        self._process = 0  # its number
        self._closed = False

    # Messages from the trainer.

    def say(self, subject: str, op: str, **fields: Any) -> None:
        """Send a message and wait for its answer. A process that is starting gets it later.

        Raises the refusal of the process; the message then has no effect.
        """
        word = Word(op, fields, awaited=True)
        with self._changed:
            self._said.pop(subject, None)
            self._said[subject] = word
            self._changed.notify_all()
            try:
                answered = self._changed.wait_for(lambda: self._settled(subject, word), PATIENCE)
            finally:  # a signal can end the wait
                word.awaited = False
        if word.refused is not None:
            raise word.refused
        if not answered:
            log.warning("%s: the collector has not answered %r for %g s: it may be suspended or overloaded", self._run, op, PATIENCE)

    @property
    def versioned(self) -> bool:
        """Whether a version was set."""
        with self._changed:
            return "version" in self._said

    def end_pause(self) -> None:
        """End a pause, without waiting."""
        with self._changed:
            if self._paused():
                self._said["pause"] = Word("resume")
                self._changed.notify_all()

    def _paused(self) -> bool:
        return "pause" in self._said and self._said["pause"].op == "pause"

    def _held(self, word: Word) -> bool:
        return word.op == "drain" and self._paused()

    def acknowledge(self, place: Place) -> None:
        """Acknowledge all groups before a place, without waiting."""
        with self._changed:
            self._acks.acknowledge(place)
            self._changed.notify_all()

    def leave_out(self, places: list[Place]) -> None:
        """Report groups that the filters drop, so that the trainer can get others instead."""
        if places:
            with self._changed:
                self._acks.leave_out(places)
                self._changed.notify_all()

    @property
    def acked(self) -> Place:
        """The acknowledged place."""
        with self._changed:
            return self._acks.cursor

    def flush(self, timeout: float) -> None:
        """Wait until the process, if any, has received the acknowledged place."""
        with self._changed:
            self._changed.wait_for(lambda: not self._acks.unsaid or self._socket is None or self._closed, timeout)

    def _settled(self, subject: str, word: Word) -> bool:
        """Report whether there is no answer to wait for: it has come, or none will."""
        return self._heard.get(subject) is word or self._said.get(subject) is not word or self._held(word) or self._socket is None or self._closed

    # The process.

    def reached(self, socket: str) -> None:
        """Send everything to a process that has started."""
        with self._changed:
            self._socket, self._process = socket, self._process + 1
            self._heard = {}
            self._acks.begun(START)
            self._changed.notify_all()

    def gone(self) -> None:
        """Record that the process has ended."""
        with self._changed:
            self._socket, self._heard = None, {}
            control, self._control = self._control, None
            self._changed.notify_all()
        if control is not None:
            control.close()

    def socket(self, until: float | None = None) -> str | None:
        """Wait for a process and return its socket; None if there will be none, or on timeout."""
        with self._changed:
            left = None if until is None else max(0.0, until - time.monotonic())
            self._changed.wait_for(lambda: self._socket is not None or self._closed, left)
            return None if self._closed else self._socket

    def listener(self) -> str | None:
        """Wait for a process that has received all messages and return its socket; None if
        there will be none.

        Messages before a task, such as a version, then apply to the task's samples.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._socket is not None and self._word_due() is None))
            return None if self._closed else self._socket

    def close(self) -> None:
        """Send no more messages."""
        with self._changed:
            self._closed = True
        self.gone()

    # Sending.

    def tell(self) -> None:
        """Send what is due, until close. Runs in its own thread. Raises refusals that no caller waits for."""
        refusing = (0, 0.0)  # the process that refuses acknowledgements, and since when
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._due() is not None)
                due, number, socket, control = self._due(), self._process, self._socket, self._control
                if self._closed:
                    return
                assert due is not None and socket is not None
                subject, word = due
            try:
                if control is None and (control := self._connected(socket, number)) is None:
                    continue
                answer = control.ask(word.op, None, **word.fields)
            except GoneError:
                self._dropped(control)
                continue
            if subject == _ACK and answer.get("ok"):
                refusing = (0, 0.0)
            elif subject == _ACK:
                # The log can be read before the process has counted its latest commit.
                if refusing[0] != number:
                    refusing = (number, time.monotonic())
                if time.monotonic() - refusing[1] <= ACK_PATIENCE:
                    with self._changed:
                        self._changed.wait(0.01)
                    continue
            self._answered(number, subject, word, answer)

    def _due(self) -> tuple[str, Word] | None:
        """Return the next message and its subject. Acknowledgements come last, because they can
        have to wait."""
        if self._socket is None:
            return None
        word = self._word_due()
        request = self._acks.due() if word is None else None
        if request is None:
            return word
        return _ACK, Word("ack", {**request, "run_id": self.run_id} if self.run_id else request)

    def _word_due(self) -> tuple[str, Word] | None:
        due = (said for said in self._said.items() if self._heard.get(said[0]) is not said[1] and not self._held(said[1]))
        return next(due, None)

    def _connected(self, socket: str, number: int) -> Control | None:
        """Return a connection to a process, or None if it has ended meanwhile."""
        control = Control(socket)
        with self._changed:
            if self._process == number and self._socket is not None:
                self._control = control
                return control
        control.close()
        return None

    def _dropped(self, control: Control | None) -> None:
        """Drop a broken connection. Its process is about to end, or gets the request again."""
        with self._changed:
            if self._control is control:
                self._control = None
        if control is not None:
            control.close()
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._socket is None, AGAIN)

    def _answered(self, number: int, subject: str, word: Word, answer: dict[str, Any]) -> None:
        with self._changed:
            if answer.get("ok"):
                if self._process != number or self._socket is None:
                    pass  # its successor receives it
                elif subject == _ACK:
                    self._acks.answered(word.fields)
                else:
                    self._heard[subject] = word
            else:
                word.refused = refusal(word.op, answer)
                if self._said.get(subject) is word:
                    before = self._heard.get(subject)
                    if before is None:
                        del self._said[subject]
                    else:
                        self._said[subject] = before
            self._changed.notify_all()
            if word.refused is not None and not word.awaited:
                raise word.refused
