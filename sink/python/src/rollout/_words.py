"""What a trainer says to its collector: said to the process, and again to one that is started again.

Of the words on a subject, such as the version, the last one counts. One thread says all of
them over one connection, in the order in which they were given: no process hears an older
version after a newer one. It waits for an answer as long as the process lives, for a word
that was said again over a second connection could overtake the first. Who gives a word waits
for PATIENCE seconds, and the word stays due.

A drain ends a pause in the process, so it waits for the end of the pause: a trainer that has
paused to give the engine new weights has no samples begin because the tasks have ended.
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
"""Seconds for which who gives a word waits for the answer."""
ACK_PATIENCE = 10.0
"""Seconds for which the process may refuse an acknowledgement of what is in the log."""
AGAIN = 0.05
"""Seconds before a connection that broke is made again."""

_ACK = "ack"


@dataclass(eq=False)
class Word:
    """A request to the process."""

    op: str
    fields: dict[str, Any] = field(default_factory=dict)
    awaited: bool = False
    """Who gave it waits, and raises the refusal."""
    refused: CollectError | None = None


class Words:
    """The last word on each subject, and which of them the process has heard."""

    def __init__(self, run: str) -> None:
        self.run_id = ""
        """Of the run, once a reader knows it: the collector of another one refuses its cursors."""
        self._run = run
        self._acks = Acks()
        self._changed = threading.Condition()
        self._said: dict[str, Word] = {}  # by subject, in the order in which they were given
        self._heard: dict[str, Word] = {}  # by the process that is there
        self._socket: str | None = None  # of the process that is there
        self._control: Control | None = None
        self._process = 0  # its number
        self._closed = False

    # What the trainer says.

    def say(self, subject: str, op: str, **fields: Any) -> None:
        """Say a word and wait for its answer; a process that is being started hears it later.

        Raises what the process refuses, which is then as if it had not been said.
        """
        word = Word(op, fields, awaited=True)
        with self._changed:
            self._said.pop(subject, None)
            self._said[subject] = word
            self._changed.notify_all()
            try:
                answered = self._changed.wait_for(lambda: self._settled(subject, word), PATIENCE)
            finally:  # a signal may end the wait
                word.awaited = False
        if word.refused is not None:
            raise word.refused
        if not answered:
            log.warning("%s: the collector has not answered %r for %g s: it may be stopped, or its machine be overloaded", self._run, op, PATIENCE)

    @property
    def versioned(self) -> bool:
        """Whether a version was said."""
        with self._changed:
            return "version" in self._said

    def end_pause(self) -> None:
        """Say, soon and without waiting, that a pause is over."""
        with self._changed:
            if self._paused():
                self._said["pause"] = Word("resume")
                self._changed.notify_all()

    def _paused(self) -> bool:
        return "pause" in self._said and self._said["pause"].op == "pause"

    def _held(self, word: Word) -> bool:
        return word.op == "drain" and self._paused()

    def acknowledge(self, place: Place) -> None:
        """Say, soon and without waiting, how far the trainer is."""
        with self._changed:
            self._acks.acknowledge(place)
            self._changed.notify_all()

    def leave_out(self, places: list[Place]) -> None:
        """Say of groups that the filters leave them out: the trainer may have others in their place."""
        if places:
            with self._changed:
                self._acks.leave_out(places)
                self._changed.notify_all()

    @property
    def acked(self) -> Place:
        """How far the trainer is."""
        with self._changed:
            return self._acks.cursor

    def flush(self, timeout: float) -> None:
        """Wait until the process, where there is one, has heard how far the trainer is."""
        with self._changed:
            self._changed.wait_for(lambda: not self._acks.unsaid or self._socket is None or self._closed, timeout)

    def _settled(self, subject: str, word: Word) -> bool:
        """Report whether there is nothing to wait for: it was answered, or nobody will."""
        return self._heard.get(subject) is word or self._said.get(subject) is not word or self._held(word) or self._socket is None or self._closed

    # Whom it is said to.

    def reached(self, socket: str) -> None:
        """Say everything to a process that has begun."""
        with self._changed:
            self._socket, self._process = socket, self._process + 1
            self._heard = {}
            self._acks.begun(START)
            self._changed.notify_all()

    def gone(self) -> None:
        """Note that the process has ended."""
        with self._changed:
            self._socket, self._heard = None, {}
            control, self._control = self._control, None
            self._changed.notify_all()
        if control is not None:
            control.close()

    def socket(self, until: float | None = None) -> str | None:
        """Wait for a process, and return its socket; None where there will be none, or not in time."""
        with self._changed:
            left = None if until is None else max(0.0, until - time.monotonic())
            self._changed.wait_for(lambda: self._socket is not None or self._closed, left)
            return None if self._closed else self._socket

    def listener(self) -> str | None:
        """Wait for a process that has heard all that was said, and return its socket; None where there will be none.

        What a trainer says before it gives a task, such as a version, holds for the task's samples.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._socket is not None and self._word_due() is None))
            return None if self._closed else self._socket

    def close(self) -> None:
        """End: nothing is said from now on."""
        with self._changed:
            self._closed = True
        self.gone()

    # How it is said.

    def tell(self) -> None:
        """Say what is due, until close. It is the work of a thread; it raises what nobody waits for."""
        refusing = (0, 0.0)  # which process refuses acknowledgements, since when
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
                # The log may be read before the process has counted what it has just committed.
                if refusing[0] != number:
                    refusing = (number, time.monotonic())
                if time.monotonic() - refusing[1] <= ACK_PATIENCE:
                    with self._changed:
                        self._changed.wait(0.01)
                    continue
            self._answered(number, subject, word, answer)

    def _due(self) -> tuple[str, Word] | None:
        """Return the next word and its subject; acknowledgements come last, for they may have to wait."""
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
        """Return a connection to a process; None where it was gone meanwhile."""
        control = Control(socket)
        with self._changed:
            if self._process == number and self._socket is not None:
                self._control = control
                return control
        control.close()
        return None

    def _dropped(self, control: Control | None) -> None:
        """Note that a connection is of no use. Its process is about to end, or lives and is asked again."""
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
                    pass  # its successor is told
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
